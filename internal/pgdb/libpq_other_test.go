//go:build !linux

package pgdb

import "testing"

func ownerOf(*testing.T, string) string { return "" }
