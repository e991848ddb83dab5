package faults

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// intervals is the checker of beliefs (I1) and tokens (I2). It returns a line
// for each violation, an overlap of no more than allowed being none, and the
// longest overlap.
func intervals(calls []call, allowed time.Duration) (overlaps, reversals []string, longest time.Duration) {
	beliefs := map[string][]call{}
	for _, c := range calls {
		if c.Op == "belief" {
			beliefs[c.Name] = append(beliefs[c.Name], c)
		}
	}
	for name, list := range beliefs {
		slices.SortFunc(list, func(a, b call) int { return cmp.Compare(a.Start, b.Start) })
		var last call // the belief that reaches furthest so far
		highest := int64(0)
		for i, b := range list {
			if i > 0 && b.Start < last.End {
				both := min(last.End, b.End) - b.Start
				longest = max(longest, both)
				if allowed == 0 || both > allowed {
					overlaps = append(overlaps, fmt.Sprintf("%q: %s (token %d) and %s (token %d) both held it for %v",
						name, last.Client, last.Token, b.Client, b.Token, both))
				}
			}
			if b.Token <= highest {
				reversals = append(reversals, fmt.Sprintf("%q: token %d of %s after %d", name, b.Token, b.Client, highest))
			}
			highest = max(highest, b.Token)
			if i == 0 || b.End > last.End {
				last = b
			}
		}
	}
	return overlaps, reversals, longest
}

// What porcupine is told: grants, and the frees that belong to them.
type (
	step  struct{ free bool }
	seen  struct{ token int64 } // 0: not granted, or unknown
	state struct {
		held    bool
		token   int64
		highest int64
	}
)

// model says what a lock may answer. An attempt without a handle may have been
// granted and taken back, so it is always possible and changes nothing.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		now, token := s.(state), out.(seen).token
		switch {
		case in.(step).free:
			return now.held && now.token == token, state{highest: now.highest}
		case token == 0:
			return true, now
		}
		return !now.held && token > now.highest, state{held: true, token: token, highest: token}
	},
	DescribeOperation: func(in, out any) string {
		if in.(step).free {
			return fmt.Sprintf("free %d", out.(seen).token)
		}
		return fmt.Sprintf("acquire -> %d", out.(seen).token)
	},
	DescribeState: func(s any) string { return fmt.Sprintf("%+v", s.(state)) },
}

// linearizable asks porcupine about each lock and leaves a picture of the first
// that has no explanation. A hold may be over before its client knows, by what is
// allowed.
func linearizable(t testing.TB, calls []call, allowed time.Duration) {
	t.Helper()
	locks := map[string][]porcupine.Operation{}
	clients := map[string]int{}
	for _, c := range calls {
		id, ok := clients[c.Client]
		if !ok {
			id = len(clients)
			clients[c.Client] = id
		}
		op := porcupine.Operation{ClientId: id, Call: int64(c.Start), Return: int64(c.End)}
		switch {
		case c.Op == "acquire" && c.Outcome == "granted":
			op.Input, op.Output = step{}, seen{c.Token}
		case c.Op == "acquire" && c.Outcome == "unknown":
			op.Input, op.Output = step{}, seen{}
		case c.Op == "belief":
			op.Input, op.Output = step{free: true}, seen{c.Token}
			op.Call, op.Return = int64(max(c.Start, c.End-allowed)), int64(max(c.Over, c.End))
		default:
			continue
		}
		locks[c.Name] = append(locks[c.Name], op)
	}
	for name, ops := range locks {
		result, info := porcupine.CheckOperationsVerbose(model, ops, 20*time.Second)
		if result == porcupine.Ok {
			continue
		}
		t.Errorf("porcupine about %q: %s", name, result)
		path := filepath.Join(t.ArtifactDir(), "porcupine.html")
		f, err := os.Create(path)
		if err == nil {
			err = porcupine.Visualize(model, info, f)
			_ = f.Close()
		}
		t.Logf("picture: %s, %v", path, err)
		return
	}
}

// The checkers are checked: each violation, made by hand, is found.
func TestCheckersFindViolations(t *testing.T) {
	t.Parallel()
	grant := func(client string, token int64, from, until time.Duration) []call {
		return []call{
			{Op: "acquire", Client: client, Name: "job", Start: from - 5, End: from, Outcome: "granted", Token: token},
			{Op: "belief", Client: client, Name: "job", Start: from, End: until, Over: until + 5, Token: token},
		}
	}
	for _, c := range []struct {
		name                string
		calls               []call
		overlaps, reversals int
		legal               bool
	}{
		{"one after the other", slices.Concat(grant("a", 1, 10, 20), grant("b", 2, 30, 40)), 0, 0, true},
		{"granted while the release is on its way", slices.Concat(grant("a", 1, 10, 20), grant("b", 2, 24, 40)), 0, 0, true},
		{"both at once", slices.Concat(grant("a", 1, 10, 20), grant("b", 2, 15, 40)), 1, 0, false},
		{"one inside a third", slices.Concat(grant("a", 1, 10, 50), grant("b", 2, 20, 30), grant("c", 3, 40, 60)), 2, 0, false},
		{"tokens fall", slices.Concat(grant("a", 2, 10, 20), grant("b", 1, 30, 40)), 0, 1, false},
		{"one token twice", slices.Concat(grant("a", 1, 10, 20), grant("b", 1, 30, 40)), 0, 1, false},
	} {
		overlaps, reversals, _ := intervals(c.calls, 0)
		if len(overlaps) != c.overlaps || len(reversals) != c.reversals {
			t.Errorf("%s: %q, %q", c.name, overlaps, reversals)
		}
		var ops []porcupine.Operation
		for i, k := range c.calls {
			op := porcupine.Operation{ClientId: i, Input: step{}, Call: int64(k.Start), Output: seen{k.Token}, Return: int64(k.End)}
			if k.Op == "belief" {
				op.Input, op.Call, op.Return = step{free: true}, int64(k.End), int64(k.Over)
			}
			ops = append(ops, op)
		}
		if got := porcupine.CheckOperations(model, ops); got != c.legal {
			t.Errorf("%s: porcupine says %v", c.name, got)
		}
	}
	both := slices.Concat(grant("a", 1, 10, 20), grant("b", 2, 15, 40))
	for allowed, want := range map[time.Duration]int{4: 1, 5: 0} {
		if overlaps, _, longest := intervals(both, allowed); len(overlaps) != want || longest != 5 {
			t.Errorf("%d allowed: %q, longest %d", allowed, overlaps, longest)
		}
	}
}
