package oidc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// network answers requests, or fails.
type network func(*http.Request) (*http.Response, error)

func (n network) RoundTrip(r *http.Request) (*http.Response, error) { return n(r) }

var errCut = errors.New("no route to host")

func unreachable(t *testing.T, n network) *Provider {
	t.Helper()
	p, err := New(Config{Issuer: "https://login.example.com", ClientID: "c", Rules: []Rule{{Group: "a", Role: "admin"}}})
	if err != nil {
		t.Fatal(err)
	}
	p.client.Transport = n
	return p
}

// A provider that does not answer is asked again after 1 s, 2 s, 4 s and so on up to a minute. Browsers that want to sign
// in meanwhile add at most one request in five seconds.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asked []int
		p := unreachable(t, func(*http.Request) (*http.Response, error) {
			asked = append(asked, int(time.Since(began)/time.Second))
			return nil, errCut
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(200 * time.Second)
		synctest.Wait()
		if want := []int{0, 1, 3, 7, 15, 31, 63, 123, 183}; !slices.Equal(asked, want) {
			t.Errorf("asked after %v s, want %v", asked, want)
		}
		if !p.Away().Equal(began) {
			t.Errorf("away since %v, want %v", p.Away(), began)
		}
		asked = nil
		for range 10 {
			if _, _, err := p.Begin(t.Context(), "/"); !errors.Is(err, jobs.Unavailable) {
				t.Errorf("begin: %v", err)
			}
		}
		if len(asked) != 1 {
			t.Errorf("ten browsers cause %d requests", len(asked))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Tokens with unknown keys, which anyone can send, make the server read the keys at most once in five seconds.
func TestKeysArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		keys := &paced{next: network(func(*http.Request) (*http.Response, error) { n++; return nil, errCut })}
		for range 100 {
			_, _ = keys.RoundTrip(nil)
			time.Sleep(100 * time.Millisecond)
		}
		if n != 2 || !keys.failing() {
			t.Errorf("in ten seconds keys are read %d times, failing %v", n, keys.failing())
		}
	})
}

// A response counts only with the state that this browser has, and the text of an error only if it is a code.
func TestForeignResponses(t *testing.T) {
	p := unreachable(t, func(*http.Request) (*http.Response, error) { return nil, errCut })
	for _, kept := range []string{"", "e30", "!", "eyJzIjoiIn0", "eyJzIjoieCJ9"} { // {}, {"s":""}, {"s":"x"}
		for _, state := range []string{"", "y"} {
			if _, _, err := p.Finish(t.Context(), kept, url.Values{"state": {state}, "code": {"c"}}); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%q with state %q: %v", kept, state, err)
			}
		}
	}
	if _, _, err := p.Finish(t.Context(), "eyJzIjoieCJ9", url.Values{"state": {"x"}}); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("with its state: %v", err)
	}
	for code, want := range map[string]string{"access_denied": "access_denied", "": "unknown error", "<b>": "unknown error", "Call 0900-1": "unknown error"} {
		if got := errorCode(code); got != want {
			t.Errorf("%q is shown as %q, want %q", code, got, want)
		}
	}
}
