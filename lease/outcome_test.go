package lease

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestAReplyThatIsLostIsUnknown(t *testing.T) {
	dsn := database(t, nil)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	c := start(t, proxy.DSN(dsn), nil)
	c.drop(c.take(request("warm"))) // the statements are prepared
	proxy.CutAfter(faultconn.CommandComplete("INSERT"))
	r := request("job")
	a := c.try(r)
	if a.Outcome != engine.Unknown || a.Err == nil {
		t.Fatalf("acquire: %+v", a)
	}
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock WHERE instance_id = $1", r.Term.ID); n != 1 {
		t.Fatalf("the row was not written, so this shows nothing")
	}
	// The client's own next attempt is not kept out by its ghost.
	next := request("job")
	next.Own = []string{r.Term.ID}
	term := c.take(next)

	// A renewal is repeated, where it can be; without an answer it says nothing, and
	// the next one tells.
	c.renew(term)
	for _, refuse := range []bool{false, true} {
		cut := proxy.CutAfter(faultconn.CommandComplete("SELECT"))
		proxy.Refuse(refuse)
		s := c.renew(term)
		<-cut.Sprung()
		if refuse != (s.Health == engine.Unclear) || refuse != (s.Err != nil) {
			t.Errorf("renewal: %+v", s)
		}
		proxy.Refuse(false)
		if s := c.renew(term); s.Health != engine.Held {
			t.Errorf("second renewal: %+v", s)
		}
	}
	// Nor does a release; repeating it is harmless.
	proxy.CutAfter(faultconn.CommandComplete("SELECT"))
	if r := c.release(term); r.Outcome != engine.Unconfirmed || r.Err == nil {
		t.Errorf("release: %+v", r)
	}
	if r := c.release(term); r.Outcome != engine.Absent || r.Err != nil {
		t.Errorf("second release: %+v", r)
	}
}

func TestWhatWasNeverSentFailed(t *testing.T) {
	dsn := database(t, nil)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	c := start(t, proxy.DSN(dsn), nil)
	proxy.Refuse(true)
	proxy.Cut()
	if a := c.try(request("job")); a.Outcome != engine.Failed || a.Err == nil {
		t.Errorf("no connection: %+v", a)
	}
	proxy.Refuse(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := c.Acquire(ctx, []engine.Request{request("job")})[0]; a.Outcome != engine.Failed || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("ended context: %+v", a)
	}
	c.take(request("job"))
}

func TestARowThatIsLockedIsBusy(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	term := c.take(request("job"))
	age(t, dsn, "job", time.Hour)
	stranger := begin(t, dsn)
	pgtest.Exec(t, stranger, "SELECT 1 FROM mutex_lock FOR UPDATE")
	if a := c.busy(request("job")); a.Err != nil {
		t.Errorf("%+v", a)
	}
	if a := c.busy(waiting("job")); a.RetryIn <= 0 {
		t.Errorf("a waiter is not told when to come again: %+v", a)
	}
	if s := c.renew(term); s.Health != engine.Unclear {
		t.Errorf("renewal: %+v", s)
	}
	pgtest.Must(t, stranger.Rollback(t.Context()))
	// An insertion that is not committed.
	pgtest.Exec(t, dsn, "DELETE FROM mutex_lock")
	stranger = begin(t, dsn)
	pgtest.Exec(t, stranger, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'x', now(), now())")
	if a := c.busy(request("job")); a.Err != nil || a.Holder != nil {
		t.Errorf("%+v", a)
	}
	pgtest.Must(t, stranger.Rollback(t.Context()))
	c.take(request("job"))
}

// An attempt that was sent waits for a locked row once: what comes after that asks who
// holds the name.
func TestASentAttemptWaitsForALockedRowOnce(t *testing.T) {
	dsn := database(t, nil)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	holder, c := start(t, dsn, nil), start(t, proxy.DSN(dsn), nil)
	term := holder.take(request("job"))
	stranger := begin(t, dsn)
	pgtest.Exec(t, stranger, "UPDATE mutex_lock SET last_heartbeat = clock_timestamp()")
	c.drop(c.take(request("warm"))) // insert.sql is prepared
	before := proxy.Counts()
	s := c.Send(request("job"))
	if s == nil {
		t.Fatal("cannot be sent")
	}
	if s.Await(t.Context()) {
		t.Error("nothing more is needed")
	}
	if a := s.Answer(t.Context()); a.Outcome != engine.Busy || a.Holder == nil || a.Holder.ID != term.ID {
		t.Errorf("%+v", a)
	}
	if n := proxy.Counts().Since(before).Bind; n != 2 {
		t.Errorf("%d statements instead of insert.sql and acquire.sql", n)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	dsn := database(t, nil)
	pgtest.Shared(t).Role(t, "refused", "secret")
	script, err := SQL(nil, "refused")
	pgtest.Must(t, err)
	pgtest.Exec(t, dsn, script)
	name := pgtest.One[string](t, dsn, "SELECT current_database()::text")
	c := start(t, pgtest.Shared(t).PasswordDSN(name, "refused", "secret"), nil)
	term := c.take(request("held"))
	for _, step := range []struct{ right, object string }{
		{"UPDATE", "mutex_lock"}, {"DELETE", "mutex_lock"}, {"INSERT", "mutex_lock"},
		{"SELECT", "mutex_lock_waiter"}, {"USAGE, UPDATE", "SEQUENCE mutex_lock_token"},
	} {
		pgtest.Exec(t, dsn, "REVOKE "+step.right+" ON "+step.object+" FROM refused")
		var err error
		switch {
		case step.right == "DELETE":
			err = c.release(term).Err
		case step.right == "UPDATE":
			err = c.renew(term).Err
		default:
			a := c.try(request("job"))
			if a.Outcome != engine.Refused {
				t.Errorf("without %s on %s: outcome %d, %v", step.right, step.object, a.Outcome, a.Err)
			}
			err = a.Err
		}
		words := []string{"GRANT", step.right, "refused"}
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("without %s on %s: %v", step.right, step.object, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("without %s on %s: %q is not in: %v", step.right, step.object, w, err)
			}
		}
		pgtest.Exec(t, dsn, script)
	}

	pgtest.Exec(t, dsn, "ALTER ROLE refused SET default_transaction_read_only = on")
	readOnly := start(t, pgtest.Shared(t).PasswordDSN(name, "refused", "secret"), nil)
	if a := readOnly.try(request("job")); a.Outcome != engine.Refused || !errors.Is(a.Err, errReadOnly) {
		t.Errorf("read-only: %+v", a)
	}
	if s := readOnly.renew(term); s.Health != engine.Unclear || s.Reason != engine.LostReadOnly {
		t.Errorf("read-only renewal: %+v", s)
	}
}

func TestStartAndClose(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	eng, err := New(dsn, nil)
	pgtest.Must(t, err)
	sink := newSink()
	if a := eng.Acquire(t.Context(), []engine.Request{request("job")})[0]; a.Outcome != engine.Failed {
		t.Errorf("before Start: %+v", a)
	}
	err = eng.Start(t.Context(), sink)
	if err == nil || !strings.Contains(err.Error(), "pgmutex init") {
		t.Errorf("without tables: %v", err)
	}
	pgtest.Must(t, Migrate(t.Context(), dsn, nil))
	pgtest.Must(t, eng.Start(t.Context(), sink)) // may be repeated
	if err := eng.Start(t.Context(), sink); err == nil {
		t.Error("started twice")
	}
	pgtest.Must(t, eng.Close(t.Context()))
	pgtest.Must(t, eng.Close(t.Context()))
	if a := eng.Acquire(t.Context(), []engine.Request{request("job")})[0]; a.Outcome != engine.Failed {
		t.Errorf("after Close: %+v", a)
	}
}
