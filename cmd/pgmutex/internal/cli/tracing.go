package cli

import (
	"context"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/telemetry"
)

// startTelemetry begins the span of the run, if there is to be one.
func (r *runner) startTelemetry(ctx context.Context) error {
	if !r.otel {
		return nil
	}
	var err error
	if r.tracing, err = telemetry.FromEnv(ctx, r.flags.full(r.lock)); err != nil {
		return usage("--otel: %w", err)
	}
	return nil
}

// endTelemetry sends what there is left. It comes last: by then the client has
// told everything, and nothing waits for the collector but the end of the program.
func (r *runner) endTelemetry(err error) {
	if !r.tracing.End(exitcode.Of(err)) && !r.quiet {
		r.say("the collector has not taken all spans and metrics")
	}
}
