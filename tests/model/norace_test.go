//go:build !race

package model

const quick = false
