package controlplane

import (
	"slices"

	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// lookahead is what the last runs of jobs needed that could start as soon as they were created.
type lookahead map[kernel.Ref]kernel.Skills

// mostKnown is how many jobs a lookahead has. Then it begins anew.
const mostKnown = 10_000

// learn follows the creation of a run.
func (l lookahead) learn(run *kernel.Run) {
	ref := kernel.DefinitionRef(run.Tenant, run.Key)
	skills, plain := run.Skills()
	if !plain || run.State != jobs.Enqueued || l[ref] == skills {
		return
	}
	if len(l) >= mostKnown {
		clear(l)
	}
	l[ref] = skills
}

// early is a start in the entry that creates its run.
type early struct {
	assign.Start
	key    jobs.Key
	skills kernel.Skills
	of     int // the command that creates it
}

// ahead chooses which runs that a batch creates are started with it, and where.
func (cp *ControlPlane) ahead(batch []kernel.Envelope) (list []early, term uint64) {
	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term == 0 {
		return nil, 0
	}
	now := b.now()
	for i := range batch {
		tenant := batch[i].Tenant
		start := func(key jobs.Key, id jobs.ID) {
			skills, known := b.ahead[kernel.DefinitionRef(tenant, key)]
			if !known {
				return
			}
			if s, ok := b.Ahead(dispatch.Run{Tenant: tenant, ID: id}, key, skills, now); ok {
				list = append(list, early{s, key, skills, i})
			}
		}
		switch k := batch[i].Command.(type) {
		case kernel.Create:
			if k.Due.IsZero() && k.Delay == 0 && k.Unique == "" && k.Pin == "" && k.Total == 0 {
				start(k.Key, k.ID)
			}
		case kernel.Fire:
			for _, due := range k.Due {
				start(k.Key, kernel.DueID(tenant, k.Job, due, 0, 0))
			}
		}
	}
	if len(list) > 0 {
		if at := cp.cfg.Elector.Confirmed(b.term); !at.IsZero() {
			b.Sender().Confirm(b.stamp(at))
		}
	}
	return list, b.term
}

// startedEarly takes in the results of starts that their effects do not tell.
func (cp *ControlPlane) startedEarly(list []early, created, started []metastore.Result, term uint64) {
	var unknown *proposal
	var acts dispatch.Acts
	b := &cp.board
	b.mu.Lock()
	now := b.now()
	for i, s := range list {
		err := started[i].Err
		var run *kernel.Run
		switch {
		case err == nil && !started[i].Existing:
			if run = started[i].Run(); run.State == jobs.Processing {
				continue // its effect has said so
			}
		case err == nil:
			for _, run := range started[i].Runs {
				b.note(run, b.current(run), now, &acts)
			}
		case jobs.CodeOf(err) == jobs.Unknown:
			if unknown == nil {
				unknown = b.proposal(s.Tenant)
			}
			unknown.starts = append(unknown.starts, s.Start)
			continue
		}
		if c := &created[s.of]; run == nil && c.Err == nil && !c.Existing {
			if n := slices.IndexFunc(c.Runs, func(run *kernel.Run) bool { return run.ID == s.ID }); n >= 0 {
				run = c.Runs[n]
			}
		}
		delete(b.ahead, kernel.DefinitionRef(s.Tenant, s.key))
		b.Retract(s.Start, run, now, &acts)
	}
	pushes := b.deliveries(acts.Push)
	b.lookAfter()
	b.mu.Unlock()
	cp.deliver(pushes)
	if unknown == nil {
		return
	}
	if ctx, now := cp.ready.now(); now == term {
		go cp.commit(ctx, term, unknown)
		return
	}
	b.mu.Lock()
	b.Committing(unknown.tenant, -1)
	b.mu.Unlock()
}
