//go:build faults && long && !linux

package faults

import "time"

func (w *world) serverCPU() (time.Duration, bool) { return 0, false }
