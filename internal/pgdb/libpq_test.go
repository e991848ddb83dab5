package pgdb

import (
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// inForms gives a connection string for each way in which libpq takes parameters,
// after setting the scene for it.
func inForms(t *testing.T, dsn string, parameters ...string) map[string]func(*testing.T) string {
	t.Helper()
	u, err := url.Parse(dsn)
	pgtest.Must(t, err)
	words := "host=" + u.Hostname() + " port=" + u.Port() + " dbname=" + strings.TrimPrefix(u.Path, "/") + " user=" + u.User.Username() + " sslmode=disable"
	forms := map[string]func(*testing.T) string{
		"URL": func(*testing.T) string { return pgtest.With(dsn, parameters...) },
		"words": func(*testing.T) string {
			s := words
			for i := 0; i < len(parameters); i += 2 {
				s += " " + parameters[i] + "='" + parameters[i+1] + "'"
			}
			return s
		},
		"service file": func(t *testing.T) string {
			text := "[mine]\n" + strings.ReplaceAll(words, " ", "\n") + "\n"
			for i := 0; i < len(parameters); i += 2 {
				text += parameters[i] + "=" + parameters[i+1] + "\n"
			}
			file := filepath.Join(t.TempDir(), "services")
			pgtest.Must(t, os.WriteFile(file, []byte(text), 0o600))
			t.Setenv("PGSERVICEFILE", file)
			return "service=mine"
		},
	}
	if variable := libpqOnly[parameters[0]]; len(parameters) == 2 && variable != "" {
		forms["environment"] = func(t *testing.T) string {
			t.Setenv(variable, parameters[1])
			return dsn
		}
	}
	return forms
}

// What psql takes serves here too, in every form, and connects.
func TestLibpqParametersAreTaken(t *testing.T) {
	dsn := fresh(t)
	for _, p := range [][]string{
		{"hostaddr", "127.0.0.1"},
		{"keepalives", "1"}, {"keepalives", "0"},
		{"keepalives_idle", "30", "keepalives_interval", "10", "keepalives_count", "3"},
		{"tcp_user_timeout", "9000"},
		{"ssl_min_protocol_version", "TLSv1.2"}, {"ssl_max_protocol_version", "TLSv1.3"},
		{"requirepeer", "postgres"}, // only sockets have a peer
		{"fallback_application_name", "mine"},
		{"gssencmode", "disable"}, {"gssencmode", "prefer"},
		{"channel_binding", "prefer"}, {"require_auth", "none"}, {"sslcertmode", "allow"}, {"sslsni", "1"}, {"sslnegotiation", "postgres"},
		{"sslcompression", "0"}, {"gsslib", "gssapi"}, {"gssdelegation", "0"}, {"sslkeylogfile", "/nowhere"},
		{"load_balance_hosts", "random"}, {"authtype", "x"}, {"tty", "x"}, {"client_encoding", "auto"}, {"requiressl", "0"},
		{"krbsrvname", "postgres"}, {"options", "-cwork_mem=1MB"}, {"target_session_attrs", "read-write"}, {"connect_timeout", "30"},
	} {
		for form, of := range inForms(t, dsn, p...) {
			t.Run(strings.Join(p, "=")+" in "+form, func(t *testing.T) {
				one[int32](t, open(t, of(t), Options{}), Work, "SELECT 1")
			})
		}
	}
}

// What would silently be weaker is refused by its name, and quoted nowhere.
func TestLibpqParametersAreRefused(t *testing.T) {
	dsn := fresh(t)
	for _, p := range [][]string{
		{"gssencmode", "require"}, {"sslcrl", "Xsecret"}, {"sslcrldir", "Xsecret"}, {"requiressl", "1"},
		{"scram_client_key", "Xsecret"}, {"scram_server_key", "Xsecret"},
		{"oauth_issuer", "Xsecret"}, {"oauth_client_id", "Xsecret"}, {"oauth_client_secret", "Xsecret"}, {"oauth_scope", "Xsecret"},
		{"hostaddr", "Xsecret"}, {"hostaddr", "127.0.0.1,127.0.0.2"}, {"ssl_min_protocol_version", "Xsecret"},
		{"keepalives_idle", "Xsecret"}, {"tcp_user_timeout", "Xsecret"},
	} {
		for form, of := range inForms(t, dsn, p...) {
			t.Run(strings.Join(p, "=")+" in "+form, func(t *testing.T) {
				_, err := Open(of(t), Options{})
				if err == nil || !strings.Contains(err.Error(), p[0]+": ") || strings.Contains(err.Error(), "Xsecret") {
					t.Errorf("error %v", err)
				}
			})
		}
	}
	if _, err := Open(pgtest.With(dsn, "ssl_min_protocol_version", "TLSv1.3", "ssl_max_protocol_version", "TLSv1.2"), Options{}); err == nil {
		t.Error("TLS above 1.3 and below 1.2 is taken")
	}
	// With TLS in any case, there is nothing to refuse.
	if _, err := Open(pgtest.With(dsn, "sslmode", "require", "requiressl", "1"), Options{}); err != nil {
		t.Error(err)
	}
}

// The address is connected to, the host's name is only what a certificate is
// checked against; without a host the address takes its place.
func TestHostaddr(t *testing.T) {
	s := pgtest.Shared(t)
	host, port, err := net.SplitHostPort(s.Addr())
	pgtest.Must(t, err)
	rest := " port=" + port + " dbname=postgres user=" + pgtest.Superuser
	for _, dsn := range []string{
		"hostaddr=" + host + " sslmode=disable" + rest,
		"host=nohost.invalid hostaddr=" + host + " sslmode=disable" + rest,
		"host=nohost.invalid,other.invalid hostaddr=" + host + "," + host + " sslmode=disable" + rest,
		"postgres://" + pgtest.Superuser + "@:" + port + "/postgres?sslmode=disable&hostaddr=" + host,
		"postgres://" + pgtest.Superuser + "@nohost.invalid:" + port + "/postgres?sslmode=disable&hostaddr=" + host,
	} {
		if got := one[string](t, open(t, dsn, Options{}), Work, "SELECT host(inet_server_addr())"); got != host {
			t.Errorf("%s: connected to %q", dsn, got)
		}
	}
	t.Setenv("PGHOSTADDR", host)
	one[int32](t, open(t, "sslmode=disable"+rest, Options{}), Work, "SELECT 1")
	t.Setenv("PGPORT", port)
	t.Setenv("PGDATABASE", "postgres")
	t.Setenv("PGUSER", pgtest.Superuser)
	t.Setenv("PGSSLMODE", "disable")
	one[int32](t, open(t, "", Options{}), Work, "SELECT 1")

	// TLS is not lost on the way from the socket, the default, to the address.
	c, err := parseConfig("hostaddr=" + host + " sslmode=verify-full")
	pgtest.Must(t, err)
	if tlsConfig := c.ConnConfig.TLSConfig; tlsConfig == nil || tlsConfig.ServerName != host {
		t.Errorf("TLS: %+v", tlsConfig)
	}
	c, err = parseConfig("host=db.example hostaddr=" + host + " sslmode=verify-full")
	pgtest.Must(t, err)
	if tlsConfig := c.ConnConfig.TLSConfig; tlsConfig == nil || tlsConfig.ServerName != "db.example" {
		t.Errorf("TLS: %+v", tlsConfig)
	}
}

func TestTLSVersions(t *testing.T) {
	c, err := parseConfig("postgres://h/db?sslmode=prefer&ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=tlsv1.3")
	pgtest.Must(t, err)
	if v := c.ConnConfig.TLSConfig; v.MinVersion != tls.VersionTLS13 || v.MaxVersion != tls.VersionTLS13 {
		t.Errorf("TLS from %x to %x", v.MinVersion, v.MaxVersion)
	}
	t.Setenv("PGSSLMINPROTOCOLVERSION", "TLSv1.3")
	c, err = parseConfig("postgres://h/db?sslmode=require&ssl_min_protocol_version=TLSv1.2")
	pgtest.Must(t, err)
	if v := c.ConnConfig.TLSConfig.MinVersion; v != tls.VersionTLS12 {
		t.Errorf("the variable beats the connection string: %x", v)
	}
}

// The server at a socket is checked, where that can be done.
func TestRequirepeer(t *testing.T) {
	s := pgtest.Shared(t)
	dsn := s.SocketDSN("postgres", pgtest.Superuser)
	if _, err := try[int32](t.Context(), open(t, pgtest.With(dsn, "requirepeer", "nobody-at-all"), Options{}), Work, "SELECT 1"); err == nil {
		t.Error("the server's user was not looked at")
	}
	if runtime.GOOS != "linux" {
		return
	}
	owner := ownerOf(t, s.Socket())
	one[int32](t, open(t, pgtest.With(dsn, "requirepeer", owner), Options{}), Work, "SELECT 1")
}
