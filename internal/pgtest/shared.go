package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

var shared struct {
	mu     sync.Mutex
	server *Server
	err    error
}

// Shared returns the server that all tests of the process use, starting it the
// first time. It cannot be stopped or restarted by a test, and it ends with the
// process. When it could not be started, every test that asks fails.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if shared.server, shared.err = Run(ctx, Options{Progress: progress(t.Log)}); shared.err == nil {
			shared.server.shared = true
		}
	}
	if shared.err != nil {
		t.Fatalf("start PostgreSQL: %v", shared.err)
	}
	return shared.server
}

// New returns a server of the test's own, ended when the test is over.
func New(t testing.TB, opts Options) *Server {
	t.Helper()
	if opts.Progress == nil {
		opts.Progress = progress(t.Log)
	}
	s, err := Run(t.Context(), opts)
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	closeAfter(t, s)
	return s
}

// closeAfter ends s with the test and shows a failed test the server's log.
func closeAfter(t testing.TB, s *Server) {
	t.Cleanup(func() {
		s.reportLog(t, 0, "")
		if err := s.Close(); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
}

// Main is for TestMain: it runs the tests, ends the shared server, and exits.
// Without it the watchdog ends the server a moment after the process.
func Main(m *testing.M) {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "stop PostgreSQL: %v\n", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
