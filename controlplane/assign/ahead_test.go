package assign

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A run that is to be created starts ahead only on a free worker with its code, and after all that waits.
func TestAhead(t *testing.T) {
	s := newStage(t)
	skills := kernel.Skills{App: app1.Name, Handler: "job"}
	next := byte(0)
	ahead := func(skills kernel.Skills) (Start, bool) {
		next++
		return s.b.Ahead(dispatch.Run{Tenant: app1.Tenant, ID: jobs.ID{9, next}}, "job", skills, s.now)
	}
	refused := func(why string, skills kernel.Skills) {
		t.Helper()
		if x, ok := ahead(skills); ok {
			t.Fatalf("%s: it starts on %s", why, x.Worker)
		}
	}
	refused("no worker", skills)
	s.worker("w", 2)
	refused("what the store has is not known yet", skills)
	s.fill()
	refused("no code", kernel.Skills{App: app1.Name, Handler: "other"})
	refused("another app", kernel.Skills{App: "other", Handler: "job"})
	refused("no code for the work", kernel.Skills{App: app1.Name, Handler: "other", Work: "http"})
	s.ready(1)
	refused("another run is first", skills)
	s.want(s.starts(), "w")
	x, ok := ahead(skills)
	if !ok || x.Worker != "w" || x.N != 1 {
		t.Fatalf("with a free slot: %v, %+v", ok, x)
	}
	refused("no slot", skills)

	// Refused without a trace: its slot is free.
	s.b.Retract(x, nil, s.now, &s.acts)
	if x, ok = ahead(skills); !ok {
		t.Fatal("the slot of a refused start is not free")
	}
	// Its run exists, and waits: it goes first.
	run := s.run(func(run *kernel.Run) { run.ID = x.ID })
	s.note(run) // its effect comes before the refusal
	s.b.Retract(x, run, s.now, &s.acts)
	refused("the run of the refused start is first", skills)
	s.want(s.starts(), "w")

	// A copy of its request is refused again, and changes nothing.
	if x, ok := s.b.Ahead(dispatch.Run{Tenant: app1.Tenant, ID: run.ID}, "job", skills, s.now); ok {
		t.Fatalf("a run starts twice, on %s", x.Worker)
	}
	s.b.Retract(x, run, s.now, &s.acts)
	s.want(s.starts())
}
