package doctor

import "fmt"

// A State says how bad a finding is.
type State string

const (
	OK      State = "ok"
	Note    State = "note"    // works, but not as well as it could, or worth knowing
	Warning State = "warning" // works today; something should be done
	Error   State = "error"   // locks cannot be taken, or not all that is promised holds
)

// rank orders the states.
func (s State) rank() int {
	return map[State]int{OK: 0, Note: 1, Warning: 2, Error: 3}[s]
}

// A Finding is one thing that was looked at. Found and Fix are one line each;
// there is a fix unless the state is OK.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
}

// Worst returns the worst state of the findings, OK where there are none.
func Worst(list []Finding) State {
	worst := OK
	for _, f := range list {
		if f.State.rank() > worst.rank() {
			worst = f.State
		}
	}
	return worst
}

// Named returns the names of the findings of a state.
func Named(list []Finding, s State) []string {
	var names []string
	for _, f := range list {
		if f.State == s {
			names = append(names, f.Name)
		}
	}
	return names
}

// report collects findings.
type report struct{ list []Finding }

func (r *report) ok(name, found string, args ...any) {
	r.list = append(r.list, Finding{Name: name, State: OK, Found: fmt.Sprintf(found, args...)})
}

// add notes something that is not as it should be. What is found and what is to
// be done are complete texts.
func (r *report) add(name string, state State, found, fix string) {
	r.list = append(r.list, Finding{Name: name, State: state, Found: found, Fix: fix})
}
