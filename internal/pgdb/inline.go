package pgdb

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// inline puts arguments into a text in the place of its parameters, $1 and so
// on, each as a quoted literal of no type, which the server understands as it
// does a parameter of none: from its cast or its surroundings. Numbers, booleans,
// strings, times, durations and lists of strings and whole numbers can be passed,
// and nil and nil pointers to strings for NULL.
//
// What stands in quotes, and comments, are left alone. It is safe with an
// encoding of the session in which no part of a character looks like ASCII, as
// in UTF-8, which database/sql drivers insist on.
func inline(text string, args []any) (string, error) {
	var b strings.Builder
	used := make([]bool, len(args))
	for i := 0; i < len(text); {
		end := opaque(text, i)
		if end > i {
			b.WriteString(text[i:end])
			i = end
			continue
		}
		if text[i] != '$' || i > 0 && isNamePart(text[i-1]) {
			b.WriteByte(text[i])
			i++
			continue
		}
		end = i + 1
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(text[i+1 : end])
		if err != nil || n < 1 || n > len(args) {
			return "", fmt.Errorf("there is no argument for the parameter %s", text[i:end])
		}
		literal, err := literal(args[n-1])
		if err != nil {
			return "", fmt.Errorf("the argument for $%d: %w", n, err)
		}
		used[n-1] = true
		// Spaces keep it apart from a word before it: e'…' would be another kind
		// of literal.
		b.WriteString(" " + literal + " ")
		i = end
	}
	for n, ok := range used {
		if !ok {
			return "", fmt.Errorf("there is no parameter for the argument $%d", n+1)
		}
	}
	return b.String(), nil
}

// opaque returns the end of the literal, the quoted name or the comment that
// begins at i, and i if none does.
func opaque(text string, i int) int {
	rest := text[i:]
	find := func(from int, what string) int {
		if n := strings.Index(rest[from:], what); n >= 0 {
			return i + from + n + len(what)
		}
		return len(text)
	}
	switch {
	case strings.HasPrefix(rest, "--"):
		return find(2, "\n")
	case strings.HasPrefix(rest, "/*"):
		return find(2, "*/")
	case rest[0] == '"':
		return find(1, `"`) // a doubled quote is the beginning of the next one
	case rest[0] == '\'':
		escapes := i > 0 && (text[i-1] == 'E' || text[i-1] == 'e') && (i < 2 || !isNamePart(text[i-2]))
		for j := 1; j < len(rest); j++ {
			switch {
			case rest[j] == '\\' && escapes:
				j++
			case rest[j] == '\'' && escapes && strings.HasPrefix(rest[j:], "''"):
				j++
			case rest[j] == '\'':
				return i + j + 1
			}
		}
		return len(text)
	}
	return i
}

func isNamePart(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// literal writes a value in SQL.
func literal(v any) (string, error) {
	var text string
	switch v := v.(type) {
	case nil:
		return "NULL", nil
	case string:
		text = v
	case *string:
		if v == nil {
			return "NULL", nil
		}
		text = *v
	case bool:
		text = strconv.FormatBool(v)
	case int:
		text = strconv.Itoa(v)
	case int32:
		text = strconv.Itoa(int(v))
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'g', -1, 64)
	case time.Duration:
		text = strconv.FormatInt(v.Microseconds(), 10) + " microseconds"
	case time.Time:
		text = v.Format("2006-01-02 15:04:05.999999Z07:00")
	case []string:
		list := make([]string, len(v))
		for i, s := range v {
			list[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
		}
		text = "{" + strings.Join(list, ",") + "}"
	case []int64:
		list := make([]string, len(v))
		for i, n := range v {
			list[i] = strconv.FormatInt(n, 10)
		}
		text = "{" + strings.Join(list, ",") + "}"
	default:
		return "", fmt.Errorf("a %T cannot be passed with this driver", v)
	}
	if strings.ContainsRune(text, 0) {
		return "", errors.New("it contains a NUL byte")
	}
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		// Right whatever standard_conforming_strings says.
		quoted = "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted, nil
}
