//go:build !race

package pgtest

// Race reports whether the race detector is on. Everything is several times
// slower then, and a test that runs one thing in many ways may run it in those
// that differ in Go code.
const Race = false
