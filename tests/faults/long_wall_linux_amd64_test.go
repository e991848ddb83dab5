//go:build faults && long

package faults

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A wallClock is the wall clock of a child, which can be stepped while its other
// clocks go on.
//
// libfaketime cannot do that: a Go program asks no C library for the time but the
// code that the kernel maps into every process, and a time namespace has no wall
// clock of its own. So that code is replaced in the child's private copy, before the
// child's first instruction, by one that makes the system call and adds an offset to
// what the wall clock says.
type wallClock struct {
	t      *testing.T
	memory *os.File // of the child
	offset int64    // where it is there
}

// clockGettime is what replaces the kernel's code; the offset in seconds follows it.
var clockGettime = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov  eax, SYS_clock_gettime
	0x0f, 0x05, //                   syscall
	0x85, 0xff, //                   test edi, edi: CLOCK_REALTIME is 0
	0x75, 0x0a, //                   jnz  to the ret
	0x48, 0x8b, 0x0d, 0x06, 0x00, 0x00, 0x00, // mov rcx, [rip+6]
	0x48, 0x01, 0x0e, //             add  [rsi], rcx
	0xc3,       //             ret
	0x90, 0x90, //                   so that what follows can be written at once
}

// start starts a child with such a clock.
func (c *wallClock) start(cmd *exec.Cmd) error {
	runtime.LockOSThread() // all of this is the right of the thread that started it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true} // stopped by its exec
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return fmt.Errorf("wait for the exec: %w", err)
	}
	if !status.Stopped() {
		return fmt.Errorf("not stopped by its exec: %#x", status)
	}
	err := errors.Join(c.replace(pid), syscall.PtraceDetach(pid))
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return nil
}

func (c *wallClock) replace(pid int) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	var from, to int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				return err
			}
		}
	}
	if c.memory, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err != nil {
		return err
	}
	image := make([]byte, to-from)
	if _, err := c.memory.ReadAt(image, from); err != nil {
		return err
	}
	object, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := object.DynamicSymbols()
	if err != nil {
		return err
	}
	code := append(clockGettime[:len(clockGettime):len(clockGettime)], make([]byte, 8)...)
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		if s.Size < uint64(len(code)) || s.Value%8 != 0 {
			return fmt.Errorf("no room for our code in the kernel's: %d bytes at %#x", s.Size, s.Value)
		}
		at := from + int64(s.Value)
		c.offset = at + int64(len(clockGettime))
		_, err := c.memory.WriteAt(code, at)
		return err
	}
	return errors.New("the kernel's code has no __vdso_clock_gettime")
}

// set says how far the child's wall clock is from ours.
func (c *wallClock) set(w *world, d time.Duration) {
	c.t.Helper()
	_, err := c.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second)), c.offset)
	pgtest.Must(c.t, err)
	w.history.add(call{Op: "fault", Outcome: "clock " + d.String(), Start: now()})
}

// step is set for a child that can answer, and does see it.
func (c *wallClock) step(w *world, child *child, d time.Duration) {
	c.t.Helper()
	c.set(w, d)
	child.send("clock")
	at, err := strconv.ParseInt(child.reply(), 10, 64)
	pgtest.Must(c.t, err)
	if off := time.Until(time.Unix(0, at)) - d; off.Abs() > time.Minute {
		c.t.Fatalf("the child's clock is %v from what was set", off)
	}
}

// Row 32: a client's wall clock is set a day ahead, or back. That changes nothing:
// not for what it holds, not for what it waits for, and not for its end when it is
// cut off.
func TestN32ClientClock(t *testing.T) {
	for name, fresh := range engines {
		for _, day := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
			t.Run(fmt.Sprint(name, " ", day), func(t *testing.T) {
				t.Parallel()
				w := fresh(t, nil)
				w.allowed = 0 // nothing ends a session here but its own silence
				staleAfter, trust := stale, fence
				if w.sessions {
					staleAfter, trust = session, trusted
				}
				clock := &wallClock{t: t}
				proxy := faultconn.New(t, w.server.Addr())
				rival := w.client("rival")
				c := w.child("stepped", "job", func(s *childSettings) { s.DSN, s.start = proxy.DSN(w.dsn), clock.start })
				t.Cleanup(func() { _ = clock.memory.Close() })

				// What it holds.
				c.ask("take", "taken")
				for _, d := range []time.Duration{day, 0, day} {
					clock.step(w, c, d)
					pass(t.Context(), staleAfter)
					c.ask("held", "true")
					if _, err := rival.take(t.Context(), "job", false); !errors.Is(err, pgmutex.ErrHeld) {
						t.Errorf("under a live holder: %v", err)
					}
				}
				c.ask("write", "committed")
				c.ask("end", "released")

				// What it waits for.
				h := rival.must("job")
				c.send("take")
				for _, d := range []time.Duration{0, day} {
					pass(t.Context(), staleAfter)
					clock.set(w, d)
				}
				pass(t.Context(), staleAfter)
				if !h.look() {
					t.Errorf("lost to a waiter whose clock was set: %v", h.Err())
				}
				pgtest.Must(t, h.end(t.Context()))
				if got := c.reply(); got != "taken" {
					t.Fatalf("the waiter: %s", got)
				}

				// Its end.
				c.ask("take unseen", "taken")
				clock.step(w, c, 0)
				granted := rival.next("job", 20*time.Second)
				proxy.Freeze(freezeBoth)
				cut := now()
				clock.step(w, c, day)
				c.send("told")
				late, err := time.ParseDuration(c.reply())
				pgtest.Must(t, err)
				told := now()
				t.Logf("told %v after the deadline, %v after the cut", late, told-cut)
				if late < 0 || late > slack || told-cut > trust+slack {
					t.Errorf("told %v after the deadline, %v after the cut", late, told-cut)
				}
				g := <-granted
				if g == nil {
					return
				}
				if told > g.began {
					t.Errorf("told %v after the next holder began", told-g.began)
				}
				proxy.Thaw(freezeBoth)
				c.ask("end", "lost")
				pgtest.Must(t, g.end(t.Context()))
				c.quit()
				w.judge(demand{"acquire granted", "acquire held", "write committed", "fault"})
			})
		}
	}
}
