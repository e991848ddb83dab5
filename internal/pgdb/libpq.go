package pgdb

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A connection string that serves psql should serve here. pgx takes a parameter
// that it does not know for a setting of the server's and sends it there, which
// ends the connection; and it does not look at all of libpq's variables. What
// libpq 15 to 18 know and pgx does not is dealt with here, wherever it was found:
// in a URL, in words, in a service file or in the environment. It is honoured; or
// dropped where only comfort is lost; or refused where somebody relies on a check
// or a secret that would silently be left out. Errors name the parameter, and
// quote nothing.

// libpqOnly are libpq's parameters that pgx does not know, with their variables.
var libpqOnly = map[string]string{
	"hostaddr":                  "PGHOSTADDR",
	"keepalives":                "",
	"keepalives_idle":           "",
	"keepalives_interval":       "",
	"keepalives_count":          "",
	"tcp_user_timeout":          "",
	"ssl_min_protocol_version":  "PGSSLMINPROTOCOLVERSION",
	"ssl_max_protocol_version":  "PGSSLMAXPROTOCOLVERSION",
	"requirepeer":               "PGREQUIREPEER",
	"requiressl":                "PGREQUIRESSL",
	"fallback_application_name": "",

	"gssencmode":          "PGGSSENCMODE",
	"sslcrl":              "PGSSLCRL",
	"sslcrldir":           "PGSSLCRLDIR",
	"scram_client_key":    "",
	"scram_server_key":    "",
	"oauth_issuer":        "",
	"oauth_client_id":     "",
	"oauth_scope":         "",
	"oauth_client_secret": "",

	"authtype":           "",
	"tty":                "",
	"sslcompression":     "",
	"gsslib":             "",
	"gssdelegation":      "",
	"sslkeylogfile":      "",
	"load_balance_hosts": "",
}

// extras are what was found of them, by name.
type extras map[string]string

// takeExtras takes them out of what would be sent to the server. The connection
// string comes before the service file, and that before the environment.
func takeExtras(c *pgx.ConnConfig) extras {
	x := extras{}
	for name, variable := range libpqOnly {
		value, ok := c.RuntimeParams[name]
		delete(c.RuntimeParams, name)
		if !ok && variable != "" {
			value = os.Getenv(variable)
		}
		if value != "" {
			x[name] = value
		}
	}
	if c.RuntimeParams["client_encoding"] == "auto" { // the locale's, for people
		delete(c.RuntimeParams, "client_encoding")
	}
	return x
}

func refused(name, why string) error {
	return fmt.Errorf("the connection settings cannot be used: %s: %s", name, why)
}

// parseConfig reads a connection string as libpq does.
func parseConfig(dsn string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, parseError(err)
	}
	x := takeExtras(config.ConnConfig)
	addresses, err := x.addresses()
	if err != nil {
		return nil, err
	}
	if len(addresses) > 0 && !slices.ContainsFunc(hosts(config.ConnConfig), tcp) {
		// No host was named: the addresses are the hosts, which TLS has to be set
		// up for.
		if config, err = pgxpool.ParseConfig(withHost(dsn, strings.Join(addresses, ","))); err != nil {
			return nil, parseError(err)
		}
		takeExtras(config.ConnConfig)
		addresses = nil
	}
	if err := x.apply(config.ConnConfig, addresses); err != nil {
		return nil, err
	}
	return config, nil
}

// hosts are those that are tried, in their order, each once.
func hosts(c *pgx.ConnConfig) []string {
	type place struct {
		host string
		port uint16
	}
	places := []place{{c.Host, c.Port}}
	for _, f := range c.Fallbacks {
		places = append(places, place{f.Host, f.Port})
	}
	var list []string
	for _, p := range slices.Compact(places) { // with TLS and without
		list = append(list, p.host)
	}
	return list
}

// tcp tells a host from the directory of a socket.
func tcp(host string) bool { return !filepath.IsAbs(host) && !strings.HasPrefix(host, "@") }

// withHost names hosts in a connection string that names none.
func withHost(dsn, host string) string {
	if !strings.Contains(dsn, "://") {
		return dsn + " host='" + host + "'"
	}
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + "host=" + url.QueryEscape(host)
}

func (x extras) addresses() ([]string, error) {
	if x["hostaddr"] == "" {
		return nil, nil
	}
	list := strings.Split(x["hostaddr"], ",")
	for _, address := range list {
		if address != "" && net.ParseIP(address) == nil {
			return nil, refused("hostaddr", "is no IP address")
		}
	}
	return list, nil
}

func (x extras) apply(c *pgx.ConnConfig, addresses []string) error {
	for _, step := range []func(*pgx.ConnConfig) error{x.refuse, x.tls, x.dial} {
		if err := step(c); err != nil {
			return err
		}
	}
	if name := x["fallback_application_name"]; name != "" && c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = name
	}
	return lookUp(c, addresses)
}

// refuse refuses what cannot be done and must not be forgotten.
func (x extras) refuse(c *pgx.ConnConfig) error {
	switch {
	case x["gssencmode"] == "require":
		return refused("gssencmode", "the driver cannot encrypt by GSSAPI; sslmode=require encrypts by TLS")
	case x["sslcrl"] != "":
		return refused("sslcrl", "the driver looks at no revocation lists, so a revoked certificate would be accepted")
	case x["sslcrldir"] != "":
		return refused("sslcrldir", "the driver looks at no revocation lists, so a revoked certificate would be accepted")
	case strings.HasPrefix(x["requiressl"], "1") && !encrypted(c):
		return refused("requiressl", "say sslmode=require instead")
	}
	for name := range x {
		switch {
		case strings.HasPrefix(name, "scram_"):
			return refused(name, "the driver needs the password itself")
		case strings.HasPrefix(name, "oauth_"):
			return refused(name, "the driver cannot log in by OAuth")
		}
	}
	return nil
}

// encrypted tells whether no connection goes without TLS over a network.
func encrypted(c *pgx.ConnConfig) bool {
	bare := tcp(c.Host) && c.TLSConfig == nil
	for _, f := range c.Fallbacks {
		bare = bare || tcp(f.Host) && f.TLSConfig == nil
	}
	return !bare
}

var tlsVersions = map[string]uint16{
	"": 0, "tlsv1": tls.VersionTLS10, "tlsv1.1": tls.VersionTLS11, "tlsv1.2": tls.VersionTLS12, "tlsv1.3": tls.VersionTLS13,
}

func (x extras) tls(c *pgx.ConnConfig) error {
	var bounds [2]uint16
	for i, name := range []string{"ssl_min_protocol_version", "ssl_max_protocol_version"} {
		v, ok := tlsVersions[strings.ToLower(x[name])]
		if !ok {
			return refused(name, "is none of TLSv1, TLSv1.1, TLSv1.2 and TLSv1.3")
		}
		bounds[i] = v
	}
	if bounds[1] != 0 && bounds[0] > bounds[1] {
		return refused("ssl_min_protocol_version", "is above ssl_max_protocol_version")
	}
	configs := []*tls.Config{c.TLSConfig}
	for _, f := range c.Fallbacks {
		configs = append(configs, f.TLSConfig)
	}
	for _, t := range configs {
		if t == nil {
			continue
		}
		if bounds[0] != 0 {
			t.MinVersion = bounds[0]
		}
		if bounds[1] != 0 {
			t.MaxVersion = bounds[1]
		}
	}
	return nil
}

// number reads a setting; zero and nothing leave it to the system.
func (x extras) number(name string) (int, error) {
	if x[name] == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(x[name]))
	if err != nil || n > 1<<31-1 {
		return 0, refused(name, "is not a number")
	}
	return max(n, 0), nil
}

// dial puts together how connections are made.
func (x extras) dial(c *pgx.ConnConfig) error {
	numbers := map[string]int{}
	given := false
	for _, name := range []string{"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"} {
		n, err := x.number(name)
		if err != nil {
			return err
		}
		numbers[name] = n
		given = given || x[name] != ""
	}
	if given {
		d := &net.Dialer{Timeout: c.ConnectTimeout}
		orSystem := func(n int) int {
			if n == 0 {
				return -1
			}
			return n
		}
		d.KeepAliveConfig = net.KeepAliveConfig{
			Enable:   x["keepalives"] == "" || numbers["keepalives"] != 0,
			Idle:     time.Duration(orSystem(numbers["keepalives_idle"])) * time.Second,
			Interval: time.Duration(orSystem(numbers["keepalives_interval"])) * time.Second,
			Count:    orSystem(numbers["keepalives_count"]),
		}
		if !d.KeepAliveConfig.Enable {
			d.KeepAlive = -1
		}
		if ms := numbers["tcp_user_timeout"]; ms > 0 {
			d.Control = func(network, _ string, raw syscall.RawConn) error {
				if strings.HasPrefix(network, "tcp") {
					return userTimeout(raw, ms)
				}
				return nil
			}
		}
		c.DialFunc = d.DialContext
	}
	if peer := x["requirepeer"]; peer != "" {
		dial := c.DialFunc
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil || network != "unix" {
				return conn, err
			}
			if err := checkPeer(conn, peer); err != nil {
				_ = conn.Close()
				return nil, err
			}
			return conn, nil
		}
	}
	return nil
}

// lookUp makes hosts stand for the addresses that were given with them.
func lookUp(c *pgx.ConnConfig, addresses []string) error {
	if len(addresses) == 0 {
		return nil
	}
	names := hosts(c)
	if len(names) != len(addresses) {
		return refused("hostaddr", "there are not as many addresses as hosts")
	}
	known := map[string][]string{}
	for i, name := range names {
		switch {
		case !tcp(name):
			return refused("hostaddr", "one of the hosts is a directory of sockets")
		case addresses[i] != "":
			known[name] = append(known[name], addresses[i])
		}
	}
	resolve := c.LookupFunc
	c.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		if list := known[host]; len(list) > 0 {
			return list, nil
		}
		return resolve(ctx, host)
	}
	return nil
}
