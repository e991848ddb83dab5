package pgdb

import (
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func ownerOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	pgtest.Must(t, err)
	u, err := user.LookupId(strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10))
	pgtest.Must(t, err)
	return u.Username
}

// The settings of keepalives and of unacknowledged data are those of the socket.
func TestSocketSettings(t *testing.T) {
	dsn := fresh(t)
	for _, c := range []struct {
		parameters                            []string
		alive, idle, interval, count, unacked int
	}{
		{[]string{"keepalives_idle", "31", "keepalives_interval", "11", "keepalives_count", "4", "tcp_user_timeout", "9000"}, 1, 31, 11, 4, 9000},
		{[]string{"keepalives", "0", "keepalives_idle", "31"}, 0, 0, 0, 0, 0},
	} {
		config, err := parseConfig(pgtest.With(dsn, c.parameters...))
		pgtest.Must(t, err)
		conn, err := config.ConnConfig.DialFunc(t.Context(), "tcp", pgtest.Shared(t).Addr())
		pgtest.Must(t, err)
		raw, err := conn.(*net.TCPConn).SyscallConn()
		pgtest.Must(t, err)
		pgtest.Must(t, raw.Control(func(fd uintptr) {
			get := func(level, option int) int {
				v, err := syscall.GetsockoptInt(int(fd), level, option)
				pgtest.Must(t, err)
				return v
			}
			if got := get(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE); got != c.alive {
				t.Errorf("%q: SO_KEEPALIVE is %d", c.parameters, got)
			}
			if c.alive == 0 {
				return
			}
			for option, want := range map[int]int{
				syscall.TCP_KEEPIDLE: c.idle, syscall.TCP_KEEPINTVL: c.interval, syscall.TCP_KEEPCNT: c.count, 18: c.unacked,
			} {
				if got := get(syscall.IPPROTO_TCP, option); got != want {
					t.Errorf("%q: option %d is %d, want %d", c.parameters, option, got, want)
				}
			}
		}))
		conn.Close()
	}
}
