package pgtest

import (
	"net/url"
	"path/filepath"
	"strconv"
)

// DSN is a connection URL over TCP without a password.
func (s *Server) DSN(database, user string) string { return s.dsn(database, url.User(user)) }

// PasswordDSN is a connection URL over TCP with a password, escaped as needed.
func (s *Server) PasswordDSN(database, user, password string) string {
	return s.dsn(database, url.UserPassword(user, password))
}

func (s *Server) dsn(database string, user *url.Userinfo) string {
	u := url.URL{Scheme: "postgres", User: user, Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// SocketDSN is a connection URL over the Unix socket without a password.
func (s *Server) SocketDSN(database, user string) string {
	q := url.Values{"host": {filepath.Dir(s.Socket())}, "port": {strconv.Itoa(s.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(user), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// With returns the connection URL dsn with parameters set, given as name and
// value in turn: With(dsn, "application_name", "holder").
func With(dsn string, nameValue ...string) string {
	u, err := url.Parse(dsn)
	if err != nil || len(nameValue)%2 != 0 {
		panic("pgtest.With: a URL, then names and values in pairs")
	}
	q := u.Query()
	for i := 0; i < len(nameValue); i += 2 {
		q.Set(nameValue[i], nameValue[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}
