// Package bench measures the engines beside raw statements and beside other
// locks, in one run: each figure is a ratio of medians over alternating single
// operations or windows, so that it holds when the machine's speed drifts.
// Absolute times are printed for orientation only.
//
// The measurements are tests with the build tag bench, because they start their
// own servers through internal/pgtest. make bench-quick checks the figures that
// we claim against their bounds; make bench-peers runs every contestant through
// the comparisons of rows.go and writes RESULTS.md and the plots. The method is
// described in docs/benchmarks.md.
package bench
