package pgtest

import "io"

// Superuser is the role that owns every server of this package. It needs no
// password on loopback and on the Unix socket.
const Superuser = "postgres"

// Options describes a server. The zero value is an installed PostgreSQL of the
// highest version, tuned for short tests.
type Options struct {
	// Version is a major version, "14" to "18". Empty means the environment's
	// PGMUTEX_TEST_PG, or whatever is installed.
	Version string

	// Settings are lines of postgresql.conf and win over the package's own.
	// Values are written as given, quotes included where PostgreSQL wants them:
	// {"idle_session_timeout": "2s", "synchronous_standby_names": "'nobody'"}.
	Settings map[string]string

	// Durable turns fsync on. Only what measures commits or pulls a disk away
	// needs it.
	Durable bool

	// Env is added to the server's environment, as "NAME=value".
	Env []string

	// Dir is where the server's directory is made; the system's temporary
	// directory by default. It must be short: a Unix socket path has to stay
	// under 100 bytes.
	Dir string

	// Progress, if set, is told what takes long (installing, downloading).
	Progress io.Writer
}

// A StopMode is one of PostgreSQL's ways to shut down.
type StopMode int

const (
	// Fast ends all sessions with an error, writes a checkpoint and stops.
	Fast StopMode = iota
	// Immediate stops at once; the next start recovers from the log.
	Immediate
)
