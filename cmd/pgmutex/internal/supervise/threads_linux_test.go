package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if IsWatchdog() {
		Watchdog()
	}
	os.Exit(m.Run())
}

// held is a hold that lasts.
type held struct{ ctx context.Context }

func (h held) Context() context.Context { return h.ctx }
func (h held) Held() bool               { return true }
func (h held) Deadline() time.Time      { return time.Now().Add(time.Hour) }

// start runs a shell command under a hold that lasts, on a goroutine of its own.
func start(t *testing.T, script string, args ...string) <-chan Result {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan Result, 1)
	go func() {
		defer close(ended)
		signals := Listen()
		defer signals.Stop()
		r, err := Run(held{context.Background()}, Command{Path: sh, Args: append([]string{"sh", "-c", script, "sh"}, args...), Env: os.Environ()},
			Options{Signals: signals, Timing: Timing{Rest: time.Hour, KillAfter: time.Second}, Lost: func() bool { return true }})
		if err != nil {
			t.Errorf("start: %v", err)
		}
		ended <- r
	}()
	return ended
}

// killThreads ends as many threads as there are rounds: a goroutine that ends
// while it is locked to its thread takes that along.
func killThreads(rounds int) {
	var all sync.WaitGroup
	for i := range rounds {
		all.Go(func() { runtime.LockOSThread() })
		if i%20 == 19 {
			all.Wait()
		}
	}
	all.Wait()
}

// Case 18: the kernel's death signal follows the thread that started the command.
// No command dies because threads of this process come and go.
func TestThreadsComeAndGo(t *testing.T) {
	end := filepath.Join(t.TempDir(), "end")
	ended := start(t, `while [ ! -e "$1" ]; do sleep 0.02; done; exit 7`, end)
	killThreads(1000)
	select {
	case r := <-ended:
		t.Fatalf("the command ended: %+v", r)
	default:
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.Code != 7 || r.Signal != 0 {
		t.Fatalf("the command ended with %+v", r)
	}
}

// That there is no watchdog is said once.
func TestUnguarded(t *testing.T) {
	said := 0
	d := dog{
		begin: func() (int, *os.File, error) { return 0, nil, errors.New("no") },
		warn:  func(error) { said++ },
	}
	d.start()
	d.start()
	d.send("x\n")
	d.stop()
	if said != 1 {
		t.Errorf("said %d times", said)
	}
}
