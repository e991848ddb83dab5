package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// BenchmarkCycle alternates one acquire and release with a raw INSERT and DELETE
// through pgx, since separate runs scatter, and reports the ratio of the medians.
func BenchmarkCycle(b *testing.B) {
	dsn := pgtest.New(b, pgtest.Options{Durable: true}).Database(b)
	pgtest.Must(b, Migrate(b.Context(), dsn, nil))
	c := start(b, dsn, nil)
	conn := pgtest.Conn(b, dsn)
	pgtest.Exec(b, conn, "CREATE TABLE raw (LIKE mutex_lock INCLUDING ALL)")
	var ours, raw []time.Duration
	for b.Loop() {
		began := time.Now()
		c.drop(c.take(request("job")))
		between := time.Now()
		pgtest.Exec(b, conn, "INSERT INTO raw (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ($1, $2, now(), now())", "job", "x")
		pgtest.Exec(b, conn, "DELETE FROM raw WHERE lock_name = $1 AND instance_id = $2", "job", "x")
		ours, raw = append(ours, between.Sub(began)), append(raw, time.Since(between))
	}
	report(b, ours, raw)
}

// BenchmarkBusy alternates a try on a lock that is held with a round trip that
// does nothing.
func BenchmarkBusy(b *testing.B) {
	dsn := database(b, nil)
	c := start(b, dsn, nil)
	c.take(request("job"))
	conn := pgtest.Conn(b, dsn)
	var ours, raw []time.Duration
	for b.Loop() {
		began := time.Now()
		c.busy(request("job"))
		between := time.Now()
		pgtest.Exec(b, conn, "SELECT 1")
		ours, raw = append(ours, between.Sub(began)), append(raw, time.Since(between))
	}
	report(b, ours, raw)
}

// BenchmarkRenewBatch alternates the renewal of 10,000 terms with a plain UPDATE
// of as many rows.
func BenchmarkRenewBatch(b *testing.B) {
	dsn := database(b, nil)
	c := start(b, dsn, nil)
	conn := pgtest.Conn(b, dsn)
	terms := manyTerms(b, conn, 10_000)
	pgtest.Exec(b, conn, "CREATE TABLE raw (LIKE mutex_lock INCLUDING ALL) WITH (fillfactor = 50)")
	pgtest.Exec(b, conn, "INSERT INTO raw SELECT * FROM mutex_lock")
	pgtest.Exec(b, conn, "ANALYZE")
	var ours, raw []time.Duration
	for b.Loop() {
		began := time.Now()
		for _, s := range c.Renew(b.Context(), terms) {
			if s.Health != engine.Held {
				b.Fatalf("%+v", s)
			}
		}
		between := time.Now()
		pgtest.Exec(b, conn, "UPDATE raw SET last_heartbeat = clock_timestamp()")
		ours, raw = append(ours, between.Sub(began)), append(raw, time.Since(between))
	}
	report(b, ours, raw)
}

func report(b *testing.B, ours, raw []time.Duration) {
	slices.Sort(ours)
	slices.Sort(raw)
	o, r := ours[len(ours)/2], raw[len(raw)/2]
	b.ReportMetric(float64(o.Microseconds()), "µs/ours")
	b.ReportMetric(float64(r.Microseconds()), "µs/raw")
	b.ReportMetric(float64(o)/float64(r), "ratio")
}

// BenchmarkHandOver alternates the time from the call of release to the grant of
// a waiter in another client with one raw commit.
func BenchmarkHandOver(b *testing.B) {
	dsn := pgtest.New(b, pgtest.Options{Durable: true}).Database(b)
	pgtest.Must(b, Migrate(b.Context(), dsn, nil))
	one, two := start(b, dsn, nil), start(b, dsn, nil)
	conn := pgtest.Conn(b, dsn)
	pgtest.Exec(b, conn, "CREATE TABLE raw (n int); INSERT INTO raw VALUES (1)")
	term := one.take(request("job"))
	var ours, raw []time.Duration
	for b.Loop() {
		two.listening("job")
		for len(two.sink.news) > 0 {
			<-two.sink.news
		}
		began := time.Now()
		one.drop(term)
		two.sink.await(b, "job")
		term = two.take(waiting("job"))
		between := time.Now()
		pgtest.Exec(b, conn, "UPDATE raw SET n = n + 1")
		ours, raw = append(ours, between.Sub(began)), append(raw, time.Since(between))
		one, two = two, one
	}
	report(b, ours, raw)
}
