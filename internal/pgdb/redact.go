package pgdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// trust says what of a configuration may appear in messages.
type trust struct {
	names  bool // host, user and database
	server bool // what the server says about a failed attempt to connect
}

// address is host:port/database, with all hosts.
func address(c *pgx.ConnConfig, t trust) string {
	if !t.names || c == nil {
		return "the configured database"
	}
	hosts := []string{hostPort(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if h := hostPort(f.Host, f.Port); !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	database := c.Database
	if database == "" {
		database = c.User // as the server does it
	}
	return strings.Join(hosts, ",") + "/" + database
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// connectError makes the error of a failed attempt to connect. Its text is put
// together from parts that are known to hold nothing of a password, instead of
// taking what may hold one out of the driver's: what it leaves out by mistake is
// a detail, not a secret. The driver's error is not wrapped, since it carries
// the whole configuration; the harmless causes in it are.
func connectError(ctx context.Context, c *pgx.ConnConfig, t trust, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var f findings
	f.look(err, t)
	if ended := ctx.Err(); ended != nil {
		f.add(contextError(ctx), contextError(ctx).Error())
	}
	if len(f.reasons) > 1 {
		// With sslmode=prefer a second attempt was made without TLS, and that is
		// the one that counts.
		f.reasons = slices.DeleteFunc(f.reasons, func(reason string) bool { return reason == refusedTLS })
	}
	if len(f.reasons) == 0 {
		f.reasons = []string{"the connection could not be set up"}
	}
	where := address(c, t)
	if t.names {
		where += fmt.Sprintf(" as %q", c.User)
	}
	return &Error{
		Class: NotSent,
		Code:  f.code,
		text:  "cannot connect to " + where + ": " + strings.Join(f.reasons, "; "),
		err:   errors.Join(f.causes...),
	}
}

// findings is what may be told about an error tree.
type findings struct {
	code    string
	reasons []string
	causes  []error
}

func (f *findings) add(cause error, reason string) {
	if slices.Contains(f.reasons, reason) {
		return
	}
	f.reasons = append(f.reasons, reason)
	if cause != nil {
		f.causes = append(f.causes, cause)
	}
}

// look walks the tree down to what it knows.
func (f *findings) look(err error, t trust) {
	switch e := err.(type) {
	case nil:
		return
	case *pgconn.PgError:
		f.code = e.Code
		if t.server || slices.Contains(plainStates, e.Code) && t.names {
			f.add(e, e.Error())
		} else {
			f.add(nil, "the server refused, with SQLSTATE "+strconv.Quote(e.Code))
		}
		return
	case interface{ SQLState() string }: // of another driver
		f.code = e.SQLState()
		f.add(nil, "the server refused, with SQLSTATE "+strconv.Quote(f.code))
		return
	case *net.DNSError:
		if e.IsNotFound {
			f.add(nil, "the host name does not exist")
		} else {
			f.add(nil, "the host name cannot be looked up")
		}
		return
	case syscall.Errno:
		f.add(e, e.Error())
		return
	case x509.UnknownAuthorityError, *tls.CertificateVerificationError, x509.HostnameError, x509.CertificateInvalidError:
		f.add(nil, "the server's certificate is not accepted")
		return
	case tls.RecordHeaderError:
		f.add(nil, "the server does not speak TLS")
		return
	}
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		f.add(err, "the server closed the connection")
		return
	case err == context.Canceled || err == context.DeadlineExceeded || err == ErrClosed:
		f.add(err, err.Error())
		return
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, below := range e.Unwrap() {
			f.look(below, t)
		}
		return
	case interface{ Unwrap() error }:
		if below := e.Unwrap(); below != nil {
			f.look(below, t)
			return
		}
	}
	if n, ok := err.(net.Error); ok && n.Timeout() {
		f.add(nil, "no answer in time")
		return
	}
	for _, text := range plainTexts {
		if err.Error() == text {
			f.add(nil, text)
			return
		}
	}
	f.add(nil, "the connection could not be set up")
}

// plainStates are refusals whose text names nothing but user, database and host.
var plainStates = []string{
	"28P01", "28000", // authentication
	"3D000",                            // no such database
	"42501",                            // no right to connect
	"53300",                            // too many connections
	"57P01", "57P02", "57P03", "57P04", // shutting down, starting up, dropped
}

const refusedTLS = "server refused TLS connection"

// plainTexts are errors of the driver without a type of their own.
var plainTexts = []string{
	refusedTLS,
	"read only connection",
	"connection is not read only",
	"server is in standby mode",
	"server is not in hot standby mode",
}
