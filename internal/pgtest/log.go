package pgtest

import (
	"io"
	"os"
	"strings"
	"testing"
)

// LogMark is the current end of the server's log, for [Server.LogSince].
func (s *Server) LogMark() int64 {
	info, err := os.Stat(s.logPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// LogSince returns what the server logged after the mark was taken. Lines of all
// databases are in it.
func (s *Server) LogSince(mark int64) string {
	f, err := os.Open(s.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, mark, 1<<40))
	if err != nil {
		return string(text) + "\n(" + err.Error() + ")"
	}
	return string(text)
}

// LogText returns the server's whole log.
func (s *Server) LogText() string { return s.LogSince(0) }

// ErrorLines returns the lines of a server log that report an ERROR, a FATAL or
// a PANIC.
func ErrorLines(log string) []string {
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "ERROR:  ") || strings.Contains(line, "FATAL:  ") || strings.Contains(line, "PANIC:  ") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// DatabaseLines returns the lines of a server log that sessions of one database
// wrote, continuation lines included.
func DatabaseLines(log, database string) string {
	var out strings.Builder
	ours := false
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "\t") {
			ours = strings.Contains(line, "@"+database+" ")
		}
		if ours {
			out.WriteString(line)
		}
	}
	return out.String()
}

// reportLog shows a failed test the end of the server's log since mark; database
// "" means all lines.
func (s *Server) reportLog(t testing.TB, mark int64, database string) {
	if !t.Failed() {
		return
	}
	text := s.LogSince(mark)
	if database != "" {
		text = DatabaseLines(text, database)
	}
	const tail = 60
	lines := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > tail {
		lines = append([]string{"...\n"}, lines[len(lines)-tail:]...)
	}
	if text = strings.Join(lines, ""); text != "" {
		t.Logf("server log:\n%s", text)
	}
}
