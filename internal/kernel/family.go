package kernel

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Families. A run that another run has brought about has that one as its parent: because the parent's job says what is
// to run after it (Options.OnSuccess, Options.OnFailure), or because the parent's handler enqueued it. Jobs can be a
// family, too (Options.Parent): that says what belongs together, and what goes together when one is deleted.

const (
	MaxChildren = 8  // jobs that run after a run, on success or on failure
	MaxDepth    = 16 // runs that bring each other about, one after the other
)

// ParentOf is what the children of a run are told of it.
func ParentOf(run *Run) jobs.ParentRun {
	return jobs.ParentRun{Run: run.ID, Job: run.Key, State: run.State, Cause: string(run.Cause), Result: run.Result, Error: run.Error, Code: run.Code()}
}

// WithParent is default arguments with the parent in them. What would make them too large is left out: first its result, then
// its error.
func WithParent(args []byte, p jobs.ParentRun) []byte {
	with := map[string]json.RawMessage{}
	if len(args) > 0 && json.Unmarshal(args, &with) != nil {
		return args // they were checked when they were written
	}
	for _, shorter := range []func(){func() {}, func() { p.Result = nil }, func() { p.Error = "" }} {
		shorter()
		raw, err := json.Marshal(p)
		if err != nil {
			return args
		}
		with["parent"] = raw
		if all, err := json.Marshal(with); err == nil && len(all) <= MaxArgs {
			return all
		}
	}
	return args
}

// ChildID is the ID of the run of a job that follows another run. A run ends once, and so it has one child of a job.
func ChildID(parent *Run, key jobs.Key) jobs.ID {
	return DerivedID("child", string(parent.Tenant), string(parent.ID[:]), string(key))
}

// Follow are the jobs that run after a run of this job which is in a state.
func (p *Policy) Follow(s jobs.State) []string {
	switch s {
	case jobs.Succeeded:
		return p.OnSuccess
	case jobs.Terminated:
		return p.OnFailure
	}
	return nil
}

// Follow are the jobs that may run after one of this job, as far as s says.
func (s *Settings) Follow() []string {
	var all []string
	for _, keys := range []*[]string{s.OnSuccess, s.OnFailure} {
		if keys != nil {
			all = append(all, *keys...)
		}
	}
	return all
}

func (s *Settings) checkFamily() error {
	for _, l := range []struct {
		name string
		keys *[]string
	}{{"on success", s.OnSuccess}, {"on failure", s.OnFailure}} {
		if l.keys == nil {
			continue
		}
		if len(*l.keys) > MaxChildren {
			return Invalid("%s: %d jobs are given, at most %d are allowed", l.name, len(*l.keys), MaxChildren)
		}
		for i, key := range *l.keys {
			if err := CheckName(l.name, key); err != nil {
				return err
			}
			if SystemKey(jobs.Key(key)) {
				return Invalid("%s: runs of %s are started by the scheduler only", l.name, key)
			}
			if slices.Contains((*l.keys)[:i], key) {
				return Invalid("%s: job %s is named twice: a run has one child of a job", l.name, key)
			}
		}
	}
	if s.Parent != nil && *s.Parent != "" {
		return CheckName("parent", *s.Parent)
	}
	return nil
}

// Under makes a wish that a handler utters a child of the run that the handler belongs to. What a person asks for, and
// what has a parent already, stays as it is. For those who take wishes: a program need not call it.
func (k *Create) Under(ctx context.Context, tenant jobs.Tenant) {
	a := jobs.Attempt(ctx)
	if a.Run.IsZero() || a.Tenant != tenant || !k.Parent.IsZero() || k.Origin != "" && k.Origin != FromCode {
		return
	}
	k.Parent, k.Origin = a.Run, FromParent
}
