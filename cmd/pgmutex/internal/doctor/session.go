package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rounds is how often a second connection is compared with the first: a pooler
// with several backends may give both another one for a while.
const rounds = 3

// pooling finds out whether the backends are ours alone. The process that
// answers is not the one of the connection's key data behind any pooler that is
// known. And two connections that are both open are answered by one process only
// if that is passed on between transactions.
func (r *reader) pooling(ctx context.Context) error {
	f := r.facts
	var err error
	if r.b, err = r.connect(ctx); err != nil {
		return err
	}
	if r.pid == r.a.PgConn().PID() {
		return nil
	}
	f.Pooling = Session
	for range rounds {
		var first, second uint32
		if err := r.a.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&first); err != nil {
			return failure("look at the pooler", err)
		}
		_, err := r.b.Exec(ctx, "BEGIN")
		var refused *pgconn.PgError
		switch {
		case errors.As(err, &refused) && !strings.HasPrefix(refused.Code, "57"): // 57: it shuts down
			f.Pooling = Statement // it refuses transactions, and nothing else
			return nil
		case err != nil:
			return failure("look at the pooler", err)
		}
		if err := r.b.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&second); err != nil {
			return failure("look at the pooler", err)
		}
		if _, err := r.b.Exec(ctx, "ROLLBACK"); err != nil {
			return failure("look at the pooler", err)
		}
		if first == second {
			f.Pooling = Transaction
			return nil
		}
	}
	return nil
}

// notify sends a notification and hears it, over two connections.
func (r *reader) notify(ctx context.Context) error {
	f := r.facts
	if f.Pooling != Direct {
		return nil // not used there
	}
	f.NotifyTried = true
	channel := "pgmutex_doctor_" + strings.ToLower(rand.Text())
	if _, err := r.b.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		f.NotifyErr = failure("LISTEN", err).Error()
		return nil
	}
	began := time.Now()
	if _, err := r.a.Exec(ctx, "SELECT pg_catalog.pg_notify($1::text, '')", channel); err != nil {
		f.NotifyErr = failure("NOTIFY", err).Error()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hearing)
	defer cancel()
	if _, err := r.b.WaitForNotification(ctx); err == nil {
		f.NotifyHeard, f.NotifyTook = true, time.Since(began)
	}
	return nil
}
