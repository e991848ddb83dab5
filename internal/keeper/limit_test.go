package keeper

import (
	"testing"
	"testing/synctest"
	"time"
)

// Calls of a moment share the context of their length, whatever other lengths come in
// between, and lengths that no longer come are forgotten.
func TestALimitIsSharedByAllOfItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit{parent: t.Context()}
		short, long := l.within(trusted), l.within(stale)
		for range 3 {
			if l.within(trusted) != short || l.within(stale) != long {
				t.Fatal("another context for the same moment")
			}
		}
		time.Sleep(trusted / 16)
		if l.within(trusted) == short || l.within(stale) != long {
			t.Error("each is handed out for a sixteenth of its own length")
		}
		for i := range 3 * manyLimits {
			l.within(time.Minute + time.Duration(i))
			if n := len(l.all); n > manyLimits {
				t.Fatalf("%d contexts are kept", n)
			}
		}
	})
}
