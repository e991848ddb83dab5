package pgtest

import "testing"

// Tool returns the path of a program that a test runs besides PostgreSQL. On
// Debian and its children, as root, the package with it is installed; nothing of
// that starts running. Elsewhere the test fails and says what is missing.
func Tool(t testing.TB, name, pkg string) string {
	t.Helper()
	path, err := findProgram(t.Context(), []string{name}, pkg, progress(t.Log))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
