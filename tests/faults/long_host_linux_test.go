//go:build faults && long

package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 17: the postmaster is killed and its children are not. Those that wait for
// something notice and end; one that computes lives on, and with it the shared
// memory, so that no second server can begin on the same data. Until then nobody
// answers, and nobody gets a lock.
func TestN17PostmasterKilled(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			w := fresh(t, pgtest.New(t, pgtest.Options{Durable: true}))
			w.allowed = 0 // while nobody answers, nobody is granted what another believes in
			staleAfter := stale
			if w.sessions {
				staleAfter = session
			}
			holder, rival := w.client("holder"), w.client("rival", hasty)
			rival.warm() // it has sessions that the fault ends
			h := holder.must("job")
			if got := h.write(t.Context(), nil); got != "committed" {
				t.Fatalf("write: %s", got)
			}
			if _, err := rival.take(t.Context(), "job", false); !errors.Is(err, pgmutex.ErrHeld) {
				t.Fatalf("the rival: %v", err)
			}
			data := w.dataDirectory()
			survivor := w.computing()
			postmaster := data.postmaster()
			killed := now()
			data.kill(postmaster)
			w.history.add(call{Op: "killed", Start: killed})

			// Until it has noticed, a session may answer what has already arrived.
			pgtest.WaitFor(t, "all processes but the one that computes to end", func() bool {
				left := data.processes()
				return len(left) == 1 && left[0] == survivor
			})
			t.Logf("all but one ended within %v", now()-killed)
			refused := 0
			w.cannotStart()
			for now()-killed < 2*staleAfter { // longer than the hold is trusted, and than it keeps others out
				_, err := rival.take(t.Context(), "job", false)
				if err == nil || errors.Is(err, pgmutex.ErrHeld) {
					t.Fatalf("an answer without a server: %v", err)
				}
				refused++
				pass(t.Context(), heartbeat)
			}
			w.cannotStart()
			h.lostWithin(bound)
			told := h.overBy(h.Deadline())
			var lost *pgmutex.LostError
			if !errors.As(context.Cause(h.Context()), &lost) {
				t.Fatalf("cause: %v", context.Cause(h.Context()))
			}
			t.Logf("told %v after the kill, %s; %d attempts failed", told-killed, lost.Reason(), refused)
			// That the session has ended is only known before the deadline.
			if want := map[bool]pgmutex.LossReason{true: pgmutex.LostSessionEnded, false: pgmutex.LostExpired}[w.sessions]; lost.Reason() != want {
				t.Errorf("lost: %s", lost.Reason())
			}
			if left := data.processes(); len(left) != 1 || left[0] != survivor {
				t.Fatalf("vacuous: processes %v, the one that computes is %d", left, survivor)
			}

			holder.proxy.Refuse(true) // or it might remove its own row before the rival comes
			data.kill(survivor)
			pgtest.WaitFor(t, "the last process to end", func() bool { return len(data.processes()) == 0 })
			mark := w.server.LogMark()
			pgtest.Must(t, w.server.Start())
			if log := w.server.LogSince(mark); !strings.Contains(log, "automatic recovery in progress") {
				t.Errorf("the server did not recover:\n%s", log)
			}
			var beat time.Time
			if !w.sessions {
				beat = pgtest.One[time.Time](t, w.dsn, "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = 'job' AND instance_id = $1", h.Info().Term)
			}
			g := <-rival.next("job", bound)
			if g == nil {
				return
			}
			if told > g.began {
				t.Errorf("told %v after the next holder began", told-g.began)
			}
			if !w.sessions {
				how := pgtest.Column[string](t, w.dsn, "SELECT how FROM mutex_lock_event WHERE instance_id = $1", h.Info().Term)
				if silence := g.Info().AcquiredAt.Sub(beat); !slices.Equal(how, []string{"taken over"}) || silence < stale {
					t.Errorf("%q %v after the last heartbeat", how, silence)
				}
			}
			if got := g.write(t.Context(), nil); got != "committed" {
				t.Errorf("the rival's write: %s", got)
			}
			if got := h.write(t.Context(), nil); got != "refused" {
				t.Errorf("the write of a hold that is lost: %s", got)
			}
			holder.heal()
			if err := h.end(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
				t.Errorf("release of what was lost: %v", err)
			}
			if err := g.Heartbeat(t.Context()); err != nil {
				t.Errorf("the rival: %v", err)
			}
			pgtest.Must(t, g.end(t.Context()))
			w.judge(demand{"acquire granted", "acquire held", "acquire failed", "killed", "lost", "write committed", "write refused"})
		})
	}
}

// cannotStart tries to start the server on data that a process of it still has.
func (w *world) cannotStart() {
	w.t.Helper()
	var err error
	pgtest.WaitFor(w.t, "the end of the postmaster to be noticed", func() bool {
		err = w.server.Start()
		return err == nil || !strings.Contains(err.Error(), "already running")
	})
	switch {
	case err == nil:
		w.t.Fatal("a second server began on the data of the first")
	case !strings.Contains(err.Error(), "shared memory block"):
		w.t.Fatalf("start: %v", err)
	}
}

// bound is how long a free lock may take on a machine that has other things to do.
const bound = 20 * time.Second

// overBy asserts that a hold that is over was not seen to be held after its deadline,
// and returns when it was seen to be over.
func (h *holding) overBy(deadline time.Time) time.Duration {
	t := h.c.w.t
	t.Helper()
	left := time.Until(deadline)
	at := now() + left // rather too late than too early
	h.look()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until > at {
		t.Errorf("held %v after the deadline", h.until-at)
	}
	return h.over
}

// A dataDirectory is that of a server of ours, in which each process of it runs,
// whoever its parent is.
type dataDirectory struct {
	t    testing.TB
	path string
}

func (w *world) dataDirectory() dataDirectory {
	w.t.Helper()
	path, err := filepath.EvalSymlinks(pgtest.One[string](w.t, w.dsn, "SHOW data_directory"))
	pgtest.Must(w.t, err)
	return dataDirectory{w.t, path}
}

// processes are those that run there. A zombie does not: nobody may reap it here.
func (d dataDirectory) processes() (pids []int) {
	d.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	pgtest.Must(d.t, err)
	for _, link := range links {
		if where, err := os.Readlink(link); err == nil && where == d.path {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pgtest.Must(d.t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// postmaster is the first line of the server's own file.
func (d dataDirectory) postmaster() int {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.path, "postmaster.pid"))
	pgtest.Must(d.t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	pgtest.Must(d.t, err)
	return pid
}

// kill ends one process, which has to be of this server.
func (d dataDirectory) kill(pid int) {
	d.t.Helper()
	if where, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err != nil || where != d.path {
		d.t.Fatalf("process %d is in %q: %v", pid, where, err)
	}
	pgtest.Must(d.t, syscall.Kill(pid, syscall.SIGKILL))
}

// computing is the process of a session that computes, and waits for nothing, until it
// is killed, or for two minutes.
func (w *world) computing() int {
	w.t.Helper()
	conn, data := pgtest.Conn(w.t, w.dsn), w.dataDirectory()
	pid, done := int(conn.PgConn().PID()), make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(w.t.Context()), `DO $$
			DECLARE enough timestamptz := clock_timestamp() + '2 min';
			BEGIN WHILE clock_timestamp() < enough LOOP END LOOP; END $$`)
		done <- err
	}()
	w.t.Cleanup(func() { // also after a failure: nothing else would find it
		if where, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err == nil && where == data.path {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ended meanwhile
		}
		if err := <-done; err == nil {
			w.t.Error("vacuous: the computation came to its end")
		}
	})
	pgtest.WaitFor(w.t, "the computation to begin", func() bool {
		return pgtest.One[string](w.t, w.dsn, "SELECT state FROM pg_stat_activity WHERE pid = $1", pid) == "active"
	})
	return pid
}

// Row 19: the disk is full. At first no table can grow, and the server lives; then the
// log of changes cannot grow either, and it does not. What is not granted fails with
// the server's own words, what was granted is there afterwards, and with room on the
// disk everything goes on.
func TestN19DiskFull(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, 160<<20)
			w := fresh(t, pgtest.New(t, pgtest.Options{Durable: true, Dir: d.path, Settings: map[string]string{
				"authentication_timeout": "'2s'", // as in row 14
			}}))
			same := func(o *pgmutex.Options) { o.StaleAfter, o.Heartbeat = session, session/12 }
			holder, rival, crowd := w.client("holder", same), w.client("rival", same, hasty), w.client("crowd", func(o *pgmutex.Options) {
				o.StaleAfter, o.Heartbeat = 5*session, session/6
			})
			h := holder.must("job")
			if got := h.write(t.Context(), nil); got != "committed" { // the tables have a first page
				t.Fatalf("write: %s", got)
			}
			rival.warm()
			// A slot that nobody reads keeps the log, so that no part of it is used again.
			pgtest.Exec(t, w.dsn, "SELECT pg_create_physical_replication_slot('forgotten', true)")
			witness := pgtest.Conn(t, w.dsn)

			d.fill()
			w.history.add(call{Op: "fault", Outcome: "disk full", Start: now()})
			full := func(what string, err error) {
				t.Helper()
				if err == nil || errors.Is(err, pgmutex.ErrHeld) || errors.Is(err, pgmutex.ErrUnknown) || !strings.Contains(err.Error(), "53100") {
					t.Errorf("%s: %v", what, err)
				}
			}
			for n, got := 0, "committed"; got == "committed" && n < 1000; n++ { // until the page is full
				rec := call{Op: "write", Client: "holder", Name: "job", Token: h.Token(), Start: now()}
				var err error
				got, err = h.increment(t.Context(), nil)
				rec.End, rec.Outcome = now(), got
				w.history.add(rec)
				if got != "committed" {
					full("write: "+got, err)
				}
			}
			var granted []*holding
			var failed []string
			for n := 0; n < 50 && len(failed) < 3; n++ {
				name := "more-" + strconv.Itoa(n)
				g, err := crowd.take(t.Context(), name, false)
				if err == nil {
					granted = append(granted, g)
					continue
				}
				full("acquire", err)
				failed = append(failed, name)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := rival.take(ctx, "job", true)
			cancel()
			if t.Logf("a waiter: %v", err); err == nil {
				t.Error("two holders")
			}
			released := granted[0].Name()
			err = granted[0].end(t.Context())
			if t.Logf("a release: %v", err); err == nil && w.rows(released)+w.locked(released) != 0 {
				t.Error("given back, and still there")
			}
			granted = granted[1:]
			pass(t.Context(), session+slack)
			if err := witness.Ping(t.Context()); err != nil {
				t.Fatalf("vacuous: the server has not lived on: %v", err)
			}
			t.Logf("the server lives: %d granted, %d failed, held %v", len(granted), len(failed), h.look())
			switch {
			case w.sessions && !h.look(): // its pings need no disk
				t.Errorf("lost: %v", h.Err())
			case !w.sessions && len(failed) == 0:
				t.Error("vacuous: the lock table has grown")
			}

			// The end of the log's room is the server's end, too. One that recovers
			// within what room is left meets the next flood.
			refused := 0
			for began := now(); (h.look() || refused == 0) && now()-began < time.Minute; {
				flooded := w.flood()
				g, err := rival.take(t.Context(), "job", false)
				switch {
				case err == nil:
					_ = g.end(t.Context()) // whether it may, the judge says
				case !errors.Is(err, pgmutex.ErrHeld):
					if refused++; refused == 1 {
						t.Logf("flood: %v; the rival: %v", flooded, err)
					}
				}
				pass(t.Context(), heartbeat)
			}
			if h.look() || refused == 0 {
				t.Fatalf("vacuous: the log has room, %d attempts failed", refused)
			}
			h.lostWithin(bound)
			h.overBy(h.Deadline())
			t.Logf("%d attempts failed; %v; the server's sessions ended: %v", refused, h.Err(), witness.Ping(t.Context()))

			d.free()
			pgtest.WaitFor(t, "the server to recover", func() bool {
				_ = w.server.Start() // an error where the postmaster has not given up
				conn, err := pgx.Connect(t.Context(), w.dsn)
				if err == nil {
					_ = conn.Close(t.Context())
				}
				return err == nil
			})
			recovered := now()
			there := pgtest.Column[string](t, w.dsn, "SELECT lock_name FROM mutex_lock")
			kept := 0
			for _, g := range granted {
				switch held := g.look(); {
				case held && (w.sessions || !slices.Contains(there, g.Name())):
					t.Errorf("%q is held and not there", g.Name())
				case held:
					kept++
				}
			}
			for _, name := range failed {
				if slices.Contains(there, name) {
					t.Errorf("%q was not granted and is there", name)
				}
			}
			for _, name := range append(failed, "job", released) {
				if n := w.locked(name); n != 0 {
					t.Errorf("%q is locked %d times", name, n)
				}
			}
			g := <-rival.next("job", session+bound)
			if g == nil {
				return
			}
			t.Logf("recovered, %d of %d holds are kept, the next holder came %v later", kept, len(granted), g.began-recovered)
			if got := g.write(t.Context(), nil); got != "committed" {
				t.Errorf("the rival's write: %s", got)
			}
			if got := h.write(t.Context(), nil); got != "refused" {
				t.Errorf("the write of a hold that is lost: %s", got)
			}
			if err := h.end(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
				t.Errorf("release of what was lost: %v", err)
			}
			for _, g := range granted {
				if err := g.end(t.Context()); err != nil && !errors.Is(err, pgmutex.ErrLost) {
					t.Errorf("release: %v", err)
				}
			}
			pgtest.Must(t, g.end(t.Context()))
			w.free(released)
			w.judge(demand{"acquire granted", "acquire failed", "lost", "write committed", "write failed", "write refused", "fault"})
		})
	}
}

// flood writes to the server's log of changes until that fails.
func (w *world) flood() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "SELECT count(pg_logical_emit_message(false, 'flood', repeat('x', 8000))) FROM generate_series(1, 15000)")
	return err
}

// A disk is small, and only a server of ours is on it.
type disk struct {
	t      testing.TB
	path   string
	filler *os.File
}

func newDisk(t testing.TB, size int) *disk {
	t.Helper()
	path, err := os.MkdirTemp("/tmp", "pgmdisk") //nolint:usetesting // the test's own is closed to the server's user
	pgtest.Must(t, err)
	d := &disk{t: t, path: path}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("pgmutex", path, "tmpfs", 0, "mode=0755,size="+strconv.Itoa(size)); err != nil {
		t.Fatalf("a small disk takes root and the right to mount: %v", err)
	}
	t.Cleanup(func() { // after the server, which was made later
		d.free()
		if err := syscall.Unmount(path, 0); err != nil {
			t.Errorf("unmount %s: %v, %v", path, err, syscall.Unmount(path, syscall.MNT_DETACH))
		}
	})
	return d
}

// fill leaves no room. The file has no name, so it is gone with this process at the
// latest.
func (d *disk) fill() {
	d.t.Helper()
	f, err := os.CreateTemp(d.path, "filler")
	pgtest.Must(d.t, err)
	d.filler = f
	pgtest.Must(d.t, os.Remove(f.Name()))
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("fill the disk: %v", err)
	}
}

// free takes the file away.
func (d *disk) free() {
	if d.filler != nil {
		_ = d.filler.Close() // twice in the end
	}
}
