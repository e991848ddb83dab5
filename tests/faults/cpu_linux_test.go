//go:build faults && long

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// serverCPU is the processor time that the server's processes have had so far, those
// that have ended included.
func (w *world) serverCPU() (time.Duration, bool) {
	w.t.Helper()
	conn := pgtest.Conn(w.t, w.dsn)
	backend, err := readStat(fmt.Sprint(pgtest.One[int32](w.t, conn, "SELECT pg_backend_pid()")))
	pgtest.Must(w.t, err)
	pgtest.Must(w.t, conn.Close(w.t.Context()))
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	pgtest.Must(w.t, err)
	// The postmaster last: a process that ends in between is then counted there, and
	// twice at worst.
	var ticks int64
	for _, file := range files {
		if s, err := readStat(filepath.Base(filepath.Dir(file))); err == nil && s.parent == backend.parent {
			ticks += s.own
		}
	}
	postmaster, err := readStat(strconv.Itoa(backend.parent))
	pgtest.Must(w.t, err)
	const tick = time.Second / 100 // USER_HZ, the same for all of Linux's ports that Go knows
	return time.Duration(ticks+postmaster.own+postmaster.ended) * tick, true
}

type stat struct {
	parent     int
	own, ended int64 // in ticks, of the process and of its children that have ended
}

func readStat(pid string) (stat, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return stat{}, err // ended, where it was found by its file
	}
	// The second field is a name in brackets and may hold anything.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 15 {
		return stat{}, fmt.Errorf("%s: %q", pid, text)
	}
	var n [5]int64
	for i, field := range []string{f[1], f[11], f[12], f[13], f[14]} {
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return stat{}, err
		}
	}
	return stat{parent: int(n[0]), own: n[1] + n[2], ended: n[3] + n[4]}, nil
}
