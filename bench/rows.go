package bench

// A row is one comparison of the contestants: a section of RESULTS.md with a
// table.
type row struct {
	id      string
	title   string
	text    string // what one operation is and what the last column is a ratio to
	columns []column
}

// A column is a figure of a row; format is fmt's.
type column struct{ name, format string }

const (
	millis = "%.3f ms"
	times  = "%.2f ×"
	number = "%.0f"
)

// rows are all that is measured, in the order of RESULTS.md. They are here, where
// no build tag keeps them from the test that RESULTS.md is of this harness.
var rows = []row{
	cycles("1", "One goroutine takes a lock and gives it back; single operations in turn.",
		column{"p50", millis}, column{"p95", millis}, column{"raw INSERT + DELETE", times}),
	concurrent("16"), concurrent("64"), concurrent("256"),
	{"advisory", "Advisory cycle",
		"One goroutine; beside two statements that do nothing, on a connection of their own.",
		[]column{{"p50", millis}, {"two SELECT 1", times}}},
	{"handover", "Hand-over between two processes",
		"From the call of the release in one process to the grant in another that waits. Waiters that poll are released at a random moment of their interval.",
		[]column{{"samples", number}, {"p50", millis}, {"p99", millis}, {"one commit", times}}},
	{"waiters", "Many waiters for one name, in 10 processes",
		"All wait while one process holds the lock; then each gives it back as soon as it has it. Requests are what clients send to the server.",
		[]column{{"waiters", number}, {"connections a process", "%.1f"}, {"requests a second, all waiting", number},
			{"requests a hand-over", "%.1f"}, {"hand-overs a second", number}, {"KB a waiter", "%.1f"}}},
	{"busy", "A try that finds the lock held",
		"Single operations in turn. Bytes of log are what the store wrote for one try.",
		[]column{{"p50", millis}, {"raw upsert", times}, {"bytes of log", number}}},
	{"holds", "Many holds in one process",
		"Taken by 64 goroutines. Requests an interval are the renewals of all holds, once; intervals of 2 s.",
		[]column{{"holds", number}, {"taken a second", number}, {"connections", number}, {"goroutines", number},
			{"requests an interval", number}, {"KB a hold", "%.2f"}}},
	{"renewal", "Renewing all these holds once",
		"The statement that renews them, beside a plain UPDATE of as many rows.",
		[]column{{"p50", "%.1f ms"}, {"plain UPDATE", times}}},
	{"held", "Asking whether the lock is still held",
		"In the process; no contestant asks its server.",
		[]column{{"time", "%.0f ns"}, {"allocations", number}}},
}

func cycles(n, text string, columns ...column) row {
	return row{"cycle-" + n, "Cycles, goroutines: " + n, text, columns}
}

func concurrent(n string) row {
	return cycles(n, "Each goroutine takes a lock of its own name and gives it back, over and over; short windows in turn.",
		column{"cycles a second", number}, column{"raw INSERT + DELETE", times})
}
