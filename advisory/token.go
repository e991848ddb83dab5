package advisory

import (
	"fmt"

	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/schema"
)

// raise makes sure that the tokens of this session are above those of every
// earlier timeline. A role that may not ask for the timeline leaves that to
// others, as in the lease engine.
func (s *session) raise() error {
	st := read("raise").unprepared()
	st.text = s.e.set.names.Replacer("{{timeline}}", schema.TimelineSQL).Replace(st.text)
	_, err := s.query(st)
	switch {
	case err == nil:
		return nil
	case s.isOver():
		return err
	}
	switch pgdb.Classify(err) {
	case pgdb.Denied, pgdb.Definite:
		return nil
	}
	return fmt.Errorf("advisory.Options.Table: %w", err)
}
