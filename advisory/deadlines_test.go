package advisory_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// timeless is a connection as an SSH tunnel makes it.
type timeless struct{ net.Conn }

var errNoDeadlines = errors.New("no deadlines")

func (timeless) SetDeadline(time.Time) error      { return errNoDeadlines }
func (timeless) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (timeless) SetWriteDeadline(time.Time) error { return errNoDeadlines }

// A session that nothing can be bounded on is no lease.
func TestConnectionWithoutDeadlinesIsRefused(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.Shared(t).Database(t))
	pgtest.Must(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return timeless{conn}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	defer pool.Close()
	c, err := advisory.Open(t.Context(), pool, nil)
	if c != nil {
		pgtest.Must(t, c.Close(t.Context()))
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("opened: %v", err)
	}
}
