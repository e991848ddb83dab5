package enginetest

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pgmutex/pgmutex"
)

var nameTests = []test{
	{
		name: "BadNames",
		rule: "A name that breaks a rule is refused before anything is sent, by CheckName and by every method alike, and is never taken for a held lock.",
		run: func(w *world) {
			a := w.client("a")
			for _, name := range []string{"", "nul\x00", "tab\t", "new\nline", "\x7f", "c1\u0085", "bad\xff", "\xed\xa0\x80"} {
				want := a.CheckName(name)
				if want == nil {
					w.Errorf("CheckName(%q) is nil", name)
					continue
				}
				_, try := a.TryAcquire(w.Context(), name)
				_, acquire := a.Acquire(w.Context(), name)
				for _, err := range []error{try, acquire, a.Do(w.Context(), name, never(w))} {
					w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown, pgmutex.ErrNotHeld, errors.ErrUnsupported)
					var e *pgmutex.AcquireError
					if !errors.As(err, &e) {
						w.Errorf("%q: want an *AcquireError, got %v", name, err)
						continue
					}
					equal(w, "name", e.Name, name)
					w.check(strings.Contains(want.Error(), e.Reason), "reason %q, CheckName says %q", e.Reason, want)
				}
				w.check(!a.IsHeld(name), "%q is held", name)
				w.check(a.Release(w.Context(), name) != nil, "%q was released", name)
			}
		},
	},
	{
		name: "GoodNames",
		rule: "Every other name works as it is, and names that differ in anything are different locks.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			names := []string{
				"x", "X", "x ", " x", "x y", `x"y`, "x'y", `x\y`, "x%y", "x_y", "x;--", "$1", "a/b", "/", "~", "a~b",
				"größe", "gro\u0308ße", "锁", "\U0001f512", "\u200b", "{}", "NULL", strings.Repeat("n", 60),
			}
			for i, name := range names {
				w.must(a.CheckName(name))
				h := w.take(a, name)
				equal(w, "name", h.Info().Name, name)
				equal(w, "id", h.Info().ID, pgmutex.AdvisoryID(name))
				equal(w, "holds", a.HeldCount(), i+1)
			}
			for _, name := range names {
				w.busy(b, name)
				w.must(a.Release(w.Context(), name))
				w.release(w.take(b, name))
			}
		},
	},
	{
		name: "LongNames",
		rule: "The longest name is taken, waited for and handed over like any other; one more character is refused by an error that states the limit and the engine.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			limit := longest(a.Client, "x")
			if limit == 0 {
				w.Skip("the engine has no limit")
			}
			for _, unit := range []string{"x", "ß", "\U0001f512"} {
				n := longest(a.Client, unit)
				w.check(n == limit || n == limit/len(unit), "%d times %q, %d times %q", n, unit, limit, "x")
				name := strings.Repeat(unit, n)
				h := w.take(a, name)
				waiter := w.waiting(w.Context(), b, name)
				w.release(h)
				got := w.granted(waiter, "b")
				equal(w, "name", got.Info().Name, name)
				w.release(got)

				_, err := a.TryAcquire(w.Context(), name+unit)
				w.check(err != nil, "%d times %q was accepted", n+1, unit)
				w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
				w.check(mentions(err, fmt.Sprint(limit)) && mentions(err, h.Info().Engine), "the limit and the engine are not named: %v", err)
			}
			c := w.clientWith("c", pgmutex.Options{Namespace: "space"})
			equal(w, "limit with a namespace", longest(c.Client, "x"), limit-len("space/"))
		},
	},
	{
		name: "Namespace",
		rule: "A namespace stands before the name, in the store and in the id, and is never shown to its own client.",
		run: func(w *world) {
			jobs := w.clientWith("jobs", pgmutex.Options{Namespace: "jobs"})
			other := w.clientWith("other", pgmutex.Options{Namespace: "other"})
			bare := w.client("bare")
			h := w.take(jobs, "x")
			equal(w, "name", h.Info().Name, "x")
			equal(w, "id", h.Info().ID, pgmutex.AdvisoryID("jobs/x"))
			w.check(jobs.IsHeld("x") && !jobs.IsHeld("jobs/x"), "IsHeld does not go by the client's own names")
			w.release(w.take(bare, "x"))
			w.release(w.take(other, "x"))
			equal(w, "name of the held lock", w.busy(bare, "jobs/x").Name, "jobs/x")
			equal(w, "name of the held lock", w.busy(jobs, "x").Name, "x")
			if w.can(Inspect) {
				w.take(other, "y")
				equal(w, "locks of jobs", names(w, jobs), "x")
				equal(w, "locks of all", names(w, bare), "jobs/x other/y")
				status := w.inspect(bare, "jobs/x")
				equal(w, "holder", status.Holder, "jobs")
				equal(w, "id", status.ID, h.Info().ID)
			}
			w.release(h)
			w.release(w.take(bare, "jobs/x"))
		},
	},
	{
		name: "IDs",
		rule: "The id of a name is the first eight bytes of its SHA-256, big-endian, with the top bit cleared, in every engine: the one that the Python lock manager derives.",
		run: func(w *world) {
			a := w.client("a")
			for name, id := range map[string]int64{
				"a":                     5374906597990186442,
				"nightly-report":        7440995589958059143,
				"cutover:tenant-123":    7696161359070260854,
				"jobs/nightly-report":   622834153240644740,
				"größe":                 6004321291940114431,
				"锁":                     5720408396146822570,
				strings.Repeat("x", 64): 8998474179529729792,
				migrationKey:            7456848863486897745,
			} {
				equal(w, fmt.Sprintf("AdvisoryID(%q)", name), pgmutex.AdvisoryID(name), id)
				if a.CheckName(name) == nil {
					h := w.take(a, name)
					equal(w, fmt.Sprintf("id of %q", name), h.Info().ID, id)
					w.release(h)
				}
			}
			equal(w, "AdvisoryID of nothing", pgmutex.AdvisoryID(""), 7183457195969485844)
			tenant := [16]byte{0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x12, 0xd3, 0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0x00}
			equal(w, "MigrationKey", pgmutex.MigrationKey(tenant, ""), migrationKey)
			equal(w, "MigrationKey", pgmutex.MigrationKey(tenant, "migration"), migrationKey)
			equal(w, "MigrationKey", pgmutex.MigrationKey(tenant, "cutover"), "cutover:123e4567-e89b-12d3-a456-426614174000")
			key := pgmutex.MigrationKey([16]byte{0xAB, 15: 0xFF}, "")
			equal(w, "MigrationKey", key, "migration:ab000000-0000-0000-0000-0000000000ff")
			w.release(w.take(a, key))
		},
	},
}

const migrationKey = "migration:123e4567-e89b-12d3-a456-426614174000"

// longest returns how often unit may be repeated in a name; 0 for without end.
func longest(c *pgmutex.Client, unit string) int {
	const enough = 100_000
	low, high := 0, enough // low is accepted or 0, high is refused
	if c.CheckName(strings.Repeat(unit, enough)) == nil {
		return 0
	}
	for high-low > 1 {
		if n := (low + high) / 2; c.CheckName(strings.Repeat(unit, n)) == nil {
			low = n
		} else {
			high = n
		}
	}
	return low
}

// names lists the locks that a client sees.
func names(w *world, c *client) string {
	w.Helper()
	var found []string
	for s, err := range c.List(w.Context()) {
		w.must(err)
		found = append(found, s.Name)
		w.check(utf8.ValidString(s.Name), "name %q", s.Name)
	}
	return strings.Join(found, " ")
}
