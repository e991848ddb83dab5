// Mutants tests the tests: each seeded bug of list.go is put into a temporary
// copy of the tree, and the tests that are there to find its kind have to fail.
// A mutant that they let pass is a hole in them; so is one that no longer
// applies, since what it changed has moved.
//
//	go run ./mutants [-root ..] [-run regexp] [-v]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	root := flag.String("root", "..", "the repository")
	only := flag.String("run", "", "only mutants whose name matches this regular expression")
	verbose := flag.Bool("v", false, "show what the tests print")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	survivors, err := run(ctx, *root, *only, *verbose, os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, root, only string, verbose bool, out io.Writer) (survivors int, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyTree(root, dir); err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "%-52s %-9s %6s  %s\n", "mutant", "", "", "found by")
	for _, m := range mutants {
		if !match.MatchString(m.name) {
			continue
		}
		restore, err := m.apply(dir)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		began := time.Now()
		failed, report, err := m.test(ctx, dir)
		if err := restore(); err != nil {
			return survivors, err
		}
		if err != nil {
			return survivors, fmt.Errorf("%s: %w\n%s", m.name, err, report)
		}
		verdict := "died"
		if len(failed) == 0 {
			verdict = "SURVIVED"
			survivors++
		}
		fmt.Fprintf(out, "%-52s %-9s %5.1fs  %s\n", m.name, verdict, time.Since(began).Seconds(), strings.Join(failed, " "))
		if verbose {
			fmt.Fprintln(out, report)
		}
	}
	return survivors, nil
}

// apply makes the mutant's changes; restore takes them back.
func (m mutant) apply(dir string) (restore func() error, err error) {
	before := map[string][]byte{}
	restore = func() error {
		var errs []error
		for name, text := range before {
			errs = append(errs, os.WriteFile(name, text, 0o644))
		}
		return errors.Join(errs...)
	}
	for _, e := range m.edits {
		name := filepath.Join(dir, e.file)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, errors.Join(err, restore())
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return nil, errors.Join(fmt.Errorf("%s has %d times %q, want once", e.file, n, e.old), restore())
		}
		if _, ok := before[name]; !ok {
			before[name] = text
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(text), e.old, e.mutated, 1)), 0o644); err != nil {
			return nil, errors.Join(err, restore())
		}
	}
	return restore, nil
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// test runs the mutant's tests and returns the names of those that failed. That
// the mutant cannot be built is an error.
func (m mutant) test(ctx context.Context, dir string) (failed []string, report string, err error) {
	args := []string{"test", "-count=1", "-tags=faults", "-timeout=5m", "-run=" + m.tests, "./" + m.in}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	if rest, ok := strings.CutPrefix(m.in, "tests/"); ok {
		cmd.Dir = filepath.Join(dir, "tests")
		cmd.Args[len(cmd.Args)-1] = "./" + rest
	}
	cmd.Env = append(os.Environ(), "GOWORK=off")
	// The tests' servers end with the tests; give them the time.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	text, err := cmd.CombinedOutput()
	report = string(text)
	for _, found := range failure.FindAllStringSubmatch(report, -1) {
		failed = append(failed, found[1])
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, report, ctx.Err()
	case err == nil && strings.Contains(report, "no tests to run"):
		return nil, report, errors.New("no test has that name")
	case errors.As(err, &exit) && len(failed) == 0 && strings.Contains(report, "panic: "):
		return []string{"(panic)"}, report, nil
	case errors.As(err, &exit) && len(failed) > 0, err == nil:
		return failed, report, nil
	}
	return nil, report, err
}

// copyTree copies what builds: no hidden directories.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case rel == ".":
			return nil
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}
