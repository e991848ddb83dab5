//go:build !unix

package pgtest

import (
	"errors"
	"os/exec"
	"syscall"
)

// The package compiles everywhere, so that tests which use it do, and works
// where there are Unix users, signals and sockets.
var errNotUnix = errors.New("pgtest starts servers on Unix systems only")

type identity struct{ switched bool }

func unprivileged() (identity, error)          { return identity{}, errNotUnix }
func (identity) own(string) error              { return errNotUnix }
func (identity) reaches(string) bool           { return false }
func (identity) apply(*exec.Cmd)               {}
func flock(string) (func(), error)             { return nil, errNotUnix }
func signal(pid int, sig syscall.Signal) error { return errNotUnix }

const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)
