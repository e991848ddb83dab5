package doctor

import (
	"strconv"
	"time"
)

// Pooling is what stands between this program and the server.
type Pooling string

const (
	Direct      Pooling = ""            // nothing that hands the session to others
	Session     Pooling = "session"     // as far as can be seen from here
	Transaction Pooling = "transaction" // another backend for each transaction
	Statement   Pooling = "statement"   // no transactions at all
)

// Facts is what was read about a server and a lock table. It decides nothing.
type Facts struct {
	Advisory bool   // the advisory engine is meant: the table matters less
	Table    string // as configured, for messages

	Version      int    // server_version_num
	VersionText  string // as the server writes it
	Standby      bool
	Role         string
	Database     string
	Socket       bool // connected over a Unix socket
	Pooling      Pooling
	Settings     map[string]string // pg_settings, in their base units
	ClockOffset  time.Duration     // server minus client
	RoundTrip    time.Duration     // the least that was seen
	LocksUsed    int64             // entries of the lock table
	AdvisoryUsed int64             // of these

	Problem, Fix string // what is wrong with the tables and what to do, empty if nothing
	RightsOnly   bool   // that problem is about rights

	There           bool // the lock table
	HaveVersion     bool
	SchemaVersion   int
	Uniques         []string // column lists of unique indexes, sorted within, on the lock table
	HeartbeatIndex  []string // names of indexes that cover the heartbeat
	SchemaUsage     bool
	Rights          map[string]bool // "_suffix:PRIVILEGE" of the relations that are there
	Schema, Name    string          // of the lock table
	AutovacuumOff   bool            // for this table
	Live, Dead      int64
	Updates, HOT    int64
	NotifyTried     bool
	NotifyHeard     bool
	NotifyTook      time.Duration
	NotifyErr       string
	Oldest          []OldSnapshot // the oldest of each kind
	ActivityVisible bool          // what other roles do is shown to this one
}

// An OldSnapshot keeps the server from cleaning up.
type OldSnapshot struct {
	What string // who it is, a phrase
	End  string // what to do about it
	Age  time.Duration
	Xids int64 // transactions that began since
}

// number returns a setting as a number, zero where the server does not have it.
func (f *Facts) number(name string) int64 {
	n, err := strconv.ParseInt(f.Settings[name], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// duration returns a setting that is kept in units of unit, zero where it is off
// or missing.
func (f *Facts) duration(name string, unit time.Duration) time.Duration {
	return time.Duration(f.number(name)) * unit
}
