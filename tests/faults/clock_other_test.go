//go:build !linux

package faults

import "time"

// now is the wall clock: all that processes of one host share everywhere. These
// tests do not set it.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
