package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WriteManual writes a manual page for each command into a directory.
func WriteManual(dir string) error {
	root := (&app{out: io.Discard, err: io.Discard}).root()
	root.InitDefaultCompletionCmd()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(page(root, c)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteCompletions writes the scripts for the shells into a directory, under the
// names that the shells look for.
func WriteCompletions(dir string) error {
	root := (&app{out: io.Discard, err: io.Discard}).root()
	for name, write := range map[string]func(string) error{
		"pgmutex.bash": func(f string) error { return root.GenBashCompletionFileV2(f, true) },
		"_pgmutex":     root.GenZshCompletionFile,
		"pgmutex.fish": func(f string) error { return root.GenFishCompletionFile(f, true) },
	} {
		if err := write(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page is a page of the manual, in roff.
func page(root, c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"pgmutex %s\"\n.nh\n.ad l\n", strings.ToUpper(pageName(c)), built().Version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(c)), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fR%s\n", roff(c.CommandPath()), roff(strings.TrimPrefix(c.UseLine(), c.CommandPath())))
	if c.Long != "" {
		b.WriteString(".SH DESCRIPTION\n")
		for part := range strings.SplitSeq(c.Long, "\n\n") {
			if strings.Contains(part, "\n ") { // a list, laid out already
				fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", roff(part))
			} else {
				fmt.Fprintf(&b, ".PP\n%s\n", roff(part))
			}
		}
	}
	if c == root {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range root.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR(1)\n%s\n", roff(pageName(sub)), roff(sub.Short))
			}
		}
	}
	options(&b, "OPTIONS", c.NonInheritedFlags())
	options(&b, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	if c != root {
		b.WriteString(".SH SEE ALSO\n\\fBpgmutex\\fR(1)\n")
	}
	return b.String()
}

func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		value, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

// roff escapes a text: no line of it is a request, and every character is itself.
func roff(text string) string {
	var b strings.Builder
	start := true
	for _, r := range text {
		switch {
		case start && (r == '.' || r == '\''):
			fmt.Fprintf(&b, "\\&%c", r)
		case r == '\\':
			b.WriteString("\\e")
		case r == '-':
			b.WriteString("\\-")
		case r > '~':
			fmt.Fprintf(&b, "\\[u%04X]", r)
		default:
			b.WriteRune(r)
		}
		start = r == '\n'
	}
	return b.String()
}
