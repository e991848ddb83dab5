//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func rowOf(id string) row {
	for _, r := range rows {
		if r.id == id {
			return r
		}
	}
	panic("no row " + id)
}

// cells are a line's figures as they are shown.
func (r row) cells(l line) []string {
	cells := []string{l.name}
	for i, c := range r.columns {
		text := "–"
		if !math.IsNaN(l.values[i]) && !math.IsInf(l.values[i], 0) {
			text = fmt.Sprintf(c.format, l.values[i])
		}
		cells = append(cells, text)
	}
	return cells
}

// text is a row's table for a terminal.
func (m *match) text(id string) string {
	r := rowOf(id)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", r.title)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range r.columns {
		fmt.Fprintf(w, "\t%s", c.name)
	}
	fmt.Fprintln(w, "\t")
	for _, l := range m.results[id] {
		fmt.Fprintln(w, strings.Join(r.cells(l), "\t")+"\t")
	}
	w.Flush()
	return strings.TrimRight(b.String(), "\n")
}

// write makes RESULTS.md and the plots.
func (m *match) write(begin time.Time, before string) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Results

Written by `+"`make bench-peers`"+`; the method, and what the figures mean, are in [docs/benchmarks.md](../docs/benchmarks.md).

Compare figures of one table with each other: the contestants took turns. Absolute figures are this machine's at that time, and the next run has others.

- %s, %s of measuring%s
- %s
- load average before the run: %s
`, begin.UTC().Format(time.DateOnly), time.Since(begin).Round(time.Second), shortened(), machine(), before)
	for _, s := range m.settings {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	fmt.Fprintf(&b, "- one 8 KB write and fsync in the directory for temporary files: p50 %.2f ms\n", ms(fsync(m)))
	fmt.Fprintf(&b, "- %s; %s\n", runtime.Version(), libraries(m))
	for _, r := range rows {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s\n|%s\n", r.title, r.text, r.header(), strings.Repeat(" --- |", len(r.columns)+1))
		for _, l := range m.results[r.id] {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(l), " | "))
		}
	}
	fmt.Fprint(&b, "\n## Contestants\n\n|  | locks are in | settings |\n| --- | --- | --- |\n")
	for _, c := range contestants() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.name, c.store, c.how)
	}
	fmt.Fprint(&b, "\n## Not measured\n\n")
	for _, s := range absent {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	pgtest.Must(m.T, os.WriteFile("RESULTS.md", b.Bytes(), 0o644))
	pgtest.Must(m.T, m.plot("plots"))
}

func shortened() string {
	if testing.Short() {
		return " (a short run: few samples)"
	}
	return ""
}

// absent are peers that one would look for.
var absent = []string{
	"`cirello.io/pglock`, `github.com/allisson/go-pglock`: no registry served them when this was written (the Go module proxy answered \"403 Forbidden: This module version is not available\"), so nobody could repeat the figures from this repository.",
	"Redis with several nodes (what redsync is made for) and etcd with three: on one machine their network would cost nothing, and the figures would flatter them.",
}

// machine is its class.
func machine() string {
	model := "unknown processor"
	for _, l := range lines("/proc/cpuinfo") {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	memory := ""
	for _, l := range lines("/proc/meminfo") {
		var kb float64
		if n, _ := fmt.Sscanf(l, "MemTotal: %f kB", &kb); n == 1 {
			memory = fmt.Sprintf(", %.0f GB of memory", kb/1024/1024)
		}
	}
	return fmt.Sprintf("%d cores (%s)%s, %s/%s", runtime.NumCPU(), model, memory, runtime.GOOS, runtime.GOARCH)
}

// load is the load average of the last minute, as far as the system tells.
func load() string {
	l := lines("/proc/loadavg")
	if len(l) == 0 {
		return "unknown"
	}
	first, _, _ := strings.Cut(l[0], " ")
	var n float64
	if fmt.Sscan(first, &n); n > 0.5 {
		return first + ". **Other programs were at work**: trust the ratios of a table, and no absolute figure"
	}
	return first
}

func lines(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// fsync is what a durable write costs at least.
func fsync(m *match) time.Duration {
	f, err := os.CreateTemp(m.TempDir(), "")
	pgtest.Must(m.T, err)
	defer f.Close()
	page := make([]byte, 8192)
	took := inTurn(100, []func(){func() {
		_, err := f.Write(page)
		pgtest.Must(m.T, err)
		pgtest.Must(m.T, f.Sync())
	}})
	return quantile(took[0], 0.5)
}

// libraries are the versions of the contestants.
func libraries(m *match) string {
	out, err := exec.CommandContext(m.Context(), "go", "list", "-m",
		"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3", "github.com/bsm/redislock",
		"github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9", "go.etcd.io/etcd/client/v3").Output()
	pgtest.Must(m.T, err)
	return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", ")
}
