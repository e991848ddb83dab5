// Package enginetest is the contract of every lock engine as a test suite: one
// call to [Run] shows that an engine keeps it, and [Benchmarks] measures it.
//
//	func TestContract(t *testing.T) {
//		enginetest.Run(t, func(t *testing.T) enginetest.Harness { … })
//	}
//
// # What it covers
//
// Everything that package pgmutex promises whatever the engine is: exclusion
// between processes and between goroutines, acquisition in all its forms,
// waiting, loss and its signals, hooks, names and ids, closing, and what can be
// seen and done from outside. An engine's own tests are left with what is
// peculiar to it.
//
// Each case carries the rule that it checks, and prints it when it fails.
//
// # Abilities
//
// What not every engine can do is an [Ability]. A harness declares them, and
// they are checked both ways: what is claimed must work, and what is not
// claimed must be refused with errors.ErrUnsupported or be visibly absent.
// [Queue] and [Durable] are the exceptions; that something is merely not
// promised cannot be shown.
//
// # Time
//
// The suite does not depend on how fast the machine is. It asserts order,
// counts and facts; it waits for conditions, with generous bounds, and asserts
// elapsed time only from below. It may run inside a bubble of testing/synctest,
// see [Harness.Case].
package enginetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
)

// An Ability is something that an engine can do and not every engine can.
// Abilities are combined with |.
type Ability uint32

const (
	// Shared: AcquireOptions.Shared takes read locks.
	Shared Ability = 1 << iota

	// PerHoldTiming: AcquireOptions.StaleAfter is understood.
	PerHoldTiming

	// Tokens: every grant has a fencing token.
	Tokens

	// Guard: Hold.Guard works, see Harness.Transaction.
	Guard

	// Inspect: Client.List and Client.Inspect work, and so the holder is known
	// to whoever finds the lock held.
	Inspect

	// Presence: Client.List and Client.Inspect show that a lock is held, in which
	// mode, and by which session, and of other clients' holds neither the term nor
	// what their holder promised. It goes without Inspect, which shows everything.
	Presence

	// History: Client.History works.
	History

	// Force: Client.ForceRelease with ForceOptions.Now works.
	Force

	// Ask: Client.ForceRelease without ForceOptions.Now works.
	Ask

	// Queue: waiters are served first come, first served across clients.
	Queue

	// Hints: a waiter is woken by the release of another client, whatever
	// Options.PollInterval is.
	Hints

	// Durable: a hold outlives the connections of its client, and has ended for
	// its holder before anybody else is granted the lock. Without it a hold is
	// bound to a session: it ends with that, and its holder learns of it within
	// the engine's own bound.
	Durable

	// What a Faulter can do; set by Run.
	canKill
	canCut
	canHold
)

// A Harness is one fresh, empty store.
type Harness struct {
	// Abilities are what the engine claims.
	Abilities Ability

	// Scale is a StaleAfter that is short, so that waiting for it is quick, and
	// long enough for a client that renews in time never to be late on a busy
	// machine. The suite uses it and its multiples up to twenty for holds that
	// go stale, and the engine's default for all others.
	Scale time.Duration

	// Client opens another client on the store, as another process would.
	// Options are those of the case and may be nil. The suite closes the client;
	// what the harness opens beneath it is the harness's, to be closed by
	// t.Cleanup.
	Client func(t testing.TB, opts *pgmutex.Options) (*pgmutex.Client, error)

	// Transaction runs body in one transaction on the store's database and
	// commits it if body returns nil. Nil if Guard needs none.
	Transaction func(t testing.TB, body func(exec pgmutex.Exec) error) error

	// Faulter says what can be broken; its functions may be nil.
	Faulter Faulter

	// Case runs the body of a case. It may do so inside a bubble of
	// testing/synctest, and must have returned when the body has. Nil means that
	// the body is simply called.
	Case func(t *testing.T, body func(t *testing.T))

	// Workers is how many cases run at a time, each on a harness of its own.
	// Most of them spend their time waiting, so that more than the number of
	// processors is of use. Zero means one.
	Workers int
}

// A Faulter breaks the way between one client and the store. The clients are
// those that Harness.Client returned. Cases that need a function that is nil
// are not run; Run logs which.
type Faulter struct {
	// Kill makes the client vanish as kill -9 does: none of its calls arrives
	// any more, and it is told nothing.
	Kill func(t testing.TB, c *pgmutex.Client)

	// Cut breaks the client's connections, once. It may connect again.
	Cut func(t testing.TB, c *pgmutex.Client)

	// HoldReplies lets the client's requests arrive and keeps back the replies
	// until release is called, which may be done more than once. What happens to
	// a reply that nobody waits for any more is the engine's affair.
	HoldReplies func(t testing.TB, c *pgmutex.Client) (release func())
}

func (f Faulter) abilities() (a Ability) {
	if f.Kill != nil {
		a |= canKill
	}
	if f.Cut != nil {
		a |= canCut
	}
	if f.HoldReplies != nil {
		a |= canHold
	}
	return a
}

// A test is one case of the contract.
type test struct {
	name  string
	rule  string  // what must hold, in one sentence
	needs Ability // all of these
	lacks Ability // none of these
	run   func(w *world)
}

func contract() []test {
	return slices.Concat(
		exclusionTests, acquireTests, workTests, waitingTests, lineTests,
		lossTests, faultTests, alertTests, hookTests, closeTests,
		nameTests, optionTests, inspectTests, presenceTests, forceTests, sharedTests,
	)
}

// Run shows that an engine keeps the contract. NewHarness is called once for
// each case, with that case's t, and once more at the start to learn the
// abilities.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	first := newHarness(t)
	can := first.Abilities | first.Faulter.abilities()
	if first.Client == nil || first.Scale <= 0 {
		t.Fatal("enginetest: Harness.Client and Harness.Scale are required")
	}
	queue := make(chan test)
	var workers sync.WaitGroup
	for range max(first.Workers, 1) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for c := range queue {
				t.Run(c.name, func(t *testing.T) { c.runOn(t, newHarness(t)) })
			}
		}()
	}
	for _, c := range contract() {
		if missing := c.needs &^ can & (canKill | canCut | canHold); missing != 0 && c.needs&^can == missing {
			t.Logf("not run for want of faults: %s (%s)", c.name, c.rule)
		}
		if c.needs&^can == 0 && c.lacks&can == 0 {
			queue <- c
		}
	}
	close(queue)
	workers.Wait()
}

func (c test) runOn(t *testing.T, h Harness) {
	defer func() {
		if t.Failed() {
			t.Logf("the rule: %s", c.rule)
		}
	}()
	body := func(t *testing.T) { c.run(&world{T: t, h: h}) }
	if h.Case == nil {
		body(t)
		return
	}
	h.Case(t, body)
}
