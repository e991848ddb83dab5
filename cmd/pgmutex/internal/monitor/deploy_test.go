package monitor

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	pgmutexprom "github.com/pgmutex/pgmutex/adapters/prometheus"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(repository + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// collected returns every metric of ours that a program or a monitor can have.
func collected(t *testing.T) []string {
	t.Helper()
	adapter, err := pgmutexprom.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(described(adapter), described(quiet(t, func(*Config) {}).Registry())...)
}

var metricName = regexp.MustCompile(`\bpgmutex_\w+`)

// exist checks that every metric in a text is one that is collected.
func exist(t *testing.T, file, text string) {
	t.Helper()
	known := collected(t)
	names := metricName.FindAllString(text, -1)
	if len(names) == 0 {
		t.Errorf("%s has no metrics", file)
	}
	for _, name := range names {
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !slices.Contains(known, base) {
			t.Errorf("%s has the metric %s, which nobody collects", file, name)
		}
	}
}

// TestRules has promtool check the rules and run their unit tests.
func TestRules(t *testing.T) {
	promtool := pgtest.Tool(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = repository + "deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// TestRulesAreComplete: each rule has metrics that exist, a test in which it fires,
// and a section that says what to do.
func TestRulesAreComplete(t *testing.T) {
	rules, tests, manual := read(t, "deploy/prometheus/rules.yml"), read(t, "deploy/prometheus/rules_test.yml"), read(t, "docs/operations.md")
	exist(t, "rules.yml", rules)
	exist(t, "rules_test.yml", tests)
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	runbooks := regexp.MustCompile(`(?m)^ +runbook: docs/operations\.md#([a-z-]+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 || len(alerts) != len(runbooks) {
		t.Fatalf("%d alerts and %d runbooks", len(alerts), len(runbooks))
	}
	sections := map[string]bool{}
	for _, title := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(manual, -1) {
		sections[strings.ReplaceAll(strings.ToLower(title[1]), " ", "-")] = true
	}
	for i, alert := range alerts {
		fires := regexp.MustCompile(`alertname: ` + alert[1] + `\n +exp_alerts:\n`)
		if !fires.MatchString(tests) {
			t.Errorf("%s fires in no test", alert[1])
		}
		if !strings.Contains(manual, "`"+alert[1]+"`") || !sections[runbooks[i][1]] {
			t.Errorf("%s: docs/operations.md says nothing about it under %q", alert[1], runbooks[i][1])
		}
	}
}

// TestDashboard: the dashboard is JSON that Grafana can import, and shows only
// metrics that somebody collects, each of them.
func TestDashboard(t *testing.T) {
	text := read(t, "deploy/grafana/pgmutex.json")
	exist(t, "pgmutex.json", text)
	var board struct {
		Title  string `json:"title"`
		UID    string `json:"uid"`
		Panels []struct {
			Type    string `json:"type"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) < 10 {
		t.Errorf("title %q, uid %q, %d panels", board.Title, board.UID, len(board.Panels))
	}
	var shown strings.Builder
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			shown.WriteString(target.Expr + "\n")
		}
	}
	for _, name := range collected(t) {
		if !strings.Contains(shown.String(), name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
