package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cleanupBound limits what runs after a test, whose own context has ended.
const cleanupBound = 30 * time.Second

var databaseNumber atomic.Int64

// Database makes a fresh, empty database and returns its DSN as [Superuser]. It
// is dropped with the test, sessions and all; if the server is down then, it
// stays until the server is closed. A failed test shows what the server logged
// about the database.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%d_%s", databaseNumber.Add(1), plainName(t.Name()))
	mark := s.LogMark()
	if err := s.admin(t.Context(), "postgres", "CREATE DATABASE "+quote(name)+" TEMPLATE template0"); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		s.reportLog(t, mark, name)
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
		defer cancel()
		err := s.admin(ctx, "postgres", "DROP DATABASE "+quote(name)+" WITH (FORCE)")
		if err != nil && s.up() {
			t.Errorf("drop database: %v", err)
		}
	})
	return s.DSN(name, Superuser)
}

// plainName shortens a test's name to what reads well in a database's name.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, name)
	return name[:min(len(name), 40)]
}

// Role makes a role that can log in with the password (none: it cannot log in by
// password) and with further attributes, such as "CONNECTION LIMIT 2". What it
// owns and was granted is dropped with the test, and then itself. Roles belong
// to the whole server: tests that run in parallel need different names.
func (s *Server) Role(t testing.TB, name, password string, attributes ...string) {
	t.Helper()
	sql := "CREATE ROLE " + quote(name) + " LOGIN " + strings.Join(attributes, " ")
	if password != "" {
		sql += " PASSWORD '" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	if err := s.admin(t.Context(), "postgres", sql); err != nil {
		t.Fatalf("create role: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
		defer cancel()
		if err := s.dropRole(ctx, name); err != nil && s.up() {
			t.Errorf("drop role %s: %v", name, err)
		}
	})
}

// dropRole first visits every database in which something depends on the role.
func (s *Server) dropRole(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.SocketDSN("postgres", Superuser))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `
		SELECT DISTINCT coalesce(d.datname, 'postgres') FROM pg_shdepend
		LEFT JOIN pg_database d ON d.oid = dbid
		WHERE refclassid = 'pg_authid'::regclass AND refobjid = $1::regrole`, quote(name))
	if err != nil {
		return err
	}
	databases, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, database := range databases {
		err = errors.Join(err, s.admin(ctx, database, "DROP OWNED BY "+quote(name)+" CASCADE"))
	}
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "DROP ROLE "+quote(name))
	return err
}

// admin runs one statement as the superuser.
func (s *Server) admin(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, s.SocketDSN(database, Superuser))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// up reports whether the server has been started and has not ended.
func (s *Server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.postgres.running()
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }
