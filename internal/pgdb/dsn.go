package pgdb

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A connection string that is not written as it should be puts pieces of the
// password where the host, the database or a parameter is expected, and from
// there they get into messages: of the resolver, of the server, and into logs.
// Nobody can tell such a piece from a strange host name. So what looks like one
// is refused here, before anything is done with it, by errors that name the rule
// and the part of the string, and quote nothing.

const (
	urlHint = `; characters with a meaning in a URL have to be escaped in a password ("@" is %40, "/" is %2F, "%" is %25), ` +
		`or leave it out and use PGPASSWORD or a password file`
	wordHint = `; a value with spaces needs single quotes, with \' and \\ inside, ` +
		`or leave the password out and use PGPASSWORD or a password file`
)

func badURL(problem string) error {
	return errors.New("the connection URL cannot be used: " + problem + urlHint)
}

func badWords(problem string) error {
	return errors.New("the connection string cannot be used: " + problem + wordHint)
}

// checkDSN refuses what pgx would refuse with a quotation, and what it would
// accept in a sense that was hardly meant.
func checkDSN(dsn string) error {
	if strings.IndexByte(dsn, 0) >= 0 {
		return errors.New("the connection string cannot be used: it contains a NUL byte")
	}
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		if rest, ok := strings.CutPrefix(dsn, scheme); ok {
			return checkURL(rest)
		}
	}
	if first, _, _ := strings.Cut(dsn, "="); strings.Contains(first, "://") {
		return errors.New(`the connection string cannot be used: it looks like a URL, but does not begin with "postgres://" or "postgresql://"`)
	}
	return checkWords(dsn)
}

// checkURL checks what follows the scheme, divided as libpq does it: the first
// "@" before any "/" ends the user name and the password.
func checkURL(s string) error {
	if i := strings.IndexAny(s, "@/"); i >= 0 && s[i] == '@' {
		user, password, _ := strings.Cut(s[:i], ":")
		if err := checkEscapes(user, "the user name"); err != nil {
			return err
		}
		if err := checkEscapes(password, "the password"); err != nil {
			return err
		}
		s = s[i+1:]
	}
	place, query, _ := strings.Cut(s, "?")
	if strings.Contains(place, "@") {
		return badURL(`there is an "@" in the host or the database`)
	}
	hosts, database, _ := strings.Cut(place, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if err := checkHostPort(host); err != nil {
			return err
		}
	}
	if err := checkEscapes(database, "the database"); err != nil {
		return err
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok || strings.Contains(value, "="):
			return badURL(`one of the parameters after the "?" is not of the form name=value`)
		case !isWord(key):
			return badURL(`the name of one of the parameters after the "?" has a character that no parameter has`)
		case strings.Contains(value, "@") && !slices.Contains(freeText, key):
			return badURL(`there is an "@" in one of the parameters after the "?"`)
		}
		if err := checkEscapes(value, `a parameter after the "?"`); err != nil {
			return err
		}
	}
	return nil
}

// freeText are the parameters of a URL that may well have an "@" in them.
var freeText = []string{"user", "password", "sslpassword", "application_name", "fallback_application_name", "options", "passfile", "krbspn"}

func checkHostPort(s string) error {
	host, port, _ := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 2 || end+1 < len(s) && s[end+1] != ':' {
			return badURL(`the brackets around an IPv6 address do not match`)
		}
		host, port = s[1:end], strings.TrimPrefix(s[end+1:], ":")
	}
	if strings.Trim(port, "0123456789") != "" || len(port) > 5 {
		return badURL("a port is not a number")
	}
	return checkEscapes(host, "a host")
}

// checkEscapes refuses a part of a URL with a "%" that escapes nothing, or with
// a space.
func checkEscapes(s, part string) error {
	if strings.Contains(s, " ") {
		return badURL("there is a space in " + part)
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) || s[i+1:i+3] == "00" {
			return badURL(`there is a "%" in ` + part + " that is not followed by the two digits of an escaped character")
		}
		i += 2
	}
	return nil
}

// checkWords checks the form keyword=value.
func checkWords(s string) error {
	const spaces = " \t\n\r\v\f"
	for s = strings.TrimLeft(s, spaces); s != ""; s = strings.TrimLeft(s, spaces) {
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			return badWords(`there is a word without "="`)
		}
		if key = strings.Trim(key, spaces); !isWord(key) {
			return badWords(`what stands before one of the "=" is not a single keyword`)
		}
		s = strings.TrimLeft(rest, spaces)
		quoted := strings.HasPrefix(s, "'")
		end := len(s)
		for i := 0; i < len(s); i++ {
			if s[i] == '\\' {
				i++
			} else if quoted && i > 0 && s[i] == '\'' || !quoted && strings.IndexByte(spaces, s[i]) >= 0 {
				end = i
				break
			}
		}
		if quoted {
			if end == len(s) {
				return badWords("a quoted value has no end")
			}
			end++
		}
		s = s[end:]
	}
	return nil
}

// checkConfig checks what connections are made from, wherever it comes from.
func checkConfig(c *pgx.ConnConfig) error {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if strings.Contains(host, "@") {
			return errors.New(`the connection settings cannot be used: there is an "@" in a host name` + urlHint)
		}
	}
	return nil
}

// knownParameters reports whether all parameters that are sent to the server
// when connecting are ones that it should know. It quotes the others in its
// refusal, and they may be what follows a space in a password.
func knownParameters(c *pgx.ConnConfig) bool {
	for name := range c.RuntimeParams {
		if !slices.Contains(runtimeParameters, strings.ToLower(name)) {
			return false
		}
	}
	return true
}

var runtimeParameters = []string{
	"application_name", "bytea_output", "client_encoding", "client_min_messages", "datestyle",
	"default_transaction_deferrable", "default_transaction_isolation", "default_transaction_read_only",
	"enable_seqscan", "extra_float_digits", "geqo", "idle_in_transaction_session_timeout", "idle_session_timeout",
	"intervalstyle", "jit", "lc_messages", "lc_monetary", "lc_numeric", "lc_time", "lock_timeout",
	"log_min_duration_statement", "log_statement", "maintenance_work_mem", "options", "plan_cache_mode", "replication",
	"role", "row_security", "search_path", "session_authorization", "ssl", "standard_conforming_strings",
	"statement_timeout", "synchronous_commit", "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "temp_buffers", "timezone", "transaction_timeout", "work_mem",
}

// parseError says in words of our own why pgx refused a connection string. Its
// text quotes the string, masked as well as it can tell.
func parseError(err error) error {
	text := err.Error()
	for _, known := range parseErrors {
		if strings.Contains(text, known.theirs) {
			return errors.New("the connection string cannot be used: " + known.ours)
		}
	}
	return errors.New("the connection string cannot be used" + urlHint)
}

var parseErrors = []struct{ theirs, ours string }{
	{"invalid port", "a port is not a number between 1 and 65535"},
	{"could not match", "there are not as many ports as hosts"},
	{"sslmode is invalid", "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full"},
	{`both "sslcert" and "sslkey" are required`, "sslcert and sslkey have to be given together"},
	{"unable to read CA file", "the file that sslrootcert names cannot be read"},
	{"unable to add CA to cert pool", "the file that sslrootcert names holds no certificate"},
	{"failed to configure TLS", "the TLS settings do not work: look at sslcert, sslkey, sslpassword and sslrootcert"},
	{"failed to read service", "the service is not in the service file, or that cannot be read"},
	{"unknown target_session_attrs", "target_session_attrs has no meaning: use any, read-write, read-only, primary, standby or prefer-standby"},
	{"invalid connect_timeout", "connect_timeout is not a number of seconds"},
	{"sslcertmode", "sslcertmode is none of disable, allow and require"},
	{"channel_binding", "channel_binding is none of disable, prefer and require"},
	{"require_auth", "require_auth has no meaning"},
	{"protocol_version", "min_protocol_version and max_protocol_version have no meaning together"},
	{"default_query_exec_mode", "default_query_exec_mode is none that the driver knows"},
	{"cache_capacity", "the size of a statement cache is not a number"},
	{"pool_", "one of the pool_ parameters has a value that is none"},
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

// isWord reports whether s could be the name of a parameter.
func isWord(s string) bool {
	for _, r := range s {
		if r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return s != ""
}
