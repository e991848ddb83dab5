package model

import (
	"slices"
	"strings"
	"testing"
)

// most is a limit on states, so that a change that makes the model grow is told
// instead of filling the memory.
const most = 2_000_000

// TestSound explores every state of the protocol under each kind of fault.
func TestSound(t *testing.T) {
	seen := make(chan map[string]bool, len(sound()))
	t.Run("setups", func(t *testing.T) {
		for _, m := range sound() {
			if quick {
				m.strays = false
			}
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				f, err := m.search(most)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states, %d moves deep", f.states, f.depth)
				if f.broken != 0 {
					t.Errorf("broken: %v\n%s", f.broken, strings.Join(f.trace, "\n"))
				}
				seen <- f.seen
			})
		}
	})
	close(seen)
	// A model in which nothing goes wrong proves nothing.
	happened := map[string]bool{}
	for s := range seen {
		for what := range s {
			happened[what] = true
		}
	}
	for _, what := range []string{
		"the server takes the lock from %v and grants it to %v", "%v hears of its grant, too late to trust it",
		"%v hears that it has lost the lock", "%v gives up waiting for the answer", "%c crashes",
		"the row has changed since it was read for %v: once more", "%v is stale by now whatever happens, and forgotten",
	} {
		if !happened[what] {
			t.Errorf("vacuous: this never happened: %s", what)
		}
	}
}

// TestBroken finds the shortest story in which each bug breaks a promise.
func TestBroken(t *testing.T) { refuted(t, broken()) }

// TestNeeded does the same for each of the assumptions.
func TestNeeded(t *testing.T) { refuted(t, needed()) }

func refuted(t *testing.T, setups []setup) {
	for _, m := range setups {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			f, err := m.search(most)
			if err != nil {
				t.Fatal(err)
			}
			if f.broken != m.check {
				t.Fatalf("%d states, and no counterexample", f.states)
			}
			if slices.ContainsFunc(f.trace, func(line string) bool { return strings.HasSuffix(line, untold) }) {
				t.Error("the story has a hole")
			}
			t.Logf("after %d states, not true any more: %v\n%s", f.states, f.broken, strings.Join(f.trace, "\n"))
		})
	}
}
