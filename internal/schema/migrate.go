package schema

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

//go:embed sql/create.sql
var createSQL string

const (
	// tableWait bounds how long a change stands in the queue for a table: every
	// heartbeat that comes meanwhile stands behind it.
	tableWait = 200 * time.Millisecond

	// patience is how long a change is tried for when ctx sets no earlier end.
	patience = time.Minute

	// stubborn is how often one and the same collision is answered by trying
	// again before it is taken for what it says.
	stubborn = 20
)

// Migrate makes the tables or brings them to [Version]. When nothing is missing
// it changes nothing and needs no right to create anything. It may run in many
// processes at once and while locks are held, by programs of the neighbouring
// versions or by the Python package: holders go on holding.
//
// It returns nil when the tables are as they must be. A failure leaves them as
// they were. What cannot be repaired, and a missing right, is a [*Problem].
func Migrate(ctx context.Context, db *pgdb.DB, n Names) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for collisions := 0; ; {
		f, err := inspect(ctx, db, n)
		if err != nil {
			return err
		}
		if done, err := f.settled(n); done || err != nil {
			return err
		}
		err = apply(ctx, db, n, f)
		switch {
		case err == nil:
			return markTimeline(ctx, db, n)
		case pgdb.Classify(err) == pgdb.Denied:
			return f.mayNot(n, err)
		case collided(err), pgdb.Classify(err) == pgdb.Canceled:
			// Canceled: by the role's statement_timeout, or, behind a pooler, by a
			// request that was meant for somebody else.
			collisions++
		case waited(err):
			// A table is busy; that lasts for as long as it lasts.
		default:
			return fmt.Errorf("set up the lock table %s: %w", n, err)
		}
		if collisions > stubborn {
			return fmt.Errorf("set up the lock table %s: %w", n, err)
		}
		if pauseErr := pause(ctx); pauseErr != nil {
			return fmt.Errorf("set up the lock table %s: gave up waiting: %w", n, errors.Join(pauseErr, err))
		}
	}
}

// settled reports whether there is nothing to do, or nothing that can be done.
func (f *facts) settled(n Names) (bool, error) {
	if p := f.tooNew(n); p != nil {
		return false, p
	}
	if p := f.foreign(n); p != nil {
		return false, p
	}
	if f.lacking(n) != nil {
		return false, nil
	}
	// A role that may not read the version can do no more than use what is
	// there; Verify tells it what it lacks.
	return !f.haveVersion || f.version >= Version, nil
}

// mayNot explains a refusal by the server.
func (f *facts) mayNot(n Names, err error) error {
	return &Problem{
		Table:   n.String(),
		Missing: append(f.lacking(n), "and role "+f.values["me"][""]+" may not change that ("+err.Error()+")"),
		Fix:     "run `" + initCommand(n) + "` " + f.maker(n),
		rights:  true,
	}
}

// collided reports an error that comes of somebody else's having made the same
// thing in the same moment: CREATE … IF NOT EXISTS looks and inserts in two
// steps, and its loser fails on whichever catalog index comes first.
func collided(err error) bool {
	switch pgdb.SQLState(err) {
	case "23505", "42P06", "42P07", "42701", "42710", "42P16":
		return true
	case "XX000":
		return strings.Contains(err.Error(), "tuple concurrently")
	}
	return false
}

// waited reports an error that passes.
func waited(err error) bool {
	switch pgdb.Classify(err) {
	case pgdb.RowLocked, pgdb.Retry:
		return true
	}
	return false
}

// pause waits a moment, each process another.
func pause(ctx context.Context) error {
	t := time.NewTimer(50*time.Millisecond + rand.N(150*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apply runs all statements in one transaction.
func apply(ctx context.Context, db *pgdb.DB, n Names, f *facts) error {
	return db.Script(ctx, "set up", f.statements(n)...)
}

// statements is the transaction that makes the tables out of what f shows.
func (f *facts) statements(n Names) []string {
	list := []string{
		// Only our own kind waits here, and for a whole set-up: longer than for
		// a table.
		"SET LOCAL lock_timeout = '10s'",
		"SELECT pg_catalog.pg_advisory_xact_lock(" + strconv.FormatInt(n.key(), 10) + ")",
		"SET LOCAL lock_timeout = '" + strconv.FormatInt(tableWait.Milliseconds(), 10) + "ms'",
		"SET LOCAL synchronous_commit = on",
	}
	if _, ok := f.values["schema"][""]; !ok {
		list = append(list, createSchema(n))
	}
	list = append(list, n.create()...)
	if f.has("") && !slices.Contains(f.uniques, "lock_name,locked") {
		// CREATE TABLE IF NOT EXISTS does not bring back what was dropped.
		list = append(list, "ALTER TABLE "+n.Lock+" ADD CONSTRAINT "+n.constraint(suffixUnique)+" UNIQUE (locked, lock_name)")
	}
	return list
}

func createSchema(n Names) string {
	return "CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{n.Schema}.Sanitize()
}

// create returns the statements of create.sql.
func (n Names) create() []string {
	return n.script(createSQL,
		"{{uq}}", n.constraint(suffixUnique),
		"{{chk}}", n.constraint(suffixCheck),
		"{{term}}", n.own(suffixTerm),
		"{{waiter_key}}", n.own(suffixWaiterKey),
		"{{event_key}}", n.own(suffixEventKey),
		"{{history}}", n.own(suffixHistory),
		"{{version}}", strconv.Itoa(Version),
		"{{oldest}}", strconv.Itoa(Oldest),
	)
}

// script splits an embedded file into its statements and puts the names in.
func (n Names) script(text string, more ...string) []string {
	var list []string
	names := n.Replacer(more...)
	for part := range strings.SplitSeq(text, "\n--\n") {
		// Splitting goes first: an identifier may contain anything.
		list = append(list, names.Replace(stripComments(part)))
	}
	return list
}

// key is what set-ups of the same table exclude each other by.
func (n Names) key() int64 {
	sum := sha256.Sum256([]byte("pgmutex set-up\x00" + n.Lock))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
