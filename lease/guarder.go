package lease

import (
	"context"
	"fmt"

	"github.com/pgmutex/pgmutex/engine"
)

// Guard implements [engine.Guarder]: it locks the term's row with FOR KEY SHARE
// in the transaction behind exec. Renewals pass that lock, takeovers and
// releases by anybody wait for it.
func (s *store) Guard(ctx context.Context, term engine.Term, exec engine.Exec) error {
	rows, err := exec(ctx, s.sql.guard, term.Name, term.ID)
	switch {
	case err != nil:
		return fmt.Errorf("guard %q: %w", term.Name, err)
	case rows == 0:
		return fmt.Errorf("guard %q: %w", term.Name, engine.ErrGone)
	}
	return nil
}
