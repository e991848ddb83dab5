package pgmutex

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgmutex/pgmutex/engine"
)

// Options are what every engine understands. A nil *Options is fine, and a
// zero field means its default; a negative or contradictory one is refused by
// an error that names it. Options are copied when the client is made.
type Options struct {
	// HolderID is the label by which others see this client: at most 47
	// characters. It need not be unique. Default: host-pid-random.
	HolderID string

	// Namespace stands before every name, as "namespace/name", in the store and
	// in the id. It has no "/" itself. Default: none.
	Namespace string

	// StaleAfter is how long a holder may be silent before anybody may take its
	// lock over. A hold is trusted for two thirds of that after each confirmed
	// heartbeat and then ends by itself. Default: the engine's, 10 minutes for
	// leases.
	StaleAfter time.Duration

	// Heartbeat is the interval of renewals, at least 10 ms. Three of them must fit into the
	// time of trust. Default: the engine's (10 s for leases), less where
	// StaleAfter or AlertAfter ask for it.
	Heartbeat time.Duration

	// AlertAfter is how long a holder may be silent before Hooks.Alert fires.
	// At least two heartbeats, less than the time of trust. Default: the
	// engine's (30 s for leases), less where StaleAfter asks for it.
	AlertAfter time.Duration

	// PollInterval is how often a waiter tries where nothing can wake it up.
	// Default: the engine's (0.5 s for leases), at most a twelfth of StaleAfter.
	PollInterval time.Duration

	// ReleaseTimeout bounds how long a release waits for its confirmation, with
	// whatever context. Default: 5 s.
	ReleaseTimeout time.Duration

	// MaxHolds bounds how many locks this client may hold at a time. Default:
	// the engine's; none for leases.
	MaxHolds int

	// Lazy puts off connecting from the making of the client to its first use.
	Lazy bool

	// Annotate is asked on each acquisition, with its context, for details to
	// show with the hold, such as a traceparent. It is called on the path of
	// the acquisition; a panic in it is the caller's.
	Annotate func(ctx context.Context) map[string]string

	// Hooks are told what happens; see [Hooks].
	Hooks []Hooks

	// Logger takes records of what happens. Acquisitions and releases are
	// DEBUG, alerts and runs of failed heartbeats WARN, losses ERROR. It is
	// called off the path of every lock. Default: silence.
	Logger *slog.Logger
}

// NoWait as AcquireOptions.Wait makes Acquire and Do behave like TryAcquire and
// TryDo.
const NoWait time.Duration = -1

// AcquireOptions change how locks are taken; see [Client.With]. Zero fields
// mean what the client was made with.
type AcquireOptions struct {
	// Wait limits the time of waiting, and nothing else. Default: as long as the
	// context.
	Wait time.Duration

	// StaleAfter is this hold's own; heartbeat and alert follow it. Engines that
	// keep all holds on one session answer errors.ErrUnsupported.
	StaleAfter time.Duration

	// Shared takes a read lock: any number of shared holds of a name exclude
	// only exclusive ones. Engines without it answer errors.ErrUnsupported.
	Shared bool

	// Details are shown to everybody who looks at the hold, beside host, pid and
	// program. At most 8 KiB in all.
	Details map[string]string

	// Bind makes the end of Acquire's context end Hold.Context as well; the hold
	// itself goes on until it is released.
	Bind bool
}

const (
	maxLabel              = 47 // with "~" and the nonce, 64
	maxDetails            = 8 << 10
	defaultReleaseTimeout = 5 * time.Second
	minHeartbeat          = 10 * time.Millisecond
)

// check refuses what cannot be right whatever the engine is.
func (o *Options) check() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"StaleAfter", o.StaleAfter}, {"Heartbeat", o.Heartbeat}, {"AlertAfter", o.AlertAfter},
		{"PollInterval", o.PollInterval}, {"ReleaseTimeout", o.ReleaseTimeout},
	} {
		if f.d < 0 {
			return optionError(f.name, "%s is negative", f.d)
		}
	}
	if o.Heartbeat > 0 && o.Heartbeat < minHeartbeat {
		return optionError("Heartbeat", "%s is below the least, %s", o.Heartbeat, minHeartbeat)
	}
	if o.MaxHolds < 0 {
		return optionError("MaxHolds", "%d is negative", o.MaxHolds)
	}
	if o.HolderID != "" {
		if err := checkText(o.HolderID); err != nil {
			return optionError("HolderID", "%w", err)
		}
		if n := utf8.RuneCountInString(o.HolderID); n > maxLabel {
			return optionError("HolderID", "has %d characters, at most %d are allowed", n, maxLabel)
		}
	}
	if o.Namespace != "" {
		if err := checkText(o.Namespace); err != nil {
			return optionError("Namespace", "%w", err)
		}
		if strings.Contains(o.Namespace, "/") {
			return optionError("Namespace", `must not contain "/"`)
		}
	}
	return nil
}

func optionError(field, format string, args ...any) error {
	return fmt.Errorf("pgmutex: "+field+": "+format, args...)
}

// trust returns how long a confirmation is good for.
func trust(staleAfter, limit time.Duration) time.Duration {
	if limit > 0 {
		staleAfter = min(staleAfter, limit)
	}
	return staleAfter / 3 * 2
}

// timing fills in what is left unset from what is set, and refuses what does
// not fit together.
func (o *Options) timing(d engine.Description) (engine.Timing, error) {
	t := engine.Timing{
		StaleAfter:   orDefault(o.StaleAfter, d.Defaults.StaleAfter),
		Heartbeat:    o.Heartbeat,
		AlertAfter:   o.AlertAfter,
		PollInterval: o.PollInterval,
	}
	if err := checkStaleAfter("StaleAfter", t.StaleAfter, d); err != nil {
		return t, err
	}
	trusted := trust(t.StaleAfter, d.TrustCap)
	if t.AlertAfter == 0 {
		t.AlertAfter = max(min(d.Defaults.AlertAfter, trusted/2), 3*t.Heartbeat) // a third of StaleAfter
	}
	if t.Heartbeat == 0 {
		t.Heartbeat = min(d.Defaults.Heartbeat, trusted/8, t.AlertAfter/3)
	}
	if t.PollInterval == 0 {
		t.PollInterval = min(d.Defaults.PollInterval, t.StaleAfter/12)
	}
	limit := ""
	if d.TrustCap > 0 && d.TrustCap < t.StaleAfter {
		limit = fmt.Sprintf(" (bounded by the %s after which other programs on the table take over)", d.TrustCap)
	}
	window := fmt.Sprintf("a hold is trusted for %s, two thirds of StaleAfter%s", trusted, limit)
	switch {
	case t.Heartbeat*3 >= trusted:
		return t, optionError(o.culprit("Heartbeat"), "three heartbeats of %s do not fit: %s", t.Heartbeat, window)
	case t.AlertAfter < 2*t.Heartbeat:
		return t, optionError(o.culprit("AlertAfter"), "an alert after %s would come before two heartbeats of %s", t.AlertAfter, t.Heartbeat)
	case t.AlertAfter >= trusted:
		return t, optionError(o.culprit("AlertAfter"), "an alert after %s would come too late: %s", t.AlertAfter, window)
	}
	return t, nil
}

// culprit returns the field to blame: one that the caller set, the given one
// before the others.
func (o *Options) culprit(field string) string {
	set := map[string]bool{"Heartbeat": o.Heartbeat > 0, "AlertAfter": o.AlertAfter > 0, "StaleAfter": o.StaleAfter > 0}
	for _, f := range []string{field, "Heartbeat", "AlertAfter", "StaleAfter"} {
		if set[f] {
			return f
		}
	}
	return field
}

func checkStaleAfter(field string, d time.Duration, desc engine.Description) error {
	switch {
	case desc.MinStaleAfter > 0 && d < desc.MinStaleAfter:
		return optionError(field, "%s is below the %s engine's least, %s", d, desc.Name, desc.MinStaleAfter)
	case desc.MaxStaleAfter > 0 && d > desc.MaxStaleAfter:
		return optionError(field, "%s is above the %s engine's most, %s", d, desc.Name, desc.MaxStaleAfter)
	}
	return nil
}

// check refuses what the engine cannot do.
func (a *AcquireOptions) check(d engine.Description) error {
	switch {
	case a.Wait < 0 && a.Wait != NoWait:
		return optionError("AcquireOptions.Wait", "%s is negative", a.Wait)
	case a.StaleAfter < 0:
		return optionError("AcquireOptions.StaleAfter", "%s is negative", a.StaleAfter)
	case a.StaleAfter > 0 && !d.PerHoldTiming:
		return fmt.Errorf("pgmutex: AcquireOptions.StaleAfter: the %s engine has one for all holds: %w", d.Name, errors.ErrUnsupported)
	case a.Shared && !d.Shared:
		return fmt.Errorf("pgmutex: AcquireOptions.Shared: the %s engine has no shared locks: %w", d.Name, errors.ErrUnsupported)
	}
	if a.StaleAfter > 0 {
		if err := checkStaleAfter("AcquireOptions.StaleAfter", a.StaleAfter, d); err != nil {
			return err
		}
	}
	return checkDetails(a.Details)
}

func checkDetails(details map[string]string) error {
	size := 0
	for k, v := range details {
		size += len(k) + len(v)
		if !utf8.ValidString(k) || !utf8.ValidString(v) || strings.ContainsRune(k+v, 0) {
			return optionError("AcquireOptions.Details", "keys and values must be valid UTF-8 without NUL")
		}
	}
	if size > maxDetails {
		return optionError("AcquireOptions.Details", "%d bytes, at most %d are allowed", size, maxDetails)
	}
	return nil
}

// timing returns the timing of one hold: an own StaleAfter takes heartbeat and
// alert down with it, so that it never contradicts the client's.
func (a *AcquireOptions) timing(base engine.Timing, d engine.Description) engine.Timing {
	if a.StaleAfter == 0 || a.StaleAfter == base.StaleAfter {
		return base
	}
	t := base
	t.StaleAfter = a.StaleAfter
	trusted := trust(t.StaleAfter, d.TrustCap)
	t.Heartbeat = min(t.Heartbeat, trusted/8)
	t.AlertAfter = max(min(t.AlertAfter, trusted/2), 2*t.Heartbeat)
	return t
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// defaultHolderID returns host-pid-random. A long host name is cut, since what
// comes after it is what tells two processes apart.
func defaultHolderID() string {
	host, err := os.Hostname()
	if err != nil || checkText(host) != nil {
		host = "unknown"
	}
	tail := "-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(rand.Text()[:6])
	if runes := []rune(host); len(runes)+len(tail) > maxLabel {
		host = string(runes[:maxLabel-len(tail)])
	}
	return host + tail
}
