package doctor

// An operation is a statement of the lease engine and the rights that it needs,
// by the suffix of the relation's name.
type operation struct {
	name  string
	needs []string
}

var operations = []operation{
	{"take", []string{":SELECT", ":INSERT", "_waiter:SELECT", "_token:USAGE"}},
	{"take over", []string{":SELECT", ":INSERT", ":UPDATE", "_waiter:SELECT", "_waiter:DELETE", "_event:INSERT", "_token:USAGE"}},
	{"wait", []string{":SELECT", ":UPDATE", "_waiter:SELECT", "_waiter:INSERT", "_waiter:UPDATE", "_waiter:DELETE"}},
	{"renew", []string{":SELECT", ":UPDATE"}},
	{"release", []string{":SELECT", ":DELETE", "_event:INSERT"}},
	{"wake", []string{":SELECT", "_waiter:SELECT", "_waiter:UPDATE"}},
	{"explain a loss", []string{":SELECT", "_event:SELECT"}},
	{"list", []string{":SELECT", "_waiter:SELECT"}},
	{"history", []string{"_event:SELECT"}},
	{"ask to stop", []string{":SELECT", ":UPDATE"}},
	{"break", []string{":SELECT", ":DELETE", "_event:INSERT"}},
	{"clean up", []string{"_event:SELECT", "_event:DELETE", "_waiter:SELECT", "_waiter:DELETE"}},
	{"raise tokens after a failover", []string{"_meta:SELECT", "_meta:UPDATE", "_token:SELECT", "_token:UPDATE"}},
}
