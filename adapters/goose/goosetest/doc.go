// Package goosetest tests package adapters/goose with goose itself and a real
// PostgreSQL. It is a module of its own, so that nobody but its tests requires
// goose.
package goosetest
