package httpjob

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// names answers look-ups of any name with one address after the other; the last one stays.
func names(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	listener, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		b := make([]byte, 512)
		asked := 0
		for {
			n, from, err := listener.ReadFrom(b)
			if err != nil {
				return
			}
			// The question is sent back with its answer behind it: a name that points at the question's, type, class,
			// seconds.
			reply := append([]byte(nil), b[:n]...)
			end := 12
			for reply[end] != 0 {
				end += int(reply[end]) + 1
			}
			question := reply[:end+5]
			question[2], question[3], question[7], question[9], question[11] = 0x81, 0x80, 0, 0, 0
			if isA := question[end+2] == 1; isA {
				at := netip.MustParseAddr(addresses[min(asked, len(addresses)-1)]).As4()
				asked++
				question[7] = 1
				question = append(question, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				question = append(question, at[:]...)
			}
			_, _ = listener.WriteTo(question, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", listener.LocalAddr().String())
	}}
}

// Row 67: a name that leads to an allowed address, and at the next look-up to a blocked one.
func TestRebinding(t *testing.T) {
	var reached atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	defer server.Close()
	g := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	client := g.clientBy(names(t, "127.0.0.1", "127.0.0.2", "169.254.169.254"))
	to := strings.Replace(server.URL, "127.0.0.1", "rebind.example.test", 1)
	if a, err := call(t.Context(), client, "GET", to, nil, nil, false); err != nil || a.Status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	for range 2 {
		if a, err := call(t.Context(), client, "GET", to, nil, nil, false); !errors.Is(err, ErrBlocked) {
			t.Errorf("called again: %+v, %v", a, err)
		}
	}
	if n := reached.Load(); n != 1 {
		t.Errorf("reached %d times", n)
	}
}

// waits never answers.
type waits struct{}

func (waits) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, fmt.Errorf("broken off: %w", context.Cause(r.Context()))
}

// A call has a minute, or what the configuration says; longer work is for asynchronous jobs.
func TestS2_21CallTimeout(t *testing.T) {
	plan, err := httpspec.Parse([]byte(`{"request":[{"url":"http://a.example/"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for set, want := range map[time.Duration]time.Duration{0: time.Minute, 90 * time.Second: 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r, err := New(nil, Config{CallTimeout: set})
			if err != nil {
				t.Fatal(err)
			}
			r.client = &http.Client{Transport: waits{}}
			begun := time.Now()
			_, err = r.send(t.Context(), plan.Steps[0], httpspec.Values{}, map[string]string{}, "request 1", nil)
			if outcome.CodeOf(err) != "500" || !strings.Contains(err.Error(), "no answer within "+want.String()) || time.Since(begun) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(begun), want)
			}
			if took := r.Jobs()[0].Options().Timeout; took != 2*want {
				t.Errorf("a notification has %v", took)
			}
		})
	}
	for _, wrong := range []time.Duration{-1, 2 * time.Hour} {
		if _, err := New(nil, Config{CallTimeout: wrong}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
