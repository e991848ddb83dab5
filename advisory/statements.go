package advisory

import (
	"embed"
	"fmt"
	"math"
	"strings"
)

//go:embed sql/*.sql
var files embed.FS

// A statement is one SQL statement. Its parameters are numbers, and texts.
type statement struct {
	name string // of the file, for messages
	text string
	once bool // runs once in a session, or behind who knows what: not prepared
}

// A pair is a statement for exclusive locks and its twin for shared ones.
type pair [2]*statement

func (p pair) of(shared bool) *statement {
	if shared {
		return p[1]
	}
	return p[0]
}

const (
	// ours is the key that all our lock sessions hold, in the form with two
	// numbers, which no lock of a name has. The first is "pgmx".
	ours = "1885826424, 1"

	// channelPrefix stands before a key in the name of its channel.
	channelPrefix = "pgmutex_advisory_"
)

// markOf is the key of the waiters' mark of a lock: the same with the top bit
// set, which no id of a name has.
func markOf(id int64) int64 { return id | math.MinInt64 }

func channelOf(id int64) string { return fmt.Sprint(channelPrefix, id) }

// statements are all statements of the lock session.
type statements struct {
	introduce, settings, check, ping *statement
	try, unlock, undo                pair
	mark, unmark, notify             *statement
	holders                          *statement
}

func newStatements(draw string) *statements {
	return &statements{
		introduce: read("introduce").unprepared(),
		settings:  read("settings").unprepared(),
		check:     read("check").unprepared(),
		ping:      read("ping"),
		try:       readPair("try", "{{draw}}", draw),
		unlock:    readPair("unlock"),
		undo:      readPair("undo"),
		mark:      read("mark"),
		unmark:    read("unmark"),
		notify:    read("notify", "{{channel}}", channelPrefix),
		holders:   read("holders", "{{which}}", "h.key = $1::bigint"),
	}
}

// Those that run elsewhere.
var (
	tryTx   = readPair("try_tx")
	tryConn = readPair("try_conn")
	undo    = readPair("undo")
	ping    = read("ping")
)

func (s *statement) unprepared() *statement {
	s.once = true
	return s
}

func readPair(file string, oldnew ...string) pair {
	return pair{
		read(file, append([]string{"{{mode}}", ""}, oldnew...)...),
		read(file, append([]string{"{{mode}}", "_shared"}, oldnew...)...),
	}
}

// read makes a statement of a file, without its comments.
func read(file string, oldnew ...string) *statement {
	raw, err := files.ReadFile("sql/" + file + ".sql")
	if err != nil {
		panic(fmt.Sprintf("advisory: %v", err)) // a name in this file is wrong
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimRight(line, " \n"); line != "" {
			b.WriteString(line + "\n")
		}
	}
	text := strings.NewReplacer(append(oldnew, "{{ours}}", ours)...).Replace(strings.TrimSpace(b.String()))
	return &statement{name: strings.ReplaceAll(file, "_", " "), text: text}
}
