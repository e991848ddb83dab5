package pgdb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestMuteServerIsGivenUp: a server that accepts connections and says nothing is
// not waited for without end, whatever the caller's context says.
func TestMuteServerIsGivenUp(t *testing.T) {
	for dsn, want := range map[string]time.Duration{
		"host=127.0.0.1":                     onlyTimeout,
		"host=127.0.0.1 connect_timeout=5":   5 * time.Second,
		"host=127.0.0.1,127.0.0.2 port=1,2":  hostTimeout,
		"host=127.0.0.1 sslmode=verify-full": onlyTimeout,
	} {
		c, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if got := perHost(context.Background(), c); got != want {
			t.Errorf("%s: %v, want %v", dsn, got, want)
		}
	}
}

// TestRefusedTLSHidesNothing: of the two attempts of sslmode=prefer the one without
// TLS tells what is the matter.
func TestRefusedTLSHidesNothing(t *testing.T) {
	wrong := &pgconn.PgError{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"}
	both := connectError(context.Background(), nil, trust{}, errors.Join(errors.New(refusedTLS), wrong)).Error()
	if strings.Contains(both, refusedTLS) || !strings.Contains(both, "28P01") {
		t.Error(both)
	}
	if alone := connectError(context.Background(), nil, trust{}, errors.New(refusedTLS)).Error(); !strings.Contains(alone, refusedTLS) {
		t.Error(alone)
	}
}
