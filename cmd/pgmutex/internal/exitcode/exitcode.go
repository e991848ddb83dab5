// Package exitcode holds the exit codes of the command and the error that
// carries one.
//
// They are those of sysexits.h where it has one, so that none of them is what
// commands commonly end with themselves.
package exitcode

import "errors"

const (
	OK            = 0
	NotHeld       = 1   // release: nobody holds the lock
	Warnings      = 1   // doctor: the worst finding is a warning
	Errors        = 2   // doctor: the worst finding is an error
	Usage         = 64  // flags or arguments are wrong; nothing was connected to
	Unavailable   = 69  // the store cannot be reached, or cannot do it
	Internal      = 70  // a mistake in this program
	Busy          = 75  // somebody else holds the lock, or the wait is over
	Lost          = 76  // the lock was lost while the command ran
	NotPermitted  = 77  // the role lacks a right on a store that is set up
	NotConfigured = 78  // no store is chosen, or the chosen one is not set up
	NotExecutable = 126 // the command is there but cannot be executed
	NotFound      = 127 // there is no such command
	signalled     = 128
)

// An Error ends the program with Code.
type Error struct {
	Code int
	Err  error // what to print; nil for nothing

	// Signal is set when a signal is why the program ends.
	Signal int
}

func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// With makes an error end the program with code. It keeps a code that the error
// has already, and a nil error.
func With(code int, err error) error {
	var coded *Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return &Error{Code: code, Err: err}
}

// Silent ends the program with code and prints nothing.
func Silent(code int) error {
	if code == OK {
		return nil
	}
	return &Error{Code: code}
}

// Signalled ends the program as shells report a process that a signal ended.
func Signalled(signal int) error { return &Error{Code: signalled + signal, Signal: signal} }

// Of returns the code that err ends the program with. Errors without one come
// from the parser of the command line.
func Of(err error) int {
	var coded *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &coded):
		return coded.Code
	}
	return Usage
}
