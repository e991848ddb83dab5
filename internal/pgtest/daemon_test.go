package pgtest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestDaemonEndsWithItsTest uses a program that other tests need anyway.
func TestDaemonEndsWithItsTest(t *testing.T) {
	var dir, addr string
	t.Run("while it lives", func(t *testing.T) {
		d := pgtest.NewDaemon(t, pgtest.Program{
			Name: []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"}, Package: "pgbouncer", Ports: 2,
			Args: func(in string, ports []int) []string {
				dir = in
				ini := filepath.Join(dir, "pgbouncer.ini")
				text := fmt.Sprintf("[databases]\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\n", ports[0])
				if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
					t.Error(err)
				}
				if len(ports) != 2 || ports[0] == ports[1] {
					t.Errorf("ports %d", ports)
				}
				return []string{ini}
			},
		})
		addr = d.Addr()
		conn, err := net.Dial("tcp", addr)
		pgtest.Must(t, err)
		pgtest.Must(t, conn.Close())
	})
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}
