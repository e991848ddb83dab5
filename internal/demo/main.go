// Demo starts a PostgreSQL that is thrown away when the program ends, with our
// schema in one of its databases, and says what to try on it: "make demo".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

const hints = `
PostgreSQL %[1]d is running; Ctrl-C ends it and removes everything. In other terminals:

  export PGMUTEX_URL='%[2]s'
  go build -o bin/ ./cmd/pgmutex

  bin/pgmutex run report -- sleep 60              # takes the lock, holds it for a minute
  bin/pgmutex run report -- echo "my turn"        # waits for the first, then runs
  bin/pgmutex run -n report -- true; echo $?      # does not wait: 75, busy
  bin/pgmutex show report                         # who holds it, since when, who waits
  bin/pgmutex release report --force              # takes it away: the command is told
  bin/pgmutex history report                      # and how every hold ended
  bin/pgmutex doctor

  psql "$PGMUTEX_URL" -c 'TABLE mutex_lock'       # what is behind it

`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	server, err := pgtest.Run(ctx, pgtest.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() {
		if closing := server.Close(); err == nil {
			err = closing
		}
	}()
	url := server.DSN("postgres", pgtest.Superuser)
	if err := lease.Migrate(ctx, url, nil); err != nil {
		return err
	}
	fmt.Printf(hints, server.Major(), url)
	<-ctx.Done()
	return nil
}
