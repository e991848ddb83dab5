package monitor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var sample = Notice{
	ID: "x1", Event: Fired, Text: "it is silent", Lock: "job; rm -rf $HOME", Holder: "a b", Term: "a~1",
	Since: time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), HeartbeatAge: 31.5, Threshold: 30, Details: map[string]string{"host": "db1"},
}

func hook(t *testing.T, url string) *Webhook {
	t.Helper()
	w, err := NewWebhook(url, "X-Token", "s3cret", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w.pause = time.Millisecond
	return w
}

// TestWebhook: the notice arrives whole, with its secret header, at the first
// attempt that succeeds.
func TestWebhook(t *testing.T) {
	var attempts atomic.Int32
	var got Notice
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if attempts.Add(1) < 3 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		header = r.Header
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != http.MethodPost {
			t.Errorf("%s: %v", r.Method, err)
		}
	}))
	defer server.Close()
	if err := hook(t, server.URL+"/in").Send(t.Context(), sample); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(sample) || attempts.Load() != 3 {
		t.Errorf("after %d attempts got %+v", attempts.Load(), got)
	}
	if header.Get("X-Token") != "s3cret" || header.Get("Content-Type") != "application/json" {
		t.Errorf("headers are %v", header)
	}
}

// TestWebhookFailures: attempts are bounded, refusals are final, a redirection does
// not carry the secret elsewhere, and no error shows the address.
func TestWebhookFailures(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, c := range []struct {
		code, attempts int
		text           string
	}{
		{http.StatusInternalServerError, 5, "answered 500"},
		{http.StatusTooManyRequests, 5, "answered 429"},
		{http.StatusForbidden, 1, "answered 403"},
		{http.StatusTemporaryRedirect, 1, "answered 307"},
		{0, 5, ""}, // never answers
	} {
		var attempts atomic.Int32
		stop := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempts.Add(1)
			if c.code == 0 {
				_, _ = io.Copy(io.Discard, r.Body)
				select {
				case <-r.Context().Done():
				case <-stop:
				}
				return
			}
			w.Header().Set("Location", other.URL)
			w.WriteHeader(c.code)
		}))
		w := hook(t, server.URL+"/services/T0/secret-path")
		if c.code == 0 {
			w.Timeout = 50 * time.Millisecond
		}
		err := w.Send(t.Context(), sample)
		if err == nil || !strings.Contains(err.Error(), c.text) || int(attempts.Load()) != c.attempts {
			t.Errorf("%d: %d attempts, want %d: %v", c.code, attempts.Load(), c.attempts, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: the error shows the address: %v", c.code, err)
		}
		close(stop)
		server.Close()
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirection was followed")
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := hook(t, "http://"+l.Addr().String()+"/secret-path").Send(t.Context(), sample); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestWebhookArguments(t *testing.T) {
	for _, c := range []struct{ url, header, secret string }{
		{"", "X", ""}, {"hooks.example", "X", ""}, {"ftp://hooks.example", "X", ""}, {"http://", "X", ""},
		{"https://user:pw9@hooks.example", "X", ""}, {"https://hooks.example/pw9%zz", "X", ""},
		{"https://hooks.example", "X Y", ""}, {"https://hooks.example", "X:", ""}, {"https://hooks.example", "X", "pw9\r\nHost: x"},
	} {
		if _, err := NewWebhook(c.url, c.header, c.secret, time.Second); err == nil || strings.Contains(err.Error(), "pw9") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// script makes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCommand: arguments reach the program as they are, the notice by environment
// and standard input, our secrets not at all.
func TestCommand(t *testing.T) {
	t.Setenv("PGPASSWORD", "pw9")
	t.Setenv(SecretVariable, "pw9")
	var out bytes.Buffer
	c := &Command{Path: script(t, `printf '%s\n' "$#" "$1" "$PGMUTEX_ALERT_LOCK" "$PGMUTEX_ALERT_EVENT" "$PGMUTEX_ALERT_HEARTBEAT_AGE"; cat; env`),
		Args: []string{"a b; $(false)"}, Timeout: 10 * time.Second, Output: &out}
	if err := c.Send(t.Context(), sample); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if want := []string{"1", "a b; $(false)", sample.Lock, "fired", "31.5"}; !slices.Equal(lines[:5], want) {
		t.Errorf("got %q, want %q", lines[:5], want)
	}
	var got Notice
	if err := json.Unmarshal([]byte(lines[5]), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(sample) {
		t.Errorf("standard input: %+v, %v", got, err)
	}
	if strings.Contains(out.String(), "pw9") {
		t.Error("a secret is in the environment")
	}
	c = &Command{Path: script(t, "exit 3"), Timeout: 10 * time.Second, Output: io.Discard}
	if err := c.Send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}

// TestCommandTimeout: a program that hangs is killed with what it started, and
// reaped.
func TestCommandTimeout(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &Command{Path: script(t, "sleep 600 & sleep 600"), Timeout: 200 * time.Millisecond, Output: w}
	if err := c.Send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "has not ended within 200ms") {
		t.Errorf("got %v", err)
	}
	w.Close()
	// Once both have ended nobody has the pipe open for writing.
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
}
