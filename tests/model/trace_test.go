package model

import (
	"fmt"
	"slices"
	"strings"
)

// label says what happened, for the trace.
type label struct {
	what string
	args [2]int
}

// naming formats the label with names for the terms.
func (l label) naming(names map[term]string) string {
	args := make([]any, strings.Count(l.what, "%"))
	for i := range args {
		args[i] = arg{l.args[i], names}
	}
	return fmt.Sprintf(l.what, args...)
}

// arg is a term to %v, a client to %c and a number to %d.
type arg struct {
	n     int
	names map[term]string
}

func (a arg) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'c':
		fmt.Fprintf(f, "%c", a.n)
	case verb == 'd':
		fmt.Fprintf(f, "%+d", a.n)
	case a.names[term(a.n)] != "":
		fmt.Fprint(f, a.names[term(a.n)])
	default:
		fmt.Fprint(f, term(a.n))
	}
}

// The beginnings of labels that a trace looks at.
const (
	ticks = "a tick passes"
	asks  = "%v asks for the lock"
)

// trace tells the story that ends with the move last from state i.
func (m *setup) trace(all []state, from []int32, i int32, last move) []string {
	var path []int32
	for ; i > 0; i = from[i] {
		path = append(path, i)
	}
	slices.Reverse(path)
	goal := last.next
	goal.canonical(m.alike)

	var lines []string
	now, names, taken := 0, map[term]string{}, [clients]int{}
	at := all[0]
	for n := 0; n <= len(path); n++ {
		to := goal
		if n < len(path) {
			to = all[path[n]]
		}
		at = m.towards(at, to, func(l label) {
			if t := term(l.args[0]); strings.HasPrefix(l.what, asks) {
				taken[t.client()]++
				names[t] = fmt.Sprintf("%c%d", 'a'+t.client(), taken[t.client()])
			}
			lines = append(lines, fmt.Sprintf("tick %d: %s", now, l.naming(names)))
			now += strings.Count(l.what, ticks)
		})
	}
	return lines
}

// untold stands for a move that was not found again, since two states that only
// differ in names may be told apart after it.
const untold = "…"

// towards makes the move from at after which the state is the same as to, but
// for names. It does not change the names of at, so that a story keeps them.
func (m *setup) towards(at, to state, tell func(label)) state {
	for _, mv := range m.moves(&at, nil) {
		next := mv.next
		next.canonical(m.alike)
		if next == to {
			tell(mv.label)
			mv.next.renumber()
			return mv.next
		}
	}
	tell(label{what: untold})
	return to
}
