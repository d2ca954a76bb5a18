package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// skewed has clients with wrong clocks repeat each request many times, over three hours. Each makes one run, which
// follows the store's clock.
func skewed(t *testing.T, h Harness) {
	if h.Clock == nil {
		t.Skip("the store's clock cannot be set")
	}
	const wait, hold = 10 * time.Second, time.Minute
	must(t, h, triggered("k", kernel.Settings{}))
	h.Clock.Advance(28*time.Second + 500*time.Millisecond) // names of finished runs are forgotten at full half minutes
	offsets := []time.Duration{-time.Hour, -time.Minute, -35 * time.Second, 0, 35 * time.Second, 61 * time.Second, time.Hour}
	now, made := h.Clock.Now(), 0
	id := func(offset time.Duration) jobs.ID { // as jobs.NewID makes it of the client's clock, without chance
		made++
		name := jobs.NewID(h.Clock.Now().Add(offset))
		copy(name[8:], fmt.Sprintf("%08d", made))
		return name
	}
	type client struct {
		offset                 time.Duration
		plain, delayed, unique kernel.Create
	}
	var clients []client
	apply := func(k kernel.Command) kernel.Effect {
		t.Helper()
		made++
		r := h.Store.Apply(t.Context(), envelope(jobs.ID{8, byte(made >> 8), byte(made)}, k))[0]
		if r.Err != nil {
			t.Fatalf("%s %+v: %v", k.Verb(), k, r.Err)
		}
		return r.Effect
	}
	for _, offset := range offsets {
		key := offset.String()
		clients = append(clients, client{offset, kernel.Create{ID: id(offset), Key: "k"}, kernel.Create{ID: id(offset), Key: "k", Delay: wait},
			kernel.Create{ID: id(offset), Key: "k", Unique: key, UniqueFor: hold, Idempotency: key}})
	}
	for _, c := range clients {
		if run := apply(c.delayed).Run(); !run.Due.Equal(now.Add(wait)) || !run.Created.Equal(now) {
			t.Errorf("a run that is to wait for %v, made by a clock %v ahead, is due at %v, want %v", wait, c.offset, run.Due, now.Add(wait))
		}
		for _, k := range []kernel.Create{c.plain, c.unique} {
			apply(k)
			apply(kernel.Start{ID: k.ID, Worker: "w", Attempt: 1})
			apply(kernel.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		}
	}
	tooEarly := kernel.Create{ID: id(kernel.MaxAhead + time.Second), Key: "k"}
	if r := h.Store.Apply(t.Context(), envelope(jobs.ID{9}, tooEarly))[0]; !errors.Is(r.Err, jobs.BadInput) {
		t.Errorf("a request of a client whose clock is more than an hour ahead: %v, want bad input", r.Err)
	}
	for _, at := range []time.Duration{hold - time.Second, hold + time.Second, hold + 2*time.Second, 91 * time.Second, 130 * time.Second, time.Hour - 10*time.Second, time.Hour + 10*time.Second, 3 * time.Hour} {
		h.Clock.Advance(now.Add(at).Sub(h.Clock.Now()))
		apply(kernel.Create{ID: id(0), Key: "k"}) // time advances with a commit
		for _, c := range clients {
			for what, k := range map[string]kernel.Create{"plain": c.plain, "unique": c.unique} {
				e := apply(k)
				if run := e.Run(); !e.Existing || run.ID != k.ID || run.State != jobs.Succeeded && run.State != kernel.New {
					t.Errorf("after %v, the same request (%s) of a client whose clock is %v ahead is answered with %s %s, existing %v", at, what, c.offset, run.ID, run.State, e.Existing)
				}
			}
			if at > 2*hold {
				continue
			}
			e := apply(kernel.Create{ID: id(c.offset), Key: "k", Unique: c.offset.String(), UniqueFor: time.Hour})
			if want := at != hold+time.Second; e.Existing != want {
				t.Errorf("after %v, a key that a client whose clock is %v ahead holds for %v is free: %v, want %v", at, c.offset, hold, !e.Existing, !want)
			}
		}
	}
	invariants(t, nil, rowsOf(h))
}
