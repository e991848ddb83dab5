package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bounds for what a healthy machine does in a second; a loaded one takes longer.
const (
	startBound = 60 * time.Second
	stopBound  = 60 * time.Second
)

// Server is a PostgreSQL server of ours. Its methods may be called from several
// goroutines.
type Server struct {
	opts   Options
	bin    binaries
	dir    *scratch
	port   int
	shared bool

	mu       sync.Mutex // serialises starting and stopping
	postgres *process
	closed   bool
}

// Run makes a new server and starts it. It returns when the server accepts
// connections; ctx bounds that and nothing later. On failure nothing is left.
// The caller ends the server with [Server.Close]; the end of the process does
// too.
func Run(ctx context.Context, opts Options) (*Server, error) {
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, opts.Version, who, opts.Progress)
	if err != nil {
		return nil, err
	}
	// Installing may just have made the postgres user.
	if who, err = unprivileged(); err != nil {
		return nil, err
	}
	s, err := prepare(opts, bin, who)
	if err != nil {
		return nil, err
	}
	err = s.initdb()
	if err == nil {
		err = s.firstStart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare makes the server's directory, still empty.
func prepare(opts Options, bin binaries, who identity) (*Server, error) {
	dir, err := newScratch(opts.Dir, who)
	if err != nil {
		return nil, err
	}
	return &Server{opts: opts, bin: bin, dir: dir}, nil
}

func (s *Server) initdb() error {
	cmd := s.dir.command([]string{
		s.bin.path("initdb"), "-D", s.data(), "-U", Superuser, "-A", "trust",
		"--encoding=UTF8", "--locale=C", "--no-sync",
	}, nil)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s.configure()
}

// configure writes our own configuration files over those of initdb.
func (s *Server) configure() error {
	settings := map[string]string{
		"listen_addresses":        "'127.0.0.1'",
		"unix_socket_directories": "'" + s.dir.path + "'",
		"max_connections":         "200",
		"shared_buffers":          "'32MB'",
		"fsync":                   "off",
		"synchronous_commit":      "on",
		"password_encryption":     "'scram-sha-256'",
		"logging_collector":       "off",
		"log_destination":         "'stderr'",
		"log_line_prefix":         "'%m [%p] %q%u/%a@%d '", // Database finds its own lines by "@name "
		"log_checkpoints":         "off",
		"lc_messages":             "'C'",
	}
	if s.opts.Durable {
		settings["fsync"] = "on"
	}
	maps.Copy(settings, s.opts.Settings)
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = %s\n", name, settings[name])
	}
	if err := s.dir.write("data/postgresql.conf", conf.String()); err != nil {
		return err
	}
	return s.dir.write("data/pg_hba.conf", strings.ReplaceAll(`
local  all,replication  SUPERUSER                trust
host   all,replication  SUPERUSER  127.0.0.1/32  trust
local  all,replication  all                      scram-sha-256
host   all,replication  all        127.0.0.1/32  scram-sha-256
`, "SUPERUSER", Superuser))
}

// firstStart looks for a port. Another process may take it between the look and
// the server's bind, and parallel test binaries do.
func (s *Server) firstStart(ctx context.Context) error {
	var err error
	for range 10 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.start(ctx); err == nil || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
	return err
}

// freePort picks a port that nobody listens on, below the range from which
// systems give local ports to outgoing connections: a stopped server's port is
// then still free when it starts again.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// start launches the postmaster and waits until it accepts connections.
func (s *Server) start(ctx context.Context) error {
	mark := s.LogMark()
	p, err := s.dir.launch("postgres", s.logPath(), s.opts.Env,
		s.bin.path("postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port))
	if err != nil {
		return err
	}
	s.postgres = p

	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.SocketDSN("postgres", Superuser))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("the server ended while starting (%v):\n%s", p.err, s.LogSince(mark)) //nolint:errorlint // nil after a success
		case <-ctx.Done():
			err = fmt.Errorf("the server does not accept connections: %w\n%s", err, s.LogSince(mark))
			return errors.Join(err, p.end(syscall.SIGQUIT))
		}
	}
}

// Start starts a server that was stopped or killed, on the same port and data.
// It returns when connections are accepted, recovery included. Starting a
// running server is an error.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayChange(); err != nil {
		return err
	}
	return s.startAgain()
}

func (s *Server) startAgain() error {
	if s.postgres.running() {
		return errors.New("the server is already running")
	}
	return s.start(context.Background())
}

// Stop shuts the server down and returns when its processes are gone. Stopping a
// stopped server does nothing.
func (s *Server) Stop(mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayChange(); err != nil {
		return err
	}
	return s.stop(mode)
}

func (s *Server) stop(mode StopMode) error {
	sig := syscall.SIGINT
	if mode == Immediate {
		sig = syscall.SIGQUIT
	}
	if s.postgres.running() {
		// What is frozen answers no signal. The error would repeat in end.
		_ = s.signalTree(sigCont)
	}
	return s.postgres.end(sig)
}

// Restart is Stop and Start with nobody in between.
func (s *Server) Restart(mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayChange(); err != nil {
		return err
	}
	if err := s.stop(mode); err != nil {
		return err
	}
	return s.startAgain()
}

// mayChange refuses to stop or start what is closed or what other tests use.
func (s *Server) mayChange() error {
	switch {
	case s.closed:
		return errors.New("the server is closed")
	case s.shared:
		return errors.New("this server is shared by all tests of the process; take one with pgtest.New")
	}
	return nil
}

// Close stops the server for good and removes its directory. It returns when
// both are gone; a second call does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.stop(Immediate)
	s.removeSegment()
	return errors.Join(err, s.dir.remove())
}

// Host is the address that the server listens on.
func (s *Server) Host() string { return "127.0.0.1" }

// Port is the server's port, the same for its whole life.
func (s *Server) Port() int { return s.port }

// Addr is Host and Port.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host(), strconv.Itoa(s.port)) }

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return s.dir.file(".s.PGSQL." + strconv.Itoa(s.port)) }

// Major is the server's major version.
func (s *Server) Major() int { return number(s.bin.major) }

// Program returns the path of a client program such as psql: the one that came
// with the server, or, since downloaded versions have none, an installed one.
func (s *Server) Program(name string) (string, error) {
	path := s.bin.path(name)
	_, err := os.Stat(path)
	if err == nil {
		return path, nil
	}
	if installed, ok := installedBinaries(""); ok {
		path = installed.path(name)
		_, err = os.Stat(path)
	}
	return path, err
}

func (s *Server) data() string    { return filepath.Join(s.dir.path, "data") }
func (s *Server) logPath() string { return filepath.Join(s.dir.path, "server.log") }

// progress is where a test's log goes while a server is being made.
type progress func(args ...any)

func (p progress) Write(b []byte) (int, error) {
	p(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = progress(nil)
