package local

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pgmutex/pgmutex/engine"
)

// fails returns the error of a start that must fail, and makes sure that the
// file is as it was.
func fails(t *testing.T, h *host, path string) error {
	t.Helper()
	before, _ := os.ReadFile(path)
	p := newProcess(path, Options{}, h.machine())
	err := p.Start(context.Background(), nil)
	if err == nil {
		p.Close(context.Background())
		t.Fatal("started")
	}
	if a := ask(p, request("x", "a")); a.Outcome != engine.Failed {
		t.Errorf("acquire on an engine that did not start: %+v", a)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	return err
}

func TestFileIsTheOwnersAlone(t *testing.T) {
	path := store(t)
	p := start(t, newHost(), path)
	grant(t, p, request("x", "a"))
	for _, f := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + f)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode(); mode != 0o600 {
			t.Errorf("locks.db%s has mode %v, want 0600", f, mode)
		}
	}
	p.Close(context.Background())
	// Rights that were given are kept, and those who come later get them too.
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	start(t, newHost(), path)
	if info, _ := os.Stat(path); info.Mode() != 0o660 {
		t.Errorf("mode %v, want the 0660 that it was given", info.Mode())
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	h, dir := newHost(), t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mention(t, fails(t, h, dir), dir, "directory")
	mention(t, fails(t, h, os.DevNull), os.DevNull, "regular")

	missing := filepath.Join(dir, "missing", "locks.db")
	err := fails(t, h, missing)
	if mention(t, err, missing, "directory"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not match fs.ErrNotExist", err)
	}

	text := file("text", "these are certainly not the locks that you are looking for, but a text of some length\n")
	mention(t, fails(t, h, text), text, "not a lock file")

	one, two := file("one.db", ""), filepath.Join(dir, "two.db")
	if err := os.Link(one, two); err != nil {
		t.Fatal(err)
	}
	mention(t, fails(t, h, two), two, "hard links")

	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE precious (a)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	mention(t, fails(t, h, foreign), foreign, "another program")

	if _, err := New("a\x00b", nil); err == nil {
		t.Error("a path with a zero byte is accepted")
	}
}

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	h, path := newHost(), store(t)
	h.refuse = remoteError(path, "NFS")
	err := fails(t, h, path)
	mention(t, err, path, "NFS", "local disk")
	if _, err := os.Stat(path); err == nil {
		t.Error("something was created there")
	}
	// One that is there already.
	h.refuse = nil
	start(t, h, path).Close(context.Background())
	h.refuse = remoteError(path, "NFS")
	mention(t, fails(t, h, path), "NFS")
	p := newProcess(path, Options{AnyFileSystem: true}, h.machine())
	if err := p.Start(context.Background(), nil); err != nil {
		t.Errorf("with AnyFileSystem: %v", err)
	}
	p.Close(context.Background())
}

func TestTheFileSystemOfThisTest(t *testing.T) {
	path := t.TempDir()
	if err := checkFileSystem(path); err != nil {
		t.Skip("runs on ", err)
	}
	if err := checkFileSystem(filepath.Join(path, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestDamagedFile(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	grant(t, p, request("x", "a"))
	p.Close(context.Background())

	// All but the first page, which says what the file is. The log has a copy of
	// what was written last.
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(info.Size())-4096), 4096); err != nil {
		t.Fatal(err)
	}
	f.Close()
	p = start(t, h, path)
	a := ask(p, request("x", "b"))
	if a.Outcome != engine.Refused {
		t.Fatalf("%+v", a)
	}
	mention(t, a.Err, path, "damaged")
	if s := renew(p, engine.Term{Name: "x", ID: "a~1"}); s.Health != engine.Unclear {
		t.Errorf("renewal in a damaged file: %+v", s)
	}

	// A header that is cut off.
	if err := os.Truncate(path, 50); err != nil {
		t.Fatal(err)
	}
	mention(t, fails(t, h, path), path)
}

func TestFormats(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	mark := func(version int) {
		t.Helper()
		if err := p.db.exec(fmt.Sprint("PRAGMA user_version = ", version)); err != nil {
			t.Fatal(err)
		}
	}

	// The next minor format adds columns and tables; both programs go on.
	if err := p.db.exec("ALTER TABLE lock ADD COLUMN more TEXT NOT NULL DEFAULT ''; CREATE TABLE extra (a)"); err != nil {
		t.Fatal(err)
	}
	mark(format + 1)
	term := grant(t, p, request("x", "a"))
	q := start(t, h, path)
	wantBusy(t, q, request("x", "b"))
	if s := renew(p, term); s.Health != engine.Held {
		t.Errorf("%+v", s)
	}
	var version int64
	if err := q.db.row("PRAGMA user_version").scan(&version); err != nil || version != format+1 {
		t.Errorf("the newer format was set back to %d (%v)", version, err)
	}

	// Another major one is refused.
	mark(2 * formatSteps)
	mention(t, fails(t, h, path), path, "format 2.0", "1.x")
}

func TestOlderFormatIsBroughtUpToDate(t *testing.T) {
	h, path := newHost(), store(t)
	term := grant(t, start(t, h, path), request("x", "a"))
	if format != formatMajor*formatSteps {
		t.Skip("there are additions now: test those")
	}
	if err := func() error {
		p := start(t, h, path)
		return p.db.transact(begin, func() error { return p.db.raiseFormat(p.boot) })
	}(); err != nil {
		t.Fatalf("raising what is up to date: %v", err)
	}
	if s := renew(start(t, h, path), term); s.Health != engine.Held {
		t.Errorf("%+v", s)
	}
}

func TestFileThatIsReplaced(t *testing.T) {
	h, path := newHost(), store(t)
	a := start(t, h, path)
	term := grant(t, a, request("x", "a"))
	for _, f := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + f); err != nil {
			t.Fatal(err)
		}
	}
	b := start(t, h, path)
	grant(t, b, request("x", "b"))
	if s := renew(a, term); s.Health != engine.Gone || s.Reason != engine.LostRowGone {
		t.Errorf("the holder in the old file: %+v", s)
	}
	if got := wantBusy(t, a, request("x", "a")).Holder.Holder; got != "b" {
		t.Errorf("held by %q", got)
	}

	// Only the file, as somebody does who does not know of the others.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	grant(t, a, request("x", "a"))
	wantBusy(t, b, request("x", "b"))

	// A directory that is gone is an error, and comes back.
	dir := filepath.Dir(path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if s := renew(a, term); s.Health != engine.Unclear || s.Err == nil {
		t.Errorf("without a directory: %+v", s)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	wantBusy(t, b, request("x", "b"))
}

func TestOpenByAnotherName(t *testing.T) {
	h, path := newHost(), store(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	mention(t, fails(t, h, link), link) // leads nowhere yet
	grant(t, start(t, h, path), request("x", "a"))
	wantBusy(t, start(t, h, link), request("x", "b"))
	// Names that mean something in SQLite's.
	for _, name := range []string{"a?b.db", "a#b%20c.db", ":memory:", "sp ace & ü.db"} {
		path := filepath.Join(t.TempDir(), name)
		grant(t, start(t, h, path), request("x", "a"))
		wantBusy(t, start(t, h, path), request("x", "b"))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestDefaultPath(t *testing.T) {
	for _, c := range []struct {
		goos string
		env  map[string]string
		want string
	}{
		{"linux", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/pgmutex/locks.db"},
		{"linux", map[string]string{"HOME": "/h"}, "/h/.local/state/pgmutex/locks.db"},
		{"linux", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "rel"}, "/h/.local/state/pgmutex/locks.db"},
		{"linux", map[string]string{"XDG_STATE_HOME": "/s"}, "/s/pgmutex/locks.db"},
		{"darwin", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/h/Library/Application Support/pgmutex/locks.db"},
		{"linux", nil, ""},
		{"darwin", map[string]string{"XDG_STATE_HOME": "/s"}, ""},
		{"linux", map[string]string{"HOME": "rel"}, ""},
	} {
		got, err := defaultPath(c.goos, func(k string) string { return c.env[k] })
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s %v: %q, %v", c.goos, c.env, got, err)
		}
		if err != nil {
			mention(t, err, "HOME")
		}
	}
}

func TestStartAndCloseTwice(t *testing.T) {
	p := newProcess(store(t), Options{}, newHost().machine())
	ctx := context.Background()
	if a := ask(p, request("x", "a")); a.Outcome != engine.Failed || !errors.Is(a.Err, errNotStarted) {
		t.Errorf("before Start: %+v", a)
	}
	if err := p.Start(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx, nil); !errors.Is(err, errStarted) {
		t.Errorf("second Start: %v", err)
	}
	for range 2 {
		if err := p.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := p.Start(ctx, nil); !errors.Is(err, errClosed) {
		t.Errorf("Start after Close: %v", err)
	}
	if a := ask(p, request("x", "a")); a.Outcome != engine.Refused || !errors.Is(a.Err, errClosed) {
		t.Errorf("after Close: %+v", a)
	}
	if s := renew(p, engine.Term{Name: "x", ID: "a~1"}); s.Health != engine.Unclear {
		t.Errorf("renewal after Close: %+v", s)
	}
}
