package main_test

import (
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A role with the rights of a viewer looks and takes nothing; one with those of an
// operator also ends others' holds.
func TestRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, owner := pgtest.Shared(t), *w
	owner.run("run", "past", "true").want(0)
	as := func(rights string) *world {
		server.Role(t, "rights_"+rights, "secret")
		script := owner.run("init", "--print", "--role", "rights_"+rights, "--rights", rights).want(0).silent().stdout()
		pgtest.Exec(t, owner.dsn, script)
		return &world{t: t, dsn: server.PasswordDSN(databaseOf(owner.dsn), "rights_"+rights, "secret"), dir: t.TempDir()}
	}
	pgtest.Exec(t, owner.dsn, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'x', now(), now())")
	viewer, operator := as("viewer"), as("operator")
	for _, v := range []*world{viewer, operator} {
		v.run("list").want(0).silent()
		v.run("history", "past").want(0).silent()
		v.run("run", "-n", "other", "true").want(77).says("GRANT")
	}
	viewer.run("release", "job", "--force", "--now", "--yes").want(77).says("GRANT")
	operator.run("release", "job", "--force", "--now", "--yes").want(0)

	owner.run("init", "--print", "--role", "x", "--rights", "none").want(64).says("client, guard, viewer or operator")
	owner.run("init", "--print", "--rights", "viewer").want(64).says("--role")
	owner.run("init", "--role", "x", "--rights", "viewer").want(64).says("--print")
}
