//go:build bench

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// servers are all stores, started for one run on free ports.
type servers struct {
	at       stores
	conn     *pgx.Conn // to PostgreSQL
	settings []string  // for the reader: versions and what is durable
}

// newServers starts them. PostgreSQL gets room for the contestants that need a
// connection for each lock, and else has its defaults.
func newServers(t *testing.T) *servers {
	t.Helper()
	pg := pgtest.New(t, pgtest.Options{Durable: true, Settings: map[string]string{
		"max_connections": "600", "shared_buffers": "'128MB'",
	}})
	dsn := pg.Database(t)
	s := &servers{conn: pgtest.Conn(t, dsn), at: stores{
		postgres:    dsn,
		redisMemory: redisServer(t, "--appendonly", "no"),
		redisSynced: redisServer(t, "--appendonly", "yes", "--appendfsync", "always"),
		etcdServer:  etcdNode(t),
		file:        filepath.Join(t.TempDir(), "locks.db"),
	}}
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	pgtest.Exec(t, s.conn, `CREATE TABLE raw (name text PRIMARY KEY, beat timestamptz NOT NULL DEFAULT now())`)
	s.describe(t)
	return s
}

func redisServer(t *testing.T, durability ...string) string {
	d := pgtest.NewDaemon(t, pgtest.Program{
		Name: []string{"redis-server"}, Package: "redis-server", Ports: 1,
		Args: func(dir string, ports []int) []string {
			// A program that renames itself hides the directory among its arguments.
			return append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--dir", dir,
				"--set-proc-title", "no", "--save", ""}, durability...)
		},
	})
	return d.Addr()
}

func etcdNode(t *testing.T) string {
	d := pgtest.NewDaemon(t, pgtest.Program{
		Name: []string{"etcd"}, Package: "etcd-server", Ports: 2,
		Args: func(dir string, ports []int) []string {
			client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
			return []string{"--data-dir", filepath.Join(dir, "data"), "--name", "bench", "--logger", "zap",
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench=" + peer}
		},
	})
	return d.Addr()
}

// describe asks the servers themselves what they are and what they sync.
func (s *servers) describe(t *testing.T) {
	t.Helper()
	line := "PostgreSQL " + pgtest.One[string](t, s.conn, "SHOW server_version")
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "max_connections", "shared_buffers"} {
		line += fmt.Sprintf(", %s %s", name, pgtest.One[string](t, s.conn, "SHOW "+name))
	}
	s.settings = append(s.settings, line)
	for _, at := range []store{redisMemory, redisSynced} {
		c := redis.NewClient(&redis.Options{Addr: s.at[at]})
		defer c.Close()
		info, err := c.Info(t.Context(), "server").Result()
		pgtest.Must(t, err)
		_, version, _ := strings.Cut(info, "redis_version:")
		version, _, _ = strings.Cut(version, "\r\n")
		set, err := c.ConfigGet(t.Context(), "append*").Result()
		pgtest.Must(t, err)
		s.settings = append(s.settings, fmt.Sprintf("Redis %s (%q), appendonly %s, appendfsync %s, no snapshots",
			version, at, set["appendonly"], set["appendfsync"]))
	}
	c, err := etcdClient(s.at[etcdServer])
	pgtest.Must(t, err)
	defer c.Close()
	status, err := c.Status(t.Context(), s.at[etcdServer])
	pgtest.Must(t, err)
	s.settings = append(s.settings, "etcd "+status.Version+", one node; it syncs its log for every write and has no setting for that")
}

// logged is how many bytes the server of a store has written to its log so far;
// false where that cannot be told.
func (s *servers) logged(t *testing.T, at store) (int64, bool) {
	t.Helper()
	switch at {
	case postgres:
		return pgtest.WALBytes(t, s.conn), true
	case redisSynced:
		c := redis.NewClient(&redis.Options{Addr: s.at[at]})
		defer c.Close()
		info, err := c.Info(context.Background(), "persistence").Result()
		pgtest.Must(t, err)
		_, size, _ := strings.Cut(info, "aof_current_size:")
		size, _, _ = strings.Cut(size, "\r\n")
		n, err := strconv.ParseInt(size, 10, 64)
		pgtest.Must(t, err)
		return n, true
	}
	return 0, false
}
