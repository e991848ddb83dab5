package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of whatever loses its own below it, so that
// a daemon stays recognisable as the command's. It does not if there are children
// already, which a script may have left to the program that it became: they, and
// what they leave behind, are not the command's.
func adopt() process {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if !errors.Is(err, unix.ECHILD) {
		return process{}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return process{}
	}
	own, err := readStat(os.Getpid())
	if err != nil {
		return process{}
	}
	return process{own.pid, own.start}
}

// A stat is what the kernel tells of a process.
type stat struct {
	pid, parent, group int
	state              byte
	start              uint64
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	s := stat{pid: pid}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // a name may contain anything
	if len(fields) < 20 {
		return s, errors.New("a process without a state")
	}
	s.state = fields[0][0]
	s.parent, _ = strconv.Atoi(string(fields[1]))
	s.group, _ = strconv.Atoi(string(fields[2]))
	s.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return s, err
}

// strays returns whom the kernel shows as such.
func (o origin) strays(group int, spare []int) []stray {
	spare = append([]int{os.Getpid()}, spare...)
	stats := processes()
	kin := o.kin(stats, spare)
	var found []stray
	for pid, s := range stats {
		if slices.Contains(spare, pid) || s.group == group || s.state == 'Z' {
			continue
		}
		// The environment of another user's process cannot be read, nor the
		// process be signalled, unless by root.
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		under, inner := o.marks(environ)
		if under || kin[pid] {
			found = append(found, stray{pid: pid, start: s.start, inner: inner})
		}
	}
	return found
}

// processes returns all that there are.
func processes() map[int]stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	stats := make(map[int]stat, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if s, err := readStat(pid); err == nil {
				stats[pid] = s
			}
		}
	}
	return stats
}

// kin returns the descendants of the wrapper, but for those who are spared.
func (o origin) kin(stats map[int]stat, spare []int) map[int]bool {
	root := o.parent.pid
	if s, ok := stats[root]; !ok || s.start != o.parent.start {
		return nil
	}
	kin := map[int]bool{}
	for pid := range stats {
		var path []int
		for at := pid; ; at = stats[at].parent {
			if at == root || kin[at] {
				for _, p := range path {
					kin[p] = true
				}
				break
			}
			// The path is no longer than there are processes, whatever was
			// reparented while they were read.
			if at == 0 || slices.Contains(spare, at) || len(path) > len(stats) {
				break
			}
			path = append(path, at)
		}
	}
	return kin
}

// marks tells whether a process with this environment runs under the hold, and
// whether under another one inside of that.
func (o origin) marks(environ []byte) (under, inner bool) {
	if o.term == "" {
		return false, false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := bytes.Cut(entry, []byte("="))
		switch string(name) {
		case TermVariable:
			under = under || string(value) == o.term
			inner = string(value) != o.term
		case OuterVariable:
			for line := range bytes.SplitSeq(value, []byte("\n")) {
				term, _, _ := bytes.Cut(line, []byte("\t"))
				under = under || string(term) == o.term
			}
		}
	}
	return under, inner
}

// signal signals this very process, not a later one with its pid.
func (p stray) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if s, gone := readStat(p.pid); gone != nil || s.start != p.start {
		return
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// A kernel before 5.3, or a container that allows no such calls.
		_ = unix.Kill(p.pid, sig)
	}
	if sig == unix.SIGTERM {
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}
