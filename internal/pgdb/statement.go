package pgdb

import "context"

// A Lane is a connection of its own, and the queue before it.
type Lane int

const (
	// Work is for everything that somebody is waiting for: acquiring,
	// releasing, looking.
	Work Lane = iota

	// Keep is for renewals, which may be executed twice, and after their caller
	// has left. It shares no connection with Work, so that a renewal never stands
	// behind a statement that is slow or stuck.
	Keep

	lanes // their number
)

// String names the lane in messages.
func (l Lane) String() string {
	switch l {
	case Work:
		return "work"
	case Keep:
		return "keep"
	}
	return "unknown"
}

// A Statement is one SQL statement in the two texts that it may need. Both take
// the same parameters and return the same columns.
//
// Behind a pooler, parameters get their types from the statement and travel as
// text: each needs a cast ($1::interval) unless its type is plain, and a map
// needs to be passed as the text of its JSON. Results are text as well, in the
// style of the session: times and intervals should be returned as numbers, since
// DateStyle and IntervalStyle are the role's.
type Statement struct {
	// Name stands for the statement in error messages.
	Name string

	// SQL is the text that can run on any connection: whatever setting the
	// statement depends on it sets for its own transaction, by
	// set_config(…, true) in its first common table expression.
	SQL string

	// Direct, if it is not empty, is the text for a connection whose session
	// already has the settings that [Settings] lists. It saves setting them each
	// time.
	Direct string
}

// text chooses the text for a connection with or without our settings.
func (s Statement) text(settings bool) string {
	if settings && s.Direct != "" {
		return s.Direct
	}
	return s.SQL
}

// A Row is one row of a result. It is valid only during the call it is passed
// to.
type Row interface {
	// Scan copies the columns into dest, which holds a pointer for each of them;
	// nil leaves one out.
	Scan(dest ...any) error

	// Session is what [Options.OnConnect] returned for the connection that the
	// row came over, nil without one.
	Session() any
}

// A Querier runs statements on one connection, in the transaction that it was
// made for. It must not be used after the function that it was passed to has
// returned, nor by two goroutines at a time.
type Querier interface {
	// Exec runs a statement and returns the number of rows that it affected.
	// Without arguments sql may hold several statements, separated by
	// semicolons; the number is then that of the last one.
	Exec(ctx context.Context, sql string, args ...any) (int64, error)

	// Query runs a statement and calls each for every row of its result. An
	// error of each ends the call and is returned.
	Query(ctx context.Context, sql string, args []any, each func(Row) error) error
}
