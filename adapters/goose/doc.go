// Package goose gives goose (github.com/pressly/goose/v3) our locks, so that of
// all processes that start at once one migrates the database and the others
// wait. It imports no goose: its two types have the methods that goose asks for.
//
//   - [Locker] takes a lock through a client of any engine, beside the session that
//     migrates, and works behind transaction poolers.
//   - [SessionLocker] takes an advisory lock on the session that migrates.
package goose
