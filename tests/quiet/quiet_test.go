package quiet

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// A listener counts records by level and keeps what is above DEBUG.
type listener struct {
	mu    sync.Mutex
	debug map[string]int
	loud  []string
}

func (l *listener) Enabled(context.Context, slog.Level) bool { return true }
func (l *listener) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *listener) WithGroup(string) slog.Handler            { return l }

func (l *listener) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Level <= slog.LevelDebug {
		l.debug[r.Message]++
		return nil
	}
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.loud = append(l.loud, text)
	return nil
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestCleanCycles: a thousand cycles of five processes that want the same lock are
// DEBUG records here, and nothing in the server's log.
func TestCleanCycles(t *testing.T) {
	for name, open := range map[string]func(context.Context, string, *pgmutex.Options) (*pgmutex.Client, error){
		"lease":    lease.Open[string],
		"advisory": advisory.Open[string],
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Shared(t)
			dsn := server.Database(t)
			database := pgtest.Column[string](t, dsn, "SELECT current_database()::text")[0]
			if name == "lease" {
				pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
			}
			mark := server.LogMark()
			records := &listener{debug: map[string]int{}}
			const contenders, each = 5, 200
			var inside, overlaps atomic.Int32
			var all sync.WaitGroup
			for range contenders {
				locks, err := open(t.Context(), dsn, &pgmutex.Options{Logger: slog.New(records)})
				pgtest.Must(t, err)
				all.Go(func() {
					defer locks.Close(context.Background())
					for range each {
						if err := locks.Do(t.Context(), "job", func(context.Context) error {
							if inside.Add(1) > 1 {
								overlaps.Add(1)
							}
							inside.Add(-1)
							return nil
						}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if n := overlaps.Load(); n > 0 {
				t.Errorf("%d cycles overlapped", n)
			}
			if got := records.debug; got["lock acquired"] != contenders*each || got["lock released"] != contenders*each || got["lock is held"] == 0 {
				t.Errorf("DEBUG records are %v, want %d acquired and released, some of them after having waited", got, contenders*each)
			}
			for _, text := range records.loud {
				t.Errorf("a record above DEBUG: %s", text)
			}
			if log := pgtest.DatabaseLines(server.LogSince(mark), database); log != "" {
				t.Errorf("the server's log:\n%s", log)
			}
		})
	}
}
