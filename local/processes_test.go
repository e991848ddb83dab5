//go:build linux || darwin

package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
)

// The test binary runs itself as another process of the machine.
const (
	roleEnv = "PGMUTEX_LOCAL_TEST_ROLE"
	fileEnv = "PGMUTEX_LOCAL_TEST_FILE"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(helper(role))
	}
	os.Exit(m.Run())
}

// scale is a StaleAfter that a process on a busy machine keeps.
const scale = 900 * time.Millisecond

func helper(role string) int {
	roles := map[string]func(ctx context.Context, path string) error{
		"work": work, "hold": holdOn, "open": openOnly,
	}
	if err := roles[role](context.Background(), os.Getenv(fileEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func another(t testing.TB, role, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, fileEnv+"="+path)
	return cmd
}

// work takes the lock again and again, to count in a file that only the lock
// protects.
func work(ctx context.Context, path string) error {
	c, err := Open(ctx, path, &pgmutex.Options{StaleAfter: scale})
	if err != nil {
		return err
	}
	acquire := c.Acquire
	if os.Getpid()%2 == 0 { // half of them stand in no line
		acquire = c.TryAcquire
	}
	for {
		h, err := acquire(ctx, "counter")
		if errors.Is(err, pgmutex.ErrHeld) {
			time.Sleep(rand.N(10 * time.Millisecond)) //nolint:forbidigo // paces the load
			continue
		}
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if err := count(h, filepath.Dir(path)); err != nil {
			return err
		}
		if err := h.Release(ctx); err != nil && !errors.Is(err, pgmutex.ErrLost) {
			return fmt.Errorf("release: %w", err)
		}
	}
}

func count(h *pgmutex.Hold, dir string) error {
	file := filepath.Join(dir, "count")
	n := 0
	if text, err := os.ReadFile(file); err == nil {
		fmt.Sscan(string(text), &n)
	}
	time.Sleep(rand.N(3 * time.Millisecond)) //nolint:forbidigo // the work of a holder
	if !h.Held() {
		return nil
	}
	// Whoever is killed leaves the old number or the new one.
	next := fmt.Sprintf("%s.%d", file, h.Token())
	if err := os.WriteFile(next, fmt.Append(nil, n+1), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, file); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = fmt.Fprintf(log, "%d %d\n", n+1, h.Token())
	return err
}

func TestProcessesThatAreKilled(t *testing.T) {
	path := store(t)
	dir := filepath.Dir(path)
	const workers, enough, deaths = 8, 400, 30
	deadline := time.Now().Add(12 * time.Second)
	var over atomic.Bool
	var mu sync.Mutex
	live := map[int]*exec.Cmd{}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for !over.Load() {
				cmd := another(t, "work", path)
				var said strings.Builder
				cmd.Stderr = &said
				mu.Lock()
				err := cmd.Start()
				live[i] = cmd
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				_ = cmd.Wait()
				mu.Lock()
				delete(live, i)
				mu.Unlock()
				if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() {
					t.Errorf("a worker ended by itself: %s", said.String())
					return
				}
			}
		})
	}
	kill := func(i int) (killed int) {
		mu.Lock()
		defer mu.Unlock()
		if cmd := live[i]; cmd != nil && cmd.Process.Kill() == nil {
			killed++
		}
		return killed
	}
	kills, lines := 0, 0
	for !t.Failed() && time.Now().Before(deadline) && (lines < enough || kills < deaths) {
		time.Sleep(50*time.Millisecond + rand.N(200*time.Millisecond)) //nolint:forbidigo // paces the kills
		kills += kill(rand.N(workers))
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		lines = strings.Count(string(text), "\n")
	}
	over.Store(true)
	for i := range workers {
		kill(i)
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for alive := true; alive; {
		select {
		case <-done:
			alive = false
		case <-time.After(20 * time.Millisecond):
			for i := range workers { // one that was just being started
				kill(i)
			}
		}
	}

	// Two at a time would have counted to the same number, or out of order.
	log, err := os.Open(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lastN, lastToken, turns := 0, int64(0), 0
	for in := bufio.NewScanner(log); in.Scan(); turns++ {
		var n int
		var token int64
		if _, err := fmt.Sscan(in.Text(), &n, &token); err != nil {
			t.Fatalf("%q: %v", in.Text(), err)
		}
		if n <= lastN || token <= lastToken {
			t.Errorf("count %d with token %d after count %d with token %d", n, token, lastN, lastToken)
		}
		lastN, lastToken = n, token
	}
	t.Logf("%d turns, %d processes killed, last token %d", turns, kills, lastToken)
	if turns < enough/4 || kills < deaths/2 {
		t.Errorf("only %d turns and %d kills: nothing was shown", turns, kills)
	}
	intact(t, path)
}

// intact has SQLite look at every page.
func intact(t *testing.T, path string) {
	t.Helper()
	p := start(t, newHost(), path)
	var verdict string
	if err := p.db.row("PRAGMA integrity_check").scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("the file is not intact: %s %v", verdict, err)
	}
}

// holdOn holds a lock, says so, and says again on request whether it still does.
func holdOn(ctx context.Context, path string) error {
	c, err := Open(ctx, path, &pgmutex.Options{HolderID: "other", StaleAfter: scale})
	if err != nil {
		return err
	}
	h, err := c.TryAcquire(ctx, "x")
	if err != nil {
		return err
	}
	fmt.Println(h.Token())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		held := h.Held() // before anything else gets to run
		reason := pgmutex.LossReason("")
		if !held {
			<-h.Context().Done()
			var lost *pgmutex.LostError
			errors.As(context.Cause(h.Context()), &lost)
			for wait := 0; wait < 200 && lost.Reason() != pgmutex.LostTakenOver; wait++ {
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // between looks
			}
			reason = lost.Reason()
		}
		fmt.Println(held, reason, errors.Is(h.Release(ctx), pgmutex.ErrLost))
	}
	return nil
}

// holder starts a process that holds "x" and returns its token and what it says
// when asked.
func holder(t *testing.T, path string) (cmd *exec.Cmd, token int64, askIt func() string) {
	t.Helper()
	cmd = another(t, "hold", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	if _, err := fmt.Fscanln(lines, &token); err != nil {
		t.Fatal(err)
	}
	return cmd, token, func() string {
		t.Helper()
		fmt.Fprintln(in)
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
}

func TestKilledHolderIsReplacedAtTheFirstTryAfterItsPromise(t *testing.T) {
	path, ctx := store(t), context.Background()
	cmd, token, _ := holder(t, path)
	c := open(t, path, nil)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_, err := c.TryAcquire(ctx, "x")
	var held *pgmutex.HeldError
	if !errors.As(err, &held) || held.Holder != "other" || held.Remaining <= 0 || held.Remaining > scale {
		t.Fatalf("right after the kill: %v (%+v)", err, held)
	}
	time.Sleep(time.Until(killed.Add(held.Remaining + 20*time.Millisecond))) //nolint:forbidigo // the time that was told is what is tested
	h, err := c.TryAcquire(ctx, "x")
	if err != nil {
		t.Fatalf("%v after the kill: %v", time.Since(killed), err)
	}
	if h.Token() <= token {
		t.Errorf("token %d after %d", h.Token(), token)
	}
}

func TestStoppedHolderKnowsAtOnceWhenItGoesOn(t *testing.T) {
	path, ctx := store(t), context.Background()
	cmd, _, askIt := holder(t, path)
	c := open(t, path, nil)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(ctx, 10*scale)
	defer cancel()
	h, err := c.Acquire(wait, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got, want := askIt(), "false taken over true"; got != want {
		t.Errorf("the stopped holder says %q, want %q", got, want)
	}
	if !h.Held() {
		t.Error("its release ended the successor's hold")
	}
	if err := h.Heartbeat(ctx); err != nil {
		t.Errorf("its release removed the successor's row: %v", err)
	}
}

func openOnly(ctx context.Context, path string) error {
	c, err := Open(ctx, path, nil)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("permission: %w", err)
		}
		return err
	}
	return c.Close(ctx)
}

func TestManyFirstStartsAtOnce(t *testing.T) {
	for range 5 {
		path := store(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if out, err := another(t, "open", path).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wg.Wait()
		intact(t, path)
	}
}

func TestKilledWhileMakingTheStore(t *testing.T) {
	killed := 0
	for range 25 {
		path := store(t)
		var wg sync.WaitGroup
		for range 2 {
			cmd := another(t, "open", path)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				time.Sleep(rand.N(30 * time.Millisecond)) //nolint:forbidigo // at any point of the opening
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
		}
		wg.Wait()
		if _, err := os.Stat(path); err == nil {
			killed++
		}
		intact(t, path)
	}
	t.Logf("%d of 25 had begun", killed)
}

func TestFilesWithoutRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("has to start a process of another user")
	}
	dir := t.TempDir()
	// The way there has to be open to the other user, and the test binary too.
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err == nil && info.Mode()&0o005 != 0o005 && strings.HasPrefix(d, os.TempDir()+"/") {
			if err := os.Chmod(d, info.Mode()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	exe = filepath.Join(dir, "test")
	if err := os.WriteFile(exe, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(path string) string {
		t.Helper()
		cmd := another(t, "open", path)
		cmd.Path = exe
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: opened", path)
		}
		return string(out)
	}
	says := func(out string, words ...string) {
		t.Helper()
		mention(t, errors.New(out), append(words, "permission:")...)
	}

	path := filepath.Join(dir, "locks.db")
	says(run(path), path) // cannot be created
	start(t, newHost(), path).Close(context.Background())
	says(run(path), path, "not writable") // cannot even be read
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	says(run(path), path, "not writable")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	says(run(path), path, "directory") // no room for the other files
}
