package kernel

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Families. The parent of a run is the run that started it: by its job's settings (Options.OnSuccess,
// Options.OnFailure), or because its handler enqueued it. Jobs have parents, too (Options.Parent): they group jobs, and
// are deleted together.

const (
	MaxChildren = 8  // jobs that run after a run, on success or on failure
	MaxDepth    = 16 // longest chain of parent runs
)

// ParentOf returns what the children of a run get about it.
func ParentOf(run *Run) jobs.ParentRun {
	return jobs.ParentRun{Run: run.ID, Job: run.Key, State: run.State, Cause: string(run.Cause), Result: run.Result, Error: run.Error, Code: run.Code()}
}

// WithParent adds the parent to default arguments. If they would be too large, its result is left out first, then its
// error.
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

// ChildID returns the ID of the run of a job that follows another run. A run ends once, and so it has one child of a
// job.
func ChildID(parent *Run, key jobs.Key) jobs.ID {
	return DerivedID("child", string(parent.Tenant), string(parent.ID[:]), string(key))
}

// Follow returns the jobs that run after a run of this job in a state.
func (p *Policy) Follow(s jobs.State) []string {
	switch s {
	case jobs.Succeeded:
		return p.OnSuccess
	case jobs.Terminated:
		return p.OnFailure
	}
	return nil
}

// Follow returns the jobs that may run after one of this job, as far as s sets them.
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
			return Invalid("%s: %d jobs, at most %d are allowed", l.name, len(*l.keys), MaxChildren)
		}
		for i, key := range *l.keys {
			if err := CheckName(l.name, key); err != nil {
				return err
			}
			if SystemKey(jobs.Key(key)) {
				return Invalid("%s: runs of %s are started by the scheduler only", l.name, key)
			}
			if slices.Contains((*l.keys)[:i], key) {
				return Invalid("%s: job %s is repeated: name it once", l.name, key)
			}
		}
	}
	if err := s.checkAfter(); err != nil {
		return err
	}
	if s.Parent != nil && *s.Parent != "" {
		return CheckName("parent", *s.Parent)
	}
	return nil
}

// Under makes a request from a handler a child of the handler's run. Requests by people, and those that have a parent,
// stay as they are. Servers call it: a program need not.
func (k *Create) Under(ctx context.Context, tenant jobs.Tenant) {
	a := jobs.Attempt(ctx)
	if a.Run.IsZero() || a.Tenant != tenant || !k.Parent.IsZero() || k.Origin != "" && k.Origin != FromCode {
		return
	}
	k.Parent, k.Origin = a.Run, FromParent
}
