//go:build race

package pgtest

// Race reports whether the race detector is on.
const Race = true
