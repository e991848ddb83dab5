//go:build unix && !linux

package supervise

import "golang.org/x/sys/unix"

// adopt does nothing: here the command is its process group.
func adopt() process { return process{} }

func (o origin) strays(int, []int) []stray { return nil }

func (p stray) signal(unix.Signal) {}
