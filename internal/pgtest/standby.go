package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Standby makes a streaming hot standby of s that is ended with the test. Its
// application_name on the primary is name, for synchronous_standby_names.
func (s *Server) Standby(t testing.TB, name string) *Server {
	t.Helper()
	standby, err := s.standby(t.Context(), name)
	if err != nil {
		t.Fatalf("start a standby: %v", err)
	}
	closeAfter(t, standby)
	return standby
}

func (s *Server) standby(ctx context.Context, name string) (*Server, error) {
	opts := s.opts
	opts.Settings = map[string]string{
		"primary_conninfo": fmt.Sprintf("'host=%s port=%d user=%s application_name=%s'", s.Host(), s.port, Superuser, name),
	}
	maps.Copy(opts.Settings, s.opts.Settings)
	standby, err := prepare(opts, s.bin, s.dir.who)
	if err != nil {
		return nil, err
	}
	err = s.backup(ctx, standby)
	if err == nil {
		err = standby.configure()
	}
	if err == nil {
		err = standby.firstStart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	return standby, nil
}

// backup copies the running server's data. It does without pg_basebackup, which
// downloaded versions do not have.
func (s *Server) backup(ctx context.Context, to *Server) error {
	start, stop := "SELECT pg_backup_start('standby', true)", "SELECT labelfile FROM pg_backup_stop(false)"
	if s.Major() < 15 {
		start, stop = "SELECT pg_start_backup('standby', true, false)", "SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	conn, err := pgx.Connect(ctx, s.SocketDSN("postgres", Superuser))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, start); err != nil {
		return err
	}
	if err := copyData(s.data(), to.data(), s.dir.who); err != nil {
		return fmt.Errorf("copy the data directory: %w", err)
	}
	var label string
	if err := conn.QueryRow(ctx, stop).Scan(&label); err != nil {
		return err
	}
	return errors.Join(to.dir.write("data/backup_label", label), to.dir.write("data/standby.signal", ""))
}

// copyData copies a data directory in use. What vanishes or changes meanwhile is
// put right by replaying the log from the backup's start; what must not be in a
// copy is left out.
func copyData(from, to string, who identity) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case !entry.Type().IsRegular(), strings.HasPrefix(rel, "postmaster."), volatile(rel):
			return nil
		default:
			err = copyFile(path, target)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		if err != nil {
			return err
		}
		return who.own(target)
	})
}

// volatile reports whether a file is in a directory that a server fills anew.
func volatile(rel string) bool {
	dir, _, _ := strings.Cut(rel, string(filepath.Separator))
	switch dir {
	case "pg_dynshmem", "pg_notify", "pg_replslot", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans":
		return true
	}
	return false
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Promote makes a standby a primary and returns when it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	return s.admin(ctx, "postgres", `DO $$ BEGIN
		IF NOT pg_promote(true, 60) THEN RAISE 'not promoted within 60 s'; END IF;
	END $$`)
}

// Disconnect makes a standby follow nobody and returns when it does not: what the
// primary commits from now on is lost when the standby is promoted.
func (s *Server) Disconnect(ctx context.Context) error {
	for _, sql := range []string{
		"ALTER SYSTEM SET primary_conninfo = ''",
		"SELECT pg_reload_conf()",
		`DO $$ BEGIN
			FOR i IN 1 .. 3000 LOOP
				PERFORM pg_stat_clear_snapshot();
				IF NOT EXISTS (SELECT FROM pg_stat_wal_receiver) THEN RETURN; END IF;
				PERFORM pg_sleep(0.01);
			END LOOP;
			RAISE 'the standby still follows';
		END $$`,
	} {
		if err := s.admin(ctx, "postgres", sql); err != nil {
			return err
		}
	}
	return nil
}

// Demote starts a primary again as a standby that follows nobody, which is what
// becomes of one that failover software has replaced: it answers, and refuses to
// write.
func (s *Server) Demote() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayChange(); err != nil {
		return err
	}
	if err := s.stop(Fast); err != nil {
		return err
	}
	if err := s.dir.write("data/standby.signal", ""); err != nil {
		return err
	}
	return s.startAgain()
}
