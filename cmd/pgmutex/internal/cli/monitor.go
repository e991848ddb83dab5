package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/monitor"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// watcher is one monitor.
type watcher struct {
	*app
	alert, every, timeout, stale     duration
	dAlert, dEvery, dTimeout, dStale time.Duration
	webhook, header, secretFile      string
	command                          string
	listen, lock, holder             string
	labelLocks                       string
	labelMax                         int
	json, verbose                    bool
}

func (a *app) monitor() *cobra.Command {
	w := &watcher{app: a, dEvery: 5 * time.Second, dTimeout: 10 * time.Second, dStale: 30 * time.Second}
	w.alert = duration{to: &w.dAlert, least: 1}
	w.every = duration{to: &w.dEvery, least: 200 * time.Millisecond}
	w.timeout = duration{to: &w.dTimeout, least: 100 * time.Millisecond}
	w.stale = duration{to: &w.dStale, least: 1}
	c := &cobra.Command{
		Use:   "monitor [flags] [-- ARG…]",
		Short: "Tell of holders that fell silent, and serve metrics of the whole store",
		Long: `Watch all locks of the store, or of the namespace, until a signal comes. When a
holder has been silent for longer than it may be, also if nobody waits for its
lock, tell so, once: on standard error, to a webhook, and to a command. Tell once
more when it is heard of again or holds the lock no longer.

Several monitors may watch one store. One of them tells, and another one when that
fails; all of them serve metrics.

The webhook gets JSON, with five attempts. The value of its secret header comes
from a file or from PGMUTEX_WEBHOOK_SECRET, and its URL may come from
PGMUTEX_WEBHOOK. The command gets ARGs, the same JSON on its standard input, and
PGMUTEX_ALERT_EVENT, _ID, _TEXT, _LOCK, _HOLDER and others in its environment.

With --listen, /metrics, /healthz and /readyz are served to everybody who reaches
that address.`,
		Example: `  pgmutex monitor --alert 1m --listen 127.0.0.1:9472
  pgmutex monitor --webhook https://hooks.example/pgmutex --webhook-secret-file /etc/pgmutex/secret
  pgmutex monitor --command /usr/local/bin/page -- --team storage`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && w.command == "" {
				return usage("arguments are for --command, which is not given")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return w.run(cmd, args) },
	}
	f := c.Flags()
	f.SortFlags = false
	durationVar(f, &w.alert, "alert", "", "silence to tell of, at least two promised heartbeats (default: what each holder asks for)")
	durationVar(f, &w.every, "every", "", "how often to look; sooner when somebody is about to be late")
	f.StringVar(&w.webhook, "webhook", "", "post JSON to `URL`")
	f.StringVar(&w.header, "webhook-header", "Authorization", "`NAME` of the header that takes the secret")
	f.StringVar(&w.secretFile, "webhook-secret-file", "", "`FILE` with the secret, such as \"Bearer …\"")
	f.StringVar(&w.command, "command", "", "run `PROGRAM`, without a shell")
	durationVar(f, &w.timeout, "timeout", "", "how long an attempt of the webhook, and the command, may take")
	f.StringVar(&w.listen, "listen", "", "serve metrics on `[HOST]:PORT`")
	f.StringVar(&w.labelLocks, "label-locks", "", "make lock names that match the regular expression `PATTERN` a label of the metrics")
	f.IntVar(&w.labelMax, "label-max", 200, "with --label-locks: `N` names at most, the others together as _other")
	f.StringVar(&w.lock, "lock", "pgmutex.monitor", "`NAME` of the lock that the monitors share")
	durationVar(f, &w.stale, "stale", "", "after which silence of the telling monitor another one tells")
	f.StringVar(&w.holder, "holder", "", "`LABEL` by which others see this monitor (default host-pid-random)")
	f.BoolVar(&w.json, "json", false, "log JSON")
	f.BoolVarP(&w.verbose, "verbose", "v", false, "log more")
	return c
}

func (w *watcher) run(cmd *cobra.Command, args []string) error {
	cfg := monitor.Config{AlertAfter: w.dAlert, Every: w.dEvery, Lock: w.lock, MaxLocks: w.labelMax, Log: w.logger()}
	if err := w.labels(cmd, &cfg); err != nil {
		return err
	}
	var err error
	if cfg.Sinks, err = w.sinks(cmd, args); err != nil {
		return err
	}
	if _, port, err := net.SplitHostPort(w.listen); w.listen != "" && (err != nil || port == "") {
		return usage("--listen: must be [HOST]:PORT")
	}
	if cmd.Flags().Changed("holder") && w.holder == "" {
		return usage("--holder: must not be empty")
	}
	s, err := w.open(cmd, pgmutex.Options{HolderID: w.holder, StaleAfter: w.dStale, Logger: cfg.Log}, false)
	if err != nil {
		return err
	}
	defer closeStore(s)
	if !s.Local && s.Engine == store.Advisory {
		return usage("--engine: advisory locks show no heartbeats, so there is nothing to watch")
	}
	cfg.Client = s.Client()
	m, err := monitor.New(cfg)
	if err != nil {
		return usage("--lock or --namespace: %w", err)
	}

	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if w.listen != "" {
		end, err := serve(w.listen, m.Handler(), cfg.Log)
		if err != nil {
			return exitcode.With(exitcode.Unavailable, fmt.Errorf("--listen: %w", err))
		}
		defer end()
	}
	if err := w.usable(ctx, s); err != nil {
		return err
	}
	return s.Code(m.Run(ctx))
}

// usable returns what waiting cannot mend. A server that is not there yet is none
// of that: a monitor may well start before it.
func (w *watcher) usable(ctx context.Context, s *store.Store) error {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := store.Ready(limited, s, false, func() (bool, error) {
		for _, err := range s.Client().List(limited) {
			return true, err
		}
		return true, nil
	})
	switch code := exitcode.Of(err); {
	case err == nil, ctx.Err() != nil:
		return nil
	case errors.Is(err, errors.ErrUnsupported), code == exitcode.NotPermitted, code == exitcode.NotConfigured:
		return err
	}
	return nil // the monitor tells of it
}

func (w *watcher) labels(cmd *cobra.Command, cfg *monitor.Config) error {
	switch {
	case w.labelMax < 1:
		return usage("--label-max: must be at least 1")
	case cmd.Flags().Changed("label-max") && w.labelLocks == "":
		return usage("--label-max: needs --label-locks")
	case w.labelLocks == "":
		return nil
	}
	pattern, err := regexp.Compile("^(?:" + w.labelLocks + ")$")
	if err != nil {
		return usage("--label-locks: must be a regular expression")
	}
	cfg.LockNames = pattern
	return nil
}

// sinks makes what is told besides the log.
func (w *watcher) sinks(cmd *cobra.Command, args []string) (sinks []monitor.Sink, err error) {
	from := "--webhook"
	if !cmd.Flags().Changed("webhook") {
		from, w.webhook = monitor.URLVariable, os.Getenv(monitor.URLVariable)
	}
	switch {
	case w.webhook != "" || from == "--webhook":
		secret := os.Getenv(monitor.SecretVariable)
		if w.secretFile != "" {
			text, err := os.ReadFile(w.secretFile)
			if err != nil {
				return nil, usage("--webhook-secret-file: %w", err)
			}
			if secret = strings.TrimSpace(string(text)); secret == "" {
				return nil, usage("--webhook-secret-file: is empty")
			}
		}
		hook, err := monitor.NewWebhook(w.webhook, w.header, secret, w.dTimeout)
		if err != nil {
			return nil, usage("%s: %w", from, err)
		}
		sinks = append(sinks, hook)
	case w.secretFile != "" || cmd.Flags().Changed("webhook-header"):
		return nil, usage("--webhook-secret-file and --webhook-header need --webhook or %s", monitor.URLVariable)
	}
	if cmd.Flags().Changed("command") {
		if w.command == "" {
			return nil, usage("--command: must not be empty")
		}
		path, err := supervise.LookPath(w.command)
		if err != nil {
			return nil, usage("--command: %s cannot be executed", w.command)
		}
		sinks = append(sinks, &monitor.Command{Path: path, Args: args, Timeout: w.dTimeout, Output: w.err})
	}
	return sinks, nil
}

func (w *watcher) logger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelInfo}
	if w.verbose {
		opts.Level = slog.LevelDebug
	}
	if w.json {
		return slog.New(slog.NewJSONHandler(w.err, opts))
	}
	return slog.New(slog.NewTextHandler(w.err, opts))
}

// serve serves until end is called.
func serve(address string, h http.Handler, log *slog.Logger) (end func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	log.Info("serving /metrics, /healthz and /readyz", "address", l.Addr().String())
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("no longer serving", "error", err)
		}
	}()
	return func() {
		_ = s.Close() // whoever asks meanwhile asks again
		<-done
	}, nil
}
