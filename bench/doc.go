// Package bench measures the engines beside raw statements, in one run: each
// figure is a ratio of medians over alternating single operations or windows, so
// that it holds when the machine's speed drifts. Absolute times are printed for
// orientation only.
//
// The measurements are tests with the build tag bench, because they start their
// own PostgreSQL through internal/pgtest: make bench-quick runs them.
package bench
