package lease

import (
	"encoding/json"
	"maps"
	"strings"
	"sync/atomic"
	"time"
)

// array makes the argument for an array of text or of whole numbers. It is never
// nil, which would be NULL. Reading thousands of elements in the server's own
// notation cost it half as much as renewing them, hence a list and not a text.
func array[T, V any](list []T, value func(T) V) []V {
	values := make([]V, len(list))
	for i, v := range list {
		values[i] = value(v)
	}
	return values
}

func self(s string) string { return s }

// notation makes the argument for an array of what needs no quotes, in the
// server's own notation: not every driver passes on lists of such values.
func notation[T any](list []T, text func(T) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(v))
	}
	b.WriteByte('}')
	return b.String()
}

func micro(d time.Duration) int64 { return d.Microseconds() }

// duration turns microseconds from the server into a duration; NULL is zero.
func duration(us *int64) time.Duration {
	if us == nil {
		return 0
	}
	return time.Duration(*us) * time.Microsecond
}

// moment turns microseconds since 1970 into a time; NULL is the zero time.
func moment(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return time.UnixMicro(*us).UTC()
}

// orZero is the value behind p, or the zero value for NULL.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// lastDetails is what encodeDetails was asked for before, by anybody: mostly the
// same, and to encode it is dearer than to compare it.
var lastDetails atomic.Pointer[encoded]

type encoded struct {
	details map[string]string
	text    string
}

// encodeDetails makes JSON that jsonb accepts: it refuses the zero character. No
// details are NULL.
func encodeDetails(details map[string]string) any {
	if len(details) == 0 {
		return nil
	}
	if last := lastDetails.Load(); last != nil && maps.Equal(last.details, details) {
		return last.text
	}
	clean := make(map[string]string, len(details))
	for k, v := range details {
		clean[noZero(k)] = noZero(v)
	}
	text, err := json.Marshal(clean)
	if err != nil {
		return nil // a map of strings cannot fail
	}
	lastDetails.Store(&encoded{maps.Clone(details), string(text)})
	return string(text)
}

func noZero(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// decodeDetails reads what anybody may have written: what is no object is left
// out, and what is no string is shown as JSON.
func decodeDetails(text []byte) map[string]string {
	var raw map[string]json.RawMessage
	if json.Unmarshal(text, &raw) != nil || len(raw) == 0 {
		return nil
	}
	details := make(map[string]string, len(raw))
	for k, v := range raw {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		details[k] = s
	}
	return details
}
