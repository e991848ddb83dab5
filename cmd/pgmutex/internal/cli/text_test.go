package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.25": 250 * time.Millisecond, "0": 0, "5s": 5 * time.Second,
		"2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "-5": -5 * time.Second, "2ns": 2,
	} {
		if got, err := parseDuration(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "5 s", "NaN", "Inf", "1e9", "0x10", "9000000h", "99999999999999", "1_000"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain é": "plain é", "a\nb": `a\nb`, "\x1b[2J": `\x1b[2J`, "\xff": `\xff`, "\u009b": `\u009b`, "\u202e": `\u202e`, "�": "�",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "é/x": "é/x", "": `""`, "a b": `"a b"`, `a"b`: `"a\"b"`, `a\b`: `"a\\b"`, "a\x1b": `"a\x1b"`, "\xff": `"\xff"`,
	} {
		if got := word(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Millisecond: "1.2s", 75 * time.Second: "1m15s", 90*time.Minute + time.Second: "1h30m",
		49 * time.Hour: "2d1h", -time.Second: "0s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestTableAligns(t *testing.T) {
	o := output{color: "always"}
	var tb table
	tb.row("NAME", "STATE", "X")
	tb.row("é", o.state(pgmutex.StateHeld), "1")
	tb.row("longer", "free", "2")
	var b strings.Builder
	if err := tb.write(&b); err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(b.String())
	want := "NAME    STATE  X\né       held   1\nlonger  free   2\n"
	if plain != want {
		t.Errorf("got\n%s\nwant\n%s", plain, want)
	}
}

func TestWriteJSONEscapes(t *testing.T) {
	var b strings.Builder
	if err := writeJSON(&b, map[string]string{"a": "\x1b\u009b\u202e<é>\n\U000e0001"}); err != nil {
		t.Fatal(err)
	}
	want := `{"a":"\u001b\u009b\u202e<é>\n\udb40\udc01"}` + "\n"
	if b.String() != want {
		t.Errorf("got %s, want %s", b.String(), want)
	}
}

func TestOuterHolds(t *testing.T) {
	env := environment([]string{"A=1", "PGMUTEX_TERM=t1", "PGMUTEX_TOKEN=9"}, pgmutex.Info{Term: "t2", Holder: "me"}, "n")
	env = environment(env, pgmutex.Info{Term: "t3", Holder: "me"}, "m")
	if got := fmt.Sprint(outerHolds(env)); got != "[{t3 m} {t2 n} {t1 }]" {
		t.Errorf("holds: %s in %q", got, env)
	}
	for _, e := range env {
		if strings.HasPrefix(e, "PGMUTEX_TOKEN=") {
			t.Errorf("a token of somebody else's: %s", e)
		}
	}
}
