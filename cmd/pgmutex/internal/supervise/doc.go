// Package supervise runs a command in a process group of its own and sees to it
// that nothing of that group works on when the lock that it runs under is gone.
//
// # Who is there
//
//	       wrapper ----pipe----> watchdog    a session of its own, no streams
//	          |                      |
//	signals,  |  own process group   |  KILL when the pipe closes,
//	terminal  v                      |  TERM and KILL when the plan is overdue
//	       command and descendants <-+
//
// The wrapper is this process. It passes signals on, stops and continues with
// the command, and ends the whole group when the hold is lost.
//
// The watchdog is this program once more. It has two jobs that the wrapper
// cannot do for itself. When the wrapper vanishes (kill -9, out of memory), the
// pipe closes and the watchdog kills the group, grandchildren included. When
// the wrapper stands still (SIGSTOP, Ctrl-Z, a frozen container), nothing
// prolongs the plan that it last sent: "TERM at, KILL at" on the clock that
// both share, computed from the deadline of the hold. So the command is gone
// before the next holder may begin.
//
// On Linux the kernel is also asked to kill the command itself, without its
// descendants, when its parent dies: for the moment before the watchdog knows
// the group, and for the case that both are killed. That request follows the
// parent's thread instead of its process, and Go ends threads: so the goroutine
// that starts the command keeps its thread for as long as the command lives.
//
// # Strays
//
// What the command starts may leave its group: a daemon does. It is ended with
// the group all the same, on Linux, by looking through /proc again and again
// until nobody is found. A stray is known by either of two things, of which it
// may shed the one or the other: by the hold's term in its environment, which
// names this very hold and no other; and by its descent, which the wrapper keeps
// whole while it lives, since orphans below it become its own children. The
// second is given up if the wrapper had children before it started the command,
// as the successor of a shell script may.
//
// Only a loss ends strays. When the command has ended by itself, whatever it
// left behind was meant to stay.
//
// # Signals
//
// Whatever is passed on goes to the whole group, once to each of its processes,
// as a terminal does it. A signal for the direct child alone would leave the
// worker behind that a shell started, outside of any lock.
//
// # Terminal
//
// Being in another group than the wrapper, the command would be a background
// job. It gets the terminal from the start if standard input is one, the
// wrapper leads the group in the foreground and standard output is no pipe, and
// otherwise when it is first stopped for wanting it. The distinction leaves the
// terminal to the pager in "pgmutex run … | less", and Ctrl-C to the shell
// script around the wrapper.
//
// A command that is stopped from the terminal stops the wrapper too, so that
// the shell sees a stopped job, and "fg" continues both. Heartbeats stand still
// meanwhile: the hold lasts to its deadline, and then the watchdog acts.
package supervise
