package schema

// Version is the version of the schema that this library makes.
const Version = 1

// Oldest is the lowest version of the library that can work with tables of
// [Version]; it is written into them.
const Oldest = 1

// required is the lowest version of the tables that this library can work with.
const required = 1

// column is what a column of the lock table has to be.
type column struct {
	name, kind string
}

// columns of the tables, as format_type shows them. A nil list means that the
// table is made by [Migrate] alone and only has to be there.
var columns = map[string][]column{
	"": {
		{"lock_name", "character varying(64) not null"},
		{"locked", "integer not null"},
		{"instance_id", "character varying(64) not null"},
		{"last_heartbeat", "timestamp with time zone not null"},
		{"acquired_at", "timestamp with time zone not null"},
		{"promised_by", "character varying(64)"},
		{"stale_after", "interval"},
		{"heartbeat_every", "interval"},
		{"alert_after", "interval"},
		{"token", "bigint"},
		{"waiting", "boolean not null"},
		{"replaced", "character varying(64)"},
		{"details", "jsonb"},
		{"stop_at", "timestamp with time zone"},
		{"stop_by", "text"},
		{"stop_reason", "text"},
	},
	suffixWaiter: {
		{"lock_name", "character varying(64) not null"},
		{"channel", "character varying(63) not null"},
		{"ticket", "bigint not null"},
		{"holder", "text not null"},
		{"seen", "timestamp with time zone not null"},
		{"offered_at", "timestamp with time zone"},
	},
	suffixEvent: {
		{"id", "bigint not null"},
		{"lock_name", "character varying(64) not null"},
		{"instance_id", "character varying(64) not null"},
		{"token", "bigint"},
		{"acquired_at", "timestamp with time zone not null"},
		{"ended_at", "timestamp with time zone not null"},
		{"how", "text not null"},
		{"ended_by", "text"},
		{"reason", "text"},
	},
	suffixMeta: {
		{"only_row", "boolean not null"},
		{"version", "integer not null"},
		{"oldest", "integer not null"},
		{"timeline", "bigint"},
	},
	suffixToken: nil,
}

// suffixes lists the relations in the order in which messages name them.
var suffixes = []string{"", suffixToken, suffixMeta, suffixWaiter, suffixEvent}

// foreignColumns is how many of the lock table's columns are the reference's:
// when they are wrong, no upgrade helps.
const foreignColumns = 5
