// Package interop runs the real Python packages beside pgmutex: postgres-mutex on
// one lock table with the lease engine, whoever made the table, and the lock
// manager of eventsource-py for the keys that both derive from names.
//
// Its tests need Python, its package index and a network the first time, so they
// have the build tag interop: "make interop" runs them, "go test work" does not
// look at them. They never skip.
//
// What it needs: python3, 3.11 or newer, with venv. On Debian and Ubuntu as root
// it is installed when it is missing. The packages go into a virtual environment
// in the user's cache directory, made once and used by every later run.
//
// A Python process is one holder or contender. It runs peer.py, which does what
// it is told on its standard input, one JSON object a line, and answers on its
// standard output; it ends with the test, or when its standard input closes.
package interop
