package cli

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
)

// manual returns the sections of docs/cli.md by their headings.
func manual(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split("\n"+string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		sections[title] = body
	}
	return sections
}

var (
	flagRow = regexp.MustCompile("(?m)^\\| ((?:`-[-a-zA-Z]+`(?:, )?)+) \\|")
	oneFlag = regexp.MustCompile("`(-[-a-zA-Z]+)`")
)

// documented lists the flags in the first column of a section's tables.
func documented(section string) []string {
	var flags []string
	for _, row := range flagRow.FindAllStringSubmatch(section, -1) {
		for _, f := range oneFlag.FindAllStringSubmatch(row[1], -1) {
			flags = append(flags, f[1])
		}
	}
	slices.Sort(flags)
	return flags
}

// present lists the flags of a set.
func present(set *pflag.FlagSet) []string {
	var flags []string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		flags = append(flags, "--"+f.Name)
		if f.Shorthand != "" {
			flags = append(flags, "-"+f.Shorthand)
		}
	})
	slices.Sort(flags)
	return flags
}

func tree() *cobra.Command {
	a := &app{out: io.Discard, err: io.Discard}
	return a.root()
}

// The manual lists every flag of every command, and no other.
func TestManualFlags(t *testing.T) {
	sections, root := manual(t), tree()
	if got, want := documented(sections["Flags of all commands"]), present(root.PersistentFlags()); !slices.Equal(got, want) {
		t.Errorf("flags of all commands: the manual has %q, the program %q", got, want)
	}
	for _, c := range root.Commands() {
		section, ok := sections[c.CommandPath()]
		if !ok {
			t.Errorf("%s is not in the manual", c.CommandPath())
		}
		if got, want := documented(section), present(c.LocalNonPersistentFlags()); !slices.Equal(got, want) {
			t.Errorf("%s: the manual has %q, the program %q", c.CommandPath(), got, want)
		}
	}
	for title := range sections {
		if name, ok := strings.CutPrefix(title, "pgmutex "); ok {
			if c, _, err := root.Find([]string{name}); err != nil || c == root {
				t.Errorf("there is no command %s", title)
			}
		}
	}
}

// The manual and the help list every exit code.
func TestManualExitCodes(t *testing.T) {
	section := manual(t)["Exit codes"]
	for code, text := range map[int]string{
		exitcode.OK: "0", exitcode.NotHeld: "1", exitcode.Errors: "2", exitcode.Usage: "64", exitcode.Unavailable: "69",
		exitcode.Internal: "70", exitcode.Busy: "75", exitcode.Lost: "76", exitcode.NotPermitted: "77",
		exitcode.NotConfigured: "78", exitcode.NotExecutable: "126", exitcode.NotFound: "127",
	} {
		if !strings.Contains(section, "\n| "+text+" |") {
			t.Errorf("code %d is not in the manual", code)
		}
		if code > exitcode.Errors && !strings.Contains(exitCodes, text+"  ") {
			t.Errorf("code %d is not in the help", code)
		}
	}
}

// The help says what its other texts take for granted, in lines that a terminal
// has room for.
func TestGlossary(t *testing.T) {
	long := tree().Long
	for _, name := range []string{"lease", "term", "token"} {
		if !regexp.MustCompile(`(?m)^  ` + name + ` +.{20,75}$`).MatchString(long) {
			t.Errorf("%s is not explained: %s", name, long)
		}
	}
}

// The manual names every variable and every signal.
func TestManualNames(t *testing.T) {
	run := manual(t)["pgmutex run"]
	for _, name := range []string{lockVariable, tokenVariable, holderVariable, termVariable, outerVariable} {
		if !strings.Contains(run, "\n| `"+name+"` |") {
			t.Errorf("%s is not in the manual", name)
		}
	}
	for _, name := range []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "TSTP", "CONT"} {
		if !regexp.MustCompile(`(?m)^\| [A-Z0-9, ]*\b` + name + `\b`).MatchString(run) {
			t.Errorf("SIG%s is not in the manual", name)
		}
	}
}

// The examples in the help are command lines that the program takes.
func TestHelpExamples(t *testing.T) {
	quotes := strings.NewReplacer(`"`, "", `'`, "")
	for _, c := range tree().Commands() {
		if c.Name() != "version" && c.Example == "" {
			t.Errorf("%s has no example", c.Name())
		}
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, "   (")
			line, _, _ = strings.Cut(line, " | ")
			words := strings.Fields(quotes.Replace(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(line, "text")))
			root := tree()
			found, rest, err := root.Find(words[1:])
			if err != nil || words[0] != "pgmutex" || found.Name() != c.Name() {
				t.Errorf("%q is not of %s: %v", line, c.Name(), err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%q: %v", line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
}
