// Command pgmutex runs other commands under locks that are kept in PostgreSQL,
// and shows and ends such locks.
//
//	pgmutex run nightly-report -- ./report --all
//
// See "pgmutex help" and the package comment of internal/supervise for how a
// command is run.
package main

import (
	"os"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
