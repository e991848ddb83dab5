package memory

import (
	"slices"

	"github.com/pgmutex/pgmutex/engine"
)

// pastLimit is how many endings are kept at least. A store in a long benchmark
// would grow without end otherwise.
const pastLimit = 10_000

// An ending is what is kept of a hold.
type ending struct {
	engine.PastHold

	loss   engine.LossReason // what Explain says; empty if released by its holder
	lossBy string
	listed bool // in the history; else only Explain knows
}

// past is all endings, the oldest first.
type past struct {
	all  []*ending
	byID map[string]*ending
}

func (h *past) add(e ending) {
	if len(h.all) >= 2*pastLimit {
		for _, old := range h.all[:pastLimit] {
			if h.byID[old.Term] == old {
				delete(h.byID, old.Term)
			}
		}
		h.all = slices.Clone(h.all[pastLimit:])
	}
	h.all = append(h.all, &e)
	h.byID[e.Term] = &e
}

// released is the ending of a row that its holder gives back; if an operator had
// asked for that, it is the operator's doing.
func released(r *row) ending {
	past := engine.PastHold{End: engine.EndReleased, By: r.stopBy, Reason: r.stopReason}
	if r.stop {
		past.End = engine.EndForced
	}
	return ending{PastHold: past, listed: true}
}
