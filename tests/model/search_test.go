package model

import "fmt"

// found is what a search brought.
type found struct {
	states int
	depth  int
	broken property // of those that the setup checks; 0: none
	trace  []string
	seen   map[string]bool // what happened, by the labels' texts
}

// search visits every state that can be reached, those after fewer moves first:
// a counterexample is one of the shortest.
func (m *setup) search(limit int) (found, error) {
	start := state{calm: m.calm}
	start.canonical(m.alike)
	seen := map[state]int32{start: 0}
	all := []state{start}
	from := []int32{-1}
	depth, end := 0, 1
	happened := map[string]bool{}
	var list []move
	for i := 0; i < len(all); i++ {
		if i == end {
			depth, end = depth+1, len(all)
		}
		s := all[i]
		list = m.moves(&s, list[:0])
		for _, mv := range list {
			happened[mv.label.what] = true
			next := mv.next
			broken := (mv.broken | m.verdict(&next)) & m.check
			next.canonical(m.alike)
			if _, ok := seen[next]; !ok {
				seen[next] = int32(len(all))
				all = append(all, next)
				from = append(from, int32(i))
			}
			if broken != 0 {
				return found{states: len(all), depth: depth + 1, broken: broken, trace: m.trace(all, from, int32(i), mv)}, nil
			}
		}
		if len(all) > limit {
			return found{states: len(all), depth: depth, seen: happened}, fmt.Errorf("more than %d states", limit)
		}
	}
	return found{states: len(all), depth: depth, seen: happened}, nil
}
