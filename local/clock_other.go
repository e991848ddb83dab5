//go:build !linux && !darwin

package local

import "time"

func bootID() string { return "" }

var origin = time.Now()

func sinceBoot() time.Duration { return time.Since(origin) }

func elapsed() time.Duration { return time.Since(origin) }
