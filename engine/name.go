package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// NameID returns the 63-bit id of a name as stored, namespace included.
func NameID(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]) &^ (1 << 63))
}

// Label returns the holder's label of a term's ID: what stands before the last
// "~". An ID without one, as other programs make them, is its own label.
func Label(id string) string {
	if i := strings.LastIndexByte(id, '~'); i >= 0 {
		return id[:i]
	}
	return id
}
