package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The order of tokens across promotions: lease/token.go and raise.sql. A token is
// right if it is above all that were granted before it, whatever the name.

const (
	promotions = 2
	step       = 8 // stands for 2^44: more than are drawn between two promotions
	drawn      = 2 // most that are drawn on one timeline
)

type tokenBug uint8

const (
	neverRaised   tokenBug = iota + 1 // every token is used
	knownTooLate                      // a token is used if its server is in order when the reply comes
	markedFirst                       // the meta row says raised before the sequence is
	raisedByOne                       // one step, however many promotions were missed
	markedForever                     // a server that was once in order is taken for any later one
)

// store is what a standby copies, from front to back.
type store struct {
	seq  int8 // the sequence's last value
	meta int8 // the timeline for which it was raised
}

type tokenState struct {
	timeline int8 // of the server that answers
	now      store
	standby  store
	draws    int8
	highest  int8 // of all that were granted
	clients  [clients]tokenClient
}

type tokenPhase uint8

const (
	resting  tokenPhase = iota
	asking              // with what it knew when it asked
	told                // of a token
	checking            // has given it back and asks for the timeline
	raising             // for the timeline that it was told
	marked              // markedFirst: and has still to raise
)

type tokenClient struct {
	known [promotions + 2]bool // servers, by their timelines, that are in order
	phase tokenPhase
	asked [promotions + 2]bool // known when it asked
	token int8
	of    int8 // the timeline that the token or the answer is of
	floor int8 // what was granted by draws before this one
	roof  int8 // and by draws after it, 0 for none
	first bool // drawn before the other client's
}

type tokenMove struct {
	what   string
	next   tokenState
	broken bool
}

// moves lists all that may happen next, in words if they are wanted.
func (bug tokenBug) moves(s tokenState, words bool, list []tokenMove) []tokenMove {
	to := func(n tokenState, format string, args ...int8) *tokenMove {
		m := tokenMove{next: n}
		if words {
			values := make([]any, len(args))
			for i, a := range args {
				values[i] = a
			}
			m.what = fmt.Sprintf(format, values...)
		}
		list = append(list, m)
		return &list[len(list)-1]
	}
	if s.standby != s.now {
		n := s
		n.standby = s.now
		to(n, "the standby has caught up")
		n = s
		n.standby.seq = s.now.seq // the sequence's record comes before the row's
		to(n, "the standby has the sequence")
	}
	if s.timeline <= promotions {
		n := s
		n.timeline, n.now, n.draws = s.timeline+1, s.standby, 0
		to(n, "the standby is promoted, to timeline %d, with token %d", n.timeline, n.now.seq)
	}
	for c := range s.clients {
		k, name := s.clients[c], int8('a'+c)
		n := s
		me, other := &n.clients[c], &n.clients[1-c]
		switch k.phase {
		case resting:
			me.phase, me.asked = asking, k.known
			to(n, "%c asks", name)
		case asking:
			if s.draws == drawn {
				continue
			}
			n.draws++
			n.now.seq++
			me.phase, me.token, me.of, me.floor, me.roof, me.first = told, n.now.seq, s.timeline, s.highest, 0, true
			if other.phase == told {
				me.first, other.first = false, true
			}
			to(n, "%c draws token %d on timeline %d", name, n.now.seq, s.timeline)
		case told:
			inOrder := k.asked[k.of]
			switch bug {
			case neverRaised:
				inOrder = true
			case knownTooLate:
				inOrder = k.known[k.of] || s.timeline == k.of && s.now.meta == k.of
			case markedForever:
				inOrder = slices.Contains(k.asked[:], true)
			}
			if !inOrder {
				me.phase, me.token, me.of, me.floor, me.roof, me.first = checking, 0, 0, 0, 0, false
				to(n, "%c gives token %d back", name, k.token)
				continue
			}
			me.phase, me.token, me.of, me.floor, me.roof, me.first = resting, 0, 0, 0, 0, false
			n.highest = max(n.highest, k.token)
			if other.phase == told {
				if k.first {
					other.floor = max(other.floor, k.token)
				} else if other.roof == 0 || k.token < other.roof {
					other.roof = k.token
				}
			}
			to(n, "%c is granted token %d", name, k.token).broken = k.token <= k.floor || k.roof > 0 && k.token >= k.roof
		case checking:
			if s.now.meta == s.timeline {
				me.phase, me.known[s.timeline] = resting, true
				to(n, "%c is told that timeline %d is in order", name, s.timeline)
				continue
			}
			me.phase, me.of = raising, s.timeline
			to(n, "%c is told that the tokens are of timeline %d, and this is %d", name, s.now.meta, s.timeline)
		case raising:
			me.phase, me.of = checking, 0
			if s.now.meta == k.of {
				to(n, "%c finds them raised for timeline %d", name, k.of)
				continue
			}
			n.now.meta = k.of
			if bug == markedFirst {
				me.phase = marked
				to(n, "%c marks timeline %d", name, k.of)
				continue
			}
			steps := max(1, k.of-s.now.meta)
			if bug == raisedByOne {
				steps = 1
			}
			n.now.seq = (s.now.seq/step + steps) * step
			to(n, "%c raises the tokens to %d for timeline %d", name, n.now.seq, k.of)
		case marked:
			me.phase = checking
			n.now.seq = (s.now.seq/step + 1) * step
			to(n, "%c raises the tokens to %d", name, n.now.seq)
		}
	}
	return list
}

// search returns the shortest story in which a token is not above an earlier one,
// nil if there is none.
func (bug tokenBug) search() (states int, story []string) {
	start := tokenState{timeline: 1, now: store{meta: 1}, standby: store{meta: 1}}
	seen := map[tokenState]int{start: 0}
	all, from, by := []tokenState{start}, []int{-1}, []int{0}
	var list []tokenMove
	for i := 0; i < len(all); i++ {
		list = bug.moves(all[i], false, list[:0])
		for n, m := range list {
			if m.broken {
				for ; i >= 0; n, i = by[i], from[i] {
					story = append(story, bug.moves(all[i], true, nil)[n].what)
				}
				slices.Reverse(story)
				return len(all), story
			}
			if _, ok := seen[m.next]; !ok {
				seen[m.next] = len(all)
				all, from, by = append(all, m.next), append(from, i), append(by, n)
			}
		}
	}
	return len(all), nil
}

// TestTokens explores two promotions, each of which may lose what was committed.
func TestTokens(t *testing.T) {
	t.Parallel()
	states, story := tokenBug(0).search()
	t.Logf("%d states", states)
	if story != nil {
		t.Errorf("a token is not above an earlier one:\n%s", strings.Join(story, "\n"))
	}
	for name, bug := range map[string]tokenBug{
		"the sequence is never raised": neverRaised, "a token from before the raise is used after it": knownTooLate,
		"marked before it is raised": markedFirst, "one step for two promotions": raisedByOne,
		"what is known of one server is held true of the next": markedForever,
	} {
		states, story := bug.search()
		if story == nil {
			t.Errorf("%s: %d states, and no counterexample", name, states)
		}
		t.Logf("%s, after %d states:\n%s", name, states, strings.Join(story, "\n"))
	}
}
