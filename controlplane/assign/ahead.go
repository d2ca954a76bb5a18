package assign

import (
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Most runs can start as soon as they exist: nothing limits them, and a worker is free. The entry that creates such a
// run starts it as well, which saves a commit and the wait for it. What a run skills, and that nothing holds it, is
// known from the last run of its job; that this one is like it, Apply checks.

// Ahead chooses the worker of a run that is to be created; false if other runs go first, or no worker is free.
func (b *Board) Ahead(run dispatch.Run, key jobs.Key, skills kernel.Skills, now dispatch.Stamp) (Start, bool) {
	a := b.apps[App{run.Tenant, skills.App}]
	if a == nil || len(a.active)+a.dry > 0 || a.more || a.refused || b.room(run.Tenant, 1, now) == 0 {
		return Start{}, false
	}
	if b.sender.Current(run) != nil || a.all[run.ID] != nil || b.past.of(run) > 0 {
		return Start{}, false // a copy of a request
	}
	var best freest
	for _, m := range a.order {
		if !m.off && m.info.Lacks(skills.Handler, skills.Work, nil) == "" {
			best.look(m, skills.Handler, now)
		}
	}
	if best.member == nil {
		return Start{}, false
	}
	return b.start(a, best.member, dispatch.Attempt{Run: run, N: 1},
		&ready{key: key, queue: kernel.Queue{Handler: skills.Handler, Work: skills.Work}}), true
}

// Retract records that a start which was chosen by Ahead was refused. The run is as its creation left it; nil = there
// is none.
func (b *Board) Retract(s Start, run *kernel.Run, now dispatch.Stamp, acts *dispatch.Acts) {
	sent := b.sender.Find(s.Attempt)
	if sent == nil || !sent.Proposed() {
		return
	}
	b.ended(sent, s.app, s.key, sent.Version)
	switch {
	case run != nil && run.Version >= sent.Version:
		b.Note(run, nil, now, acts)
	case sent.Version != settled && sent.Version > 0: // it has changed meanwhile
		s.app.again()
	}
}

// Waits reports whether runs of an app wait for a worker.
func (b *Board) Waits(name App) bool {
	a := b.apps[name]
	return a == nil || a.more || len(a.all)+len(a.cuts) > 0
}
