//go:build race

package model

// A search has one goroutine, and the race detector makes it ten times slower.
const quick = true
