package pgmutex

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pgmutex/pgmutex/engine"
)

// AdvisoryID returns the 63-bit id of a name: the first eight bytes of its
// SHA-256 as a big-endian number, with the top bit cleared. All engines report
// it; it is the key of the advisory engine's lock, and the one that the
// reference's Python lock manager derives. The name is taken as it is: a
// client's namespace is part of it, as "namespace/name".
func AdvisoryID(name string) int64 { return engine.NameID(name) }

// MigrationKey returns the conventional name for an operation on a tenant that
// must not run twice at once: "operation:tenant", the tenant's UUID in lower
// case. An empty operation means "migration". Any UUID type with [16]byte
// beneath it is accepted as it is.
func MigrationKey(tenantID [16]byte, operation string) string {
	if operation == "" {
		operation = "migration"
	}
	h := hex.EncodeToString(tenantID[:])
	return operation + ":" + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// CheckName returns nil if the engine can take a lock of that name, and
// otherwise an error that says which rule the name breaks. It does no I/O.
// Every method that takes a name checks it in the same way before anything
// else.
func (c *Client) CheckName(name string) error {
	_, err := c.core.fullName(name)
	return err
}

// fullName returns the name as it stands in the store.
func (c *core) fullName(name string) (string, error) {
	if err := checkText(name); err != nil {
		return "", fmt.Errorf("pgmutex: name %w", err)
	}
	full := c.prefix + name
	length, unit := utf8.RuneCountInString(full), "characters"
	if c.desc.NameBytes {
		length, unit = len(full), "bytes"
	}
	if limit := c.desc.NameLimit; limit > 0 && length > limit {
		with := ""
		if c.prefix != "" {
			with = " with its namespace"
		}
		return "", fmt.Errorf("pgmutex: name has %d %s%s, the %s engine takes at most %d", length, unit, with, c.desc.Name, limit)
	}
	return full, nil
}

// checkText holds the rules that every engine shares: what is shown in one line
// and stored in a text column.
func checkText(s string) error {
	switch {
	case s == "":
		return errors.New("must not be empty")
	case !utf8.ValidString(s):
		return errors.New("must be valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("must not contain control characters, found %U", r)
		}
	}
	return nil
}
