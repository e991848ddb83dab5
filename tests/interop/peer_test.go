//go:build interop

package interop

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed peer.py
var peerProgram string

// bound is for what has to happen and says nothing about how soon.
const bound = 30 * time.Second

// settings are those of the Python class Mutex, in seconds. It wants heartbeat <
// alert < stale.
type settings struct {
	DSN       string  `json:"dsn"`
	Lock      string  `json:"lock_name"`
	ID        string  `json:"instance_id"`
	Table     string  `json:"table"`
	Heartbeat float64 `json:"heartbeat_interval"`
	Alert     float64 `json:"alert_threshold"`
	Stale     float64 `json:"stale_threshold"`
	Poll      float64 `json:"poll_interval"`
}

// within are settings with a stale_threshold and the rest in proportion.
func within(stale time.Duration) settings {
	s := stale.Seconds()
	return settings{Table: "mutex_lock", Heartbeat: s / 10, Alert: s / 3, Stale: s, Poll: 0.1}
}

// seldom are the same with so few heartbeats that a test is over before the first.
func seldom(stale time.Duration) settings {
	s := within(stale)
	s.Heartbeat, s.Alert = s.Stale*0.8, s.Stale*0.9
	return s
}

// A peer is a Python process with one Mutex, or one lock manager.
type peer struct {
	t       testing.TB
	id      string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan reply
	stderr  bytes.Buffer // read after the end
	ended   chan struct{}

	*record // what the package told its metrics hook
}

// A reply is a line that a peer writes.
type reply struct {
	Event  string          `json:"event"`
	With   string          `json:"with"`
	Answer json.RawMessage `json:"answer"`
	Error  string          `json:"error"`
	Text   string          `json:"text"`
}

// startPeer starts a process, which ends with the test and gives nothing back.
func startPeer(t testing.TB, dsn, lock, id string, s settings) *peer {
	t.Helper()
	s.DSN, s.Lock, s.ID = dsn, lock, id
	return startPython(t, peerProgram, id, s)
}

// startPython starts a program that speaks the protocol of peer.py.
func startPython(t testing.TB, program, id string, settings any) *peer {
	t.Helper()
	arg, err := json.Marshal(settings)
	must(t, err)
	p := &peer{
		t: t, id: id, answers: make(chan reply, 16),
		ended: make(chan struct{}), record: newRecord(t, id),
	}
	p.cmd = exec.Command(python(t), "-c", program, string(arg))
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "PYTHON")
	}), "PYTHONIOENCODING=utf-8")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the test
	p.cmd.Stderr = &p.stderr
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go p.read(stdout)
	t.Cleanup(func() {
		p.kill()
		if text := p.stderr.String(); text != "" && t.Failed() {
			t.Logf("%s on stderr:\n%s", id, text)
		}
	})
	p.answer() // it is ready
	return p
}

func (p *peer) read(stdout io.Reader) {
	defer close(p.ended)
	defer p.cmd.Wait()
	defer close(p.answers)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			p.t.Errorf("%s wrote %q: %v", p.id, lines.Text(), err)
			return
		}
		if r.Event == "" {
			p.answers <- r
			continue
		}
		p.add(r.Event, r.With)
	}
}

// kill ends the process as a crash would, and reaps it.
func (p *peer) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// freeze stops the process, heartbeats and all; thaw lets it go on.
func (p *peer) freeze() { p.signal(syscall.SIGSTOP) }
func (p *peer) thaw()   { p.signal(syscall.SIGCONT) }

func (p *peer) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal to %s: %v", p.id, err)
	}
}

type args map[string]any

// ask sends a request; answer waits for what comes of it.
func (p *peer) ask(do string, with args) {
	p.t.Helper()
	request := args{"do": do}
	for k, v := range with {
		request[k] = v
	}
	line, err := json.Marshal(request)
	must(p.t, err)
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("%s: %s: %v", p.id, do, err)
	}
}

func (p *peer) answer() reply {
	p.t.Helper()
	return p.answerWithin(bound)
}

func (p *peer) answerWithin(d time.Duration) reply {
	p.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case r, ok := <-p.answers:
		if !ok {
			<-p.ended
			p.t.Fatalf("%s has ended: %v\n%s", p.id, p.cmd.ProcessState, p.stderr.String())
		}
		return r
	case <-timer.C:
		p.t.Fatalf("%s did not answer within %v", p.id, d)
	}
	return reply{}
}

// silent reports that nothing has been answered so far.
func (p *peer) silent() bool { return len(p.answers) == 0 }

// do makes a request that must not raise an exception.
func (p *peer) do(what string, with args) reply {
	p.t.Helper()
	p.ask(what, with)
	return p.clean(p.answer())
}

func (p *peer) clean(r reply) reply {
	p.t.Helper()
	if r.Error != "" {
		p.t.Fatalf("%s: %s: %s", p.id, r.Error, r.Text)
	}
	return r
}

// raises makes a request and returns the name of the exception.
func (p *peer) raises(what string) string {
	p.t.Helper()
	p.ask(what, nil)
	return p.answer().Error
}

// try is acquire(blocking=False).
func (p *peer) try() bool {
	p.t.Helper()
	return yes(p.t, p.do("take", nil))
}

// wait sends acquire(blocking=True) and returns once the first attempt has found
// the lock held.
func (p *peer) wait() {
	p.t.Helper()
	seen := p.count("contended")
	p.ask("take", args{"blocking": true})
	p.await("contended", seen)
}

// granted is the end of a wait.
func (p *peer) granted() {
	p.t.Helper()
	if !yes(p.t, p.clean(p.answer())) {
		p.t.Fatalf("%s waited and did not get the lock", p.id)
	}
}

func yes(t testing.TB, r reply) bool {
	t.Helper()
	return decode[bool](t, r)
}

func decode[T any](t testing.TB, r reply) (v T) {
	t.Helper()
	must(t, json.Unmarshal(r.Answer, &v))
	return v
}
