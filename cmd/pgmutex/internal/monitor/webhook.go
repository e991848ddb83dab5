package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Sink is told of alerts.
type Sink interface {
	Name() string
	// Send returns nil when the notice has been taken. What is tried again is up
	// to the sink; an end of ctx ends it.
	Send(ctx context.Context, n Notice) error
}

// A Webhook posts notices as JSON.
type Webhook struct {
	URL     string
	Header  string        // name of the header with the secret
	Secret  string        // its value; no header if it is empty
	Timeout time.Duration // of each attempt

	attempts int           // in all
	pause    time.Duration // after the first; doubles
	client   *http.Client
}

// NewWebhook checks an address. The error does not repeat it: it may be a secret.
func NewWebhook(address, header, secret string, timeout time.Duration) (*Webhook, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("must be a URL with http or https")
	case u.User != nil:
		return nil, errors.New("must not have a user or password; a secret goes into a header")
	case !validHeader(header) || strings.ContainsAny(header, " :\t"):
		return nil, fmt.Errorf("%q is no name of a header", header)
	case !validHeader(secret):
		return nil, errors.New("the secret must be one line of printable ASCII")
	}
	return &Webhook{
		URL: address, Header: header, Secret: secret, Timeout: timeout,
		attempts: 5, pause: 500 * time.Millisecond,
		client: &http.Client{
			// The secret is for this host and no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func validHeader(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// Name implements Sink.
func (w *Webhook) Name() string { return "webhook" }

// Send implements Sink. It tries five times within some seconds, unless the answer
// is a refusal.
func (w *Webhook) Send(ctx context.Context, n Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	pause := w.pause
	for attempt := 1; ; attempt++ {
		final, err := w.post(ctx, body)
		if err == nil || final || attempt == w.attempts {
			return err
		}
		timer := time.NewTimer(pause + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause *= 2
	}
}

// post makes one attempt, and tells whether another one is no use.
func (w *Webhook) post(ctx context.Context, body []byte) (final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return true, inner(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "pgmutex")
	if w.Secret != "" {
		r.Header.Set(w.Header, w.Secret)
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return false, inner(err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // so that the connection can be used again
	switch code := answer.StatusCode; {
	case code < 300:
		return false, nil
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return false, fmt.Errorf("answered %d", code)
	default:
		return true, fmt.Errorf("answered %d", code)
	}
}

// inner takes the URL out of an error.
func inner(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
