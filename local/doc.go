// Package local keeps locks for the processes of one machine in a file: the
// lease engine's protocol on SQLite, for where there is no PostgreSQL.
//
// A lock is a row with a heartbeat. Its holder promises to renew it, trusts it
// for two thirds of StaleAfter after each confirmed renewal, and ends by itself
// when that is over; anybody may take the lock over once the heartbeat is older
// than the holder's StaleAfter. Processes that open the same file exclude each
// other, those that open different files do not, and nobody on another machine
// is excluded.
//
// # What it promises
//
// Two processes never both believe that they hold a name, whatever is killed,
// stopped or delayed, as long as the file stays what and where it is: a file
// that is deleted or restored from a backup takes its locks with it, which
// holders notice at their next heartbeat. Tokens rise strictly for as long as
// the file lives, across a loss of power too.
//
// # Time
//
// Ages are measured with a clock of the kernel that nobody can set, that counts
// time asleep, and that starts anew with each boot (CLOCK_BOOTTIME on Linux,
// CLOCK_MONOTONIC_RAW on macOS), so each row says which boot it is of. A row of
// another boot has no holder any more and is free at once. Where the system
// does not tell its boot (a container without /proc/sys/kernel/random/boot_id),
// a dead holder's lock is taken over only by somebody who has watched it for its
// whole StaleAfter: by Acquire, not by TryAcquire. The time of day is recorded
// for showing and decides nothing.
//
// Processes in different Linux time namespaces with different offsets of
// CLOCK_BOOTTIME must not share a file.
//
// # Files
//
// The file is created on first use, for its owner alone (0600); beside it live
// FILE-wal and FILE-shm, which belong to it: copy, move or remove the three
// together, while no process uses them. Give a file more rights yourself to
// share it between users; they then need to write to its directory as well. A
// file on a network file system is refused, as locks and shared memory do not
// reach across machines there, and so is one with several hard links. Do not
// open or copy it with other means inside of a process that uses it: closing a
// file drops that process's locks on it (POSIX).
//
// A file on a tmpfs loses its tokens with the next boot: they start at 1 again.
package local
