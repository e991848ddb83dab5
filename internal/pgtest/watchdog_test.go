package pgtest_test

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// soon is how long a test waits for what must not happen.
func soon() <-chan time.Time { return time.After(200 * time.Millisecond) }

const helperEnv = "PGTEST_HELPER"

// TestHelperProcess is no test: it is the process that the next one kills.
func TestHelperProcess(t *testing.T) {
	if os.Getenv(helperEnv) == "" {
		return
	}
	s := pgtest.Shared(t)
	s.Database(t)
	os.Stdout.WriteString("server " + s.Addr() + " " + s.Socket() + "\n")
	select {}
}

func TestServerDiesWithTheProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	out, err := cmd.StdoutPipe()
	pgtest.Must(t, err)
	pgtest.Must(t, cmd.Start())
	killed := false
	defer func() {
		if !killed {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()

	var addr, socket string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "server" {
			addr, socket = f[1], f[2]
		}
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("the helper's server does not answer: %v", err)
	}
	conn.Close()

	pgtest.Must(t, cmd.Process.Kill())
	killed = true
	cmd.Wait() // reports the kill
	pgtest.WaitFor(t, "the server to stop", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	pgtest.WaitFor(t, "the directory to be removed", func() bool {
		_, err := os.Stat(filepath.Dir(socket))
		return errors.Is(err, fs.ErrNotExist)
	})
}
