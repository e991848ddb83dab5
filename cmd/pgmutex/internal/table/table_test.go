package table

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		name     Name
		shown    string
		relation string
	}{
		"":            {Name{"public", "mutex_lock"}, "public.mutex_lock", `"public"."mutex_lock_x"`},
		"t":           {Name{"public", "t"}, "public.t", `"public"."t_x"`},
		"s.T":         {Name{"s", "T"}, "s.T", `"s"."T_x"`},
		`"a.b".c`:     {Name{"a.b", "c"}, `"a.b".c`, `"a.b"."c_x"`},
		`a."b""c.d"`:  {Name{"a", `b"c.d`}, `a."b""c.d"`, `"a"."b""c.d_x"`},
		`a"b`:         {Name{"public", `a"b`}, `public."a""b"`, `"public"."a""b_x"`},
		`"a b"."c d"`: {Name{"a b", "c d"}, "a b.c d", `"a b"."c d_x"`},
	} {
		got := Parse(text)
		if got != want.name || got.String() != want.shown || got.Relation("_x") != want.relation {
			t.Errorf("%s: %+v, shown %s, relation %s", text, got, got, got.Relation("_x"))
		}
	}
}
