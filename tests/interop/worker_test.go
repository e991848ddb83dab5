//go:build interop

package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/lease"
)

// workerJob makes the test binary a Go process that holds or counts.
const workerJob = "PGMUTEX_INTEROP_JOB"

type job struct {
	DSN, Name, Label string
	Peers, Stale     time.Duration
	Rounds           int  // of counting; 0: hold until killed
	Advisory         bool // the engine
}

// work is the whole of a worker process.
func work(text string) int {
	err := func() error {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			return err
		}
		go func() { // like a peer, it ends with whoever started it
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		ctx := context.Background()
		eng, err := j.engine()
		if err != nil {
			return err
		}
		client, err := pgmutex.New(ctx, eng, &pgmutex.Options{
			HolderID: j.Label, StaleAfter: j.Stale, PollInterval: 20 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		if j.Rounds > 0 {
			return errors.Join(j.count(ctx, client), client.Close(ctx))
		}
		hold, err := client.TryAcquire(ctx, j.Name)
		if err != nil {
			return err
		}
		fmt.Println(hold.Info().Term)
		<-hold.Context().Done()
		return hold.Err()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (j *job) engine() (engine.Engine, error) {
	if j.Advisory {
		return advisory.New(j.DSN, nil)
	}
	return lease.New(j.DSN, &lease.Options{PeerStaleAfter: j.Peers})
}

// count increments the counter in the way that needs a lock.
func (j *job) count(ctx context.Context, client *pgmutex.Client) error {
	conn, err := pgx.Connect(ctx, j.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for range j.Rounds {
		err := client.Do(ctx, j.Name, func(ctx context.Context) error {
			var n int
			if err := conn.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.002)"); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, "UPDATE counter SET n = $1", n+1)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startWorker starts a Go process, which is killed with the test.
func startWorker(t testing.TB, j job) (cmd *exec.Cmd, stdout *bufio.Reader) {
	t.Helper()
	text, err := json.Marshal(j)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), workerJob+"="+string(text))
	cmd.Stderr = &strings.Builder{}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // twice is an error that says so
	})
	return cmd, bufio.NewReader(out)
}

// crashed lets a Go process take name and kills it. It returns the term, whose
// row is left.
func crashed(t testing.TB, j job) string {
	t.Helper()
	cmd, stdout := startWorker(t, j)
	term, err := stdout.ReadString('\n')
	must(t, cmd.Process.Kill())
	waited := cmd.Wait()
	if err != nil {
		t.Fatalf("the Go holder failed: %v, %v\n%s", err, waited, cmd.Stderr)
	}
	return strings.TrimSpace(term)
}
