package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A call is one line of a history. Which fields mean something depends on Op:
//
//	acquire   Start to End, Outcome granted, held, unknown, ended or failed
//	belief    Start: the handle was there; End: the last time Held was true
//	          before the release was called; Over: by then it was certainly over
//	release   Start to End, Outcome ok, lost or failed
//	write     a guarded transaction, Outcome committed, refused, failed, unknown
//	fault     Outcome says which; Name its target
type call struct {
	Op      string        `json:"op"`
	Client  string        `json:"client,omitempty"`
	Name    string        `json:"name,omitempty"`
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Over    time.Duration `json:"over,omitempty"`
	Outcome string        `json:"outcome,omitempty"`
	Token   int64         `json:"token,omitempty"`
	Err     string        `json:"err,omitempty"`
}

// A history is what happened, in the order in which it ended.
type history struct {
	path string

	mu    sync.Mutex
	file  *os.File
	out   *bufio.Writer
	each  bool // flush after each line
	calls []call
	count map[string]int // by Op and by "Op Outcome"
}

// newHistory writes to the test's directory of artifacts, which go test keeps
// with -artifacts.
func newHistory(t testing.TB) *history {
	t.Helper()
	path := filepath.Join(t.ArtifactDir(), "history.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{path: path, file: f, out: bufio.NewWriter(f), count: map[string]int{}}
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.out.Flush(); err != nil {
			t.Errorf("history: %v", err)
		}
		if err := h.file.Close(); err != nil {
			t.Errorf("history: %v", err)
		}
	})
	return h
}

func (h *history) add(c call) {
	line, err := json.Marshal(c)
	if err != nil {
		panic(err) // plain data
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
	h.count[c.Op]++
	h.count[c.Op+" "+c.Outcome]++
	fmt.Fprintf(h.out, "%s\n", line)
	if h.each {
		_ = h.out.Flush() // whoever reads it is gone, and so will we be
	}
}

// n is how often that happened: "acquire", or "acquire granted".
func (h *history) n(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[what]
}

func (h *history) all() []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]call(nil), h.calls...)
}
