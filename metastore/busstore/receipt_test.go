package busstore

import (
	"context"
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Commands of workers and clients are answered with a receipt, and those of a node with rows. The
// same holds with an older server without receipts: the client falls back to the old request.
func TestReceipts(t *testing.T) {
	for name, older := range map[string]bool{"receipts": false, "an older server": true} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, Config{})
			var asked []verb
			as := func(p bus.Principal) func(kernel.Command) kernel.Effect {
				s := Patient(New(listening{h.hub.As(p), &asked, older}, p))
				return func(c kernel.Command) kernel.Effect { t.Helper(); return h.must(t, s, c) }
			}
			w, c, n := as(worker), as(client), as(node)
			brief := func(e kernel.Effect, id jobs.ID, state jobs.State) {
				t.Helper()
				if (e.Summary != nil) == older || len(e.Runs) > 0 != older || e.Run() == nil {
					t.Fatalf("the answer is %+v", e)
				}
				if stands, ok := e.Stands(); !ok || stands.ID != id || stands.State != state || stands.Key != "charge" || stands != e.Run().Summary() {
					t.Errorf("state is %+v, want %s", stands, state)
				}
			}
			w(register("billing", "billing", "charge"))
			brief(c(kernel.Create{ID: jobs.ID{1}, Key: "charge", Args: []byte(`{"n":1}`)}), jobs.ID{1}, jobs.Enqueued)
			n(kernel.Start{ID: jobs.ID{1}, Worker: "billing", Attempt: 1})
			brief(w(kernel.Finish{ID: jobs.ID{1}, Worker: "billing", Attempt: 1, Outcome: kernel.OutcomeSuccess}), jobs.ID{1}, jobs.Succeeded)
			if e := n(kernel.Create{ID: jobs.ID{2}, Key: "charge", Args: []byte(`{"n":2}`)}); e.Summary != nil || string(e.Run().Args) != `{"n":2}` {
				t.Errorf("a node gets %+v", e)
			}
			times := map[verb]int{}
			for _, v := range asked {
				times[v]++
			}
			want := map[verb]int{askBrief: 5, askApply: 3} // the first of each end only learns the time
			if older {                                     // each end sends the new request once
				want = map[verb]int{askBrief: 2, askApply: 8}
			}
			if times[askBrief] != want[askBrief] || times[askApply] != want[askApply] {
				t.Errorf("asked %v, want %v", times, want)
			}
		})
	}
}

// listening records requests, and has the server be older than receipts.
type listening struct {
	bus.Calls
	asked *[]verb
	older bool
}

func (l listening) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	v, body, err := opened(request)
	*l.asked = append(*l.asked, v)
	if err == nil && l.older && v == askBrief {
		_, err = decodeQuestion(body) // as it took everything but askApply
	}
	if err != nil {
		return nil, err
	}
	return l.Calls.Call(ctx, service, request)
}

// A malformed request is refused, and not repeated for ever.
func TestARequestThatIsWrong(t *testing.T) {
	h := newFixture(t, Config{})
	s := New(refusing{h.hub.As(client)}, client)
	h.refused(t, s, kernel.Create{ID: jobs.ID{1}, Key: "charge"}, jobs.BadInput)
}

type refusing struct{ bus.Calls }

func (refusing) Call(context.Context, string, []byte) ([]byte, error) {
	return nil, kernel.Invalid("it is wrong: %v", errors.ErrUnsupported)
}
