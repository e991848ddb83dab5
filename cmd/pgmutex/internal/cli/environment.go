package cli

import (
	"fmt"
	"strings"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// Variables of the command's environment. What its run is nested in is carried
// along in outerVariable, a term and a lock on each line with a tab between them,
// so that a lock that is waited for is recognised as one that the command runs
// under already.
const (
	lockVariable   = "PGMUTEX_LOCK"
	tokenVariable  = "PGMUTEX_TOKEN"
	holderVariable = "PGMUTEX_HOLDER"
	termVariable   = supervise.TermVariable
	outerVariable  = supervise.OuterVariable
)

func environment(env []string, info pgmutex.Info, fullName string) []string {
	set := []string{
		lockVariable + "=" + fullName,
		holderVariable + "=" + info.Holder,
		termVariable + "=" + info.Term,
	}
	if info.Token != 0 {
		set = append(set, fmt.Sprintf("%s=%d", tokenVariable, info.Token))
	}
	var own []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case lockVariable, tokenVariable, holderVariable, termVariable, outerVariable:
		default:
			own = append(own, e)
		}
	}
	var outer []string
	for _, h := range outerHolds(env) {
		outer = append(outer, h.term+"\t"+h.lock)
	}
	if outer != nil {
		set = append(set, outerVariable+"="+strings.Join(outer, "\n"))
	}
	return append(own, set...)
}

// An outerHold is one that this process runs under.
type outerHold struct{ term, lock string }

// outerHolds returns the holds that a process with this environment runs under,
// the innermost first.
func outerHolds(env []string) []outerHold {
	var inner outerHold
	var holds []outerHold
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case termVariable:
			inner.term = value
		case lockVariable:
			inner.lock = value
		case outerVariable:
			for line := range strings.SplitSeq(value, "\n") {
				if term, lock, ok := strings.Cut(line, "\t"); ok {
					holds = append(holds, outerHold{term, lock})
				}
			}
		}
	}
	if inner.term == "" {
		return holds
	}
	return append([]outerHold{inner}, holds...)
}

// is tells whether a status of a lock shows this hold. Other sessions show no
// terms for advisory locks, only labels, as far as an application name takes
// them.
func (h outerHold) is(s pgmutex.Status, fullName string) bool {
	if s.Details[backend] == "" {
		return h.term == s.Term
	}
	i := strings.LastIndexByte(h.term, '~')
	return i > 0 && h.lock == fullName && s.Holder != "" && strings.HasPrefix(strings.Map(printable, h.term[:i]), s.Holder)
}

// printable is what the server makes of an application name.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}
