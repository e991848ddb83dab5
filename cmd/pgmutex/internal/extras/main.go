// Command extras writes what a package of pgmutex has beside the program: manual
// pages and completions.
//
//	go run ./internal/extras DIRECTORY
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: extras DIRECTORY")
		os.Exit(64)
	}
	for name, write := range map[string]func(string) error{"man": cli.WriteManual, "completions": cli.WriteCompletions} {
		dir := filepath.Join(os.Args[1], name)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = write(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "extras:", err)
			os.Exit(1)
		}
	}
}
