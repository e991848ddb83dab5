package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// output is how a reading command writes.
type output struct {
	json  bool
	color string
}

func (o *output) add(c *cobra.Command) {
	c.Flags().BoolVar(&o.json, "json", false, "one JSON object per line")
	c.Flags().StringVar(&o.color, "color", "auto", "`WHEN` to colour states: auto, always or never")
}

// check refuses what --color does not know.
func (o *output) check() error {
	switch o.color {
	case "auto", "always", "never":
		return nil
	}
	return usage("--color: must be auto, always or never")
}

// colored tells whether to use colours: only for people, and never where
// NO_COLOR asks for none, unless the flag insists.
func (o *output) colored() bool {
	switch o.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && supervise.IsTerminal(1)
}

// state colours a state.
func (o *output) state(s pgmutex.State) string {
	color := map[pgmutex.State]string{
		pgmutex.StateHeld: "32", pgmutex.StateLate: "33", pgmutex.StateStale: "31",
	}[s]
	return o.paint(color, string(s))
}

// paint colours a text, unless the colour is empty.
func (o *output) paint(color, text string) string {
	if color == "" || !o.colored() {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// writeJSON writes one object on one line. What a terminal could take for
// something else than text is escaped, as JSON allows for any character.
func writeJSON(w io.Writer, v any) error {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range strings.TrimSuffix(text.String(), "\n") {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// seconds makes a duration a number of seconds.
func seconds(d time.Duration) float64 { return d.Seconds() }

// table aligns rows under a heading. Escape sequences that it adds itself take
// no room.
type table struct {
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], visible(cell))
		}
	}
	for _, row := range t.rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-visible(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// visible counts the characters of a cell without our own colours.
func visible(s string) int {
	n := utf8.RuneCountInString(s)
	if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
		color, _, _ := strings.Cut(rest, "m")
		n -= len("\x1b[") + len(color) + len("m") + len("\x1b[0m")
	}
	return n
}
