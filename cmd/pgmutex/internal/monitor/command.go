package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Command runs a program for each notice, without a shell: the notice is in its
// environment, and as JSON on its standard input.
type Command struct {
	Path    string
	Args    []string
	Timeout time.Duration
	Output  io.Writer // what the program writes
}

// Name implements Sink.
func (c *Command) Name() string { return "command" }

// Send implements Sink. The program and everything that it started are killed
// when the time is up. There is one attempt: what it did by then is not known.
func (c *Command) Send(ctx context.Context, n Notice) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = append(withoutSecrets(os.Environ()), n.environment()...)
	cmd.Stdin = bytes.NewReader(append(body, '\n'))
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for those who keep its output open
	err = cmd.Run()
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("has not ended within %s: %w", c.Timeout, err)
	}
	return err
}

// environment is the notice for programs.
func (n Notice) environment() []string {
	var env []string
	for _, v := range []struct{ name, value string }{
		{"ID", n.ID}, {"EVENT", n.Event}, {"TEXT", n.Text}, {"LOCK", n.Lock}, {"HOLDER", n.Holder}, {"TERM", n.Term},
		{"TOKEN", n.Token}, {"SINCE", n.Since.Format(time.RFC3339Nano)}, {"HEARTBEAT_AGE", decimal(n.HeartbeatAge)},
		{"THRESHOLD", decimal(n.Threshold)}, {"REMAINING", decimal(n.Remaining)}, {"WAITERS", strconv.Itoa(n.Waiters)},
		{"REASON", n.Reason}, {"NEXT_HOLDER", n.NextHolder},
	} {
		if v.value != "" {
			env = append(env, "PGMUTEX_ALERT_"+v.name+"="+v.value)
		}
	}
	return env
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// withoutSecrets leaves out what a program that tells people need not know.
func withoutSecrets(env []string) []string {
	var kept []string
	for _, e := range env {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "PGMUTEX_URL", "PGPASSWORD", SecretVariable, URLVariable:
		default:
			kept = append(kept, e)
		}
	}
	return kept
}

// Variables that are read instead of arguments, which everybody on the host can
// see.
const (
	URLVariable    = "PGMUTEX_WEBHOOK"
	SecretVariable = "PGMUTEX_WEBHOOK_SECRET"
)
