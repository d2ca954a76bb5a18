package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// maxFamily limits the jobs that are searched for followers and children.
const maxFamily = 1000

// circle returns the keys of a cycle in which a job, as it would be, follows itself, or nil. Missing jobs are included:
// they have no followers.
func (o *Ops) circle(ctx context.Context, after *kernel.Definition) (circle, missing []string, err error) {
	follows := func(d *kernel.Definition) []string { return slices.Concat(d.Policy.OnSuccess, d.Policy.OnFailure) }
	type step struct {
		d    *kernel.Definition
		path []string
	}
	self := string(after.Key)
	seen := map[string]bool{}
	for todo := []step{{after, []string{self}}}; len(todo) > 0 && len(seen) < maxFamily; todo = todo[1:] {
		at := todo[0]
		for _, key := range follows(at.d) {
			path := append(slices.Clip(at.path), key)
			if key == self && circle == nil {
				circle = path
			}
			if key == self || seen[key] {
				continue
			}
			seen[key] = true
			d, err := o.store.Definition(ctx, after.Tenant, jobs.Key(key))
			switch {
			case jobs.CodeOf(err) == jobs.NotFound:
				if at.d == after {
					missing = append(missing, key)
				}
			case err != nil:
				return nil, nil, err
			default:
				todo = append(todo, step{d, path})
			}
		}
	}
	return circle, missing, nil
}

// warnFamily adds warnings about the jobs that follow a job.
func (o *Ops) warnFamily(ctx context.Context, j *Job) error {
	if len(j.Policy.OnSuccess)+len(j.Policy.OnFailure) == 0 {
		return nil
	}
	circle, missing, err := o.circle(ctx, j.Definition)
	if err != nil {
		return err
	}
	if circle != nil {
		j.Warnings = append(j.Warnings, fmt.Sprintf("these jobs follow each other in a circle: %s; after %d runs the next one is skipped", strings.Join(circle, " > "), kernel.MaxDepth))
	}
	for _, key := range missing {
		j.Warnings = append(j.Warnings, fmt.Sprintf("there is no job %s: it is skipped", key))
	}
	return nil
}

// Family lists a job and its descendants, the lowest first.
func (o *Ops) Family(ctx context.Context, who Who, key jobs.Key) ([]*kernel.Definition, error) {
	head, err := o.definition(ctx, who, key)
	if err != nil {
		return nil, err
	}
	all, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant()})
	if err != nil {
		return nil, err
	}
	below := map[string][]*kernel.Definition{}
	for _, d := range all {
		if p := d.Policy.Parent; p != "" {
			below[p] = append(below[p], d)
		}
	}
	family, seen := []*kernel.Definition{head}, map[jobs.Key]bool{key: true}
	for i := 0; i < len(family); i++ {
		for _, d := range below[string(family[i].Key)] {
			if !seen[d.Key] {
				seen[d.Key] = true
				family = append(family, d)
			}
		}
	}
	slices.Reverse(family)
	return family, nil
}

// DeletedFamily is the result of deleting a family.
type DeletedFamily struct {
	Jobs      []jobs.Key // the deleted jobs, in this order
	Cancelled int        // live runs
}

// DeleteFamily deletes a job and its descendants, the lowest first. Without a fate it is refused while there are live
// runs, and nothing is done. Repeating it continues an interrupted deletion.
func (o *Ops) DeleteFamily(ctx context.Context, who Who, k kernel.Delete, fate LiveRuns) (DeletedFamily, error) {
	var done DeletedFamily
	family, err := o.Family(ctx, who, k.Key)
	if err != nil {
		return done, err
	}
	if head := family[len(family)-1]; k.IfRevision != 0 && k.IfRevision != head.Revision {
		return done, kernel.Refuse(jobs.Stale, "job %s has revision %d, the delete was made for %d: read it and try again", k.Key, head.Revision, k.IfRevision)
	}
	if fate == "" {
		var busy []string
		total := 0
		for _, d := range family {
			n, err := o.living(ctx, who, d.Key)
			if err != nil {
				return done, err
			}
			if n > 0 {
				busy, total = append(busy, string(d.Key)), total+n
			}
		}
		if total > 0 {
			return done, kernel.Refuse(jobs.Conflict, "the family of %s has %d live runs (of %s): choose to cancel them or to let them finish", k.Key, total, strings.Join(busy, ", "))
		}
	}
	for _, d := range family {
		del := kernel.Delete{Key: d.Key, IfRevision: d.Revision} // a child that has got another parent meanwhile stays
		if d.Key == k.Key {
			del.IfRevision = k.IfRevision
		}
		one, err := o.Delete(ctx, who, del, fate)
		done.Cancelled += one.Cancelled
		if err != nil {
			err = fmt.Errorf("delete %s of the family of %s: %w", d.Key, k.Key, err)
			if n := len(done.Jobs); n > 0 {
				err = kernel.Refuse(jobs.Unknown, "%d of %d jobs were deleted, then: %v", n, len(family), err)
			}
			return done, err
		}
		done.Jobs = append(done.Jobs, d.Key)
	}
	return done, nil
}

// Children lists the child runs of a run, newest first: its followers, and the runs that its handler enqueued.
func (o *Ops) Children(ctx context.Context, who Who, id jobs.ID, cursor string, limit int) (metastore.Page, error) {
	if _, err := o.store.Run(ctx, who.tenant(), id); err != nil {
		return metastore.Page{}, err
	}
	return o.store.Runs(ctx, metastore.RunQuery{Tenant: who.tenant(), Parent: id, Cursor: cursor, Limit: limit})
}

// ChildLog is the end of the log of a child run.
type ChildLog struct {
	*kernel.Run
	Lines []metastore.LogLine
	Cut   bool // earlier lines were left out
}

// maxChildLogs is how many children are shown with their logs.
const maxChildLogs = 50

// ChildrenLogs lists the children of a run, newest first, with the last lines of each.
func (o *Ops) ChildrenLogs(ctx context.Context, who Who, id jobs.ID, lines int) ([]ChildLog, error) {
	if lines < 1 || lines > MaxLines {
		return nil, kernel.Invalid("invalid number of lines %d: want 1 to %d", lines, MaxLines)
	}
	page, err := o.Children(ctx, who, id, "", maxChildLogs)
	if err != nil {
		return nil, err
	}
	list := make([]ChildLog, len(page.Runs))
	for i, run := range page.Runs {
		list[i].Run = run
		if list[i].Lines, list[i].Cut, err = o.Tail(ctx, who, run.ID, lines); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Relative is a run in the family of another.
type Relative struct {
	*kernel.Run
	Depth int // distance from the root run
}

// Tree lists the family of a run: from the root run, each followed by its children. If a run has more than the tree has
// room for, those are listed without theirs. cut reports that there may be more.
func (o *Ops) Tree(ctx context.Context, who Who, id jobs.ID, limit int) (tree []Relative, cut bool, err error) {
	if limit < 1 || limit > maxFamily {
		return nil, false, kernel.Invalid("invalid number of runs %d: want 1 to %d", limit, maxFamily)
	}
	first, err := o.store.Run(ctx, who.tenant(), id)
	if err != nil {
		return nil, false, err
	}
	for range maxFamily {
		if first.Parent.IsZero() || first.Origin == kernel.FromBackfill {
			break
		}
		above, err := o.store.Run(ctx, who.tenant(), first.Parent)
		if jobs.CodeOf(err) == jobs.NotFound {
			break // it has been purged
		}
		if err != nil {
			return nil, false, err
		}
		first = above
	}
	seen := map[jobs.ID]bool{}
	var walk func(run *kernel.Run, depth int) error
	walk = func(run *kernel.Run, depth int) error {
		if seen[run.ID] {
			return nil
		}
		if len(tree) >= limit {
			cut = true
			return nil
		}
		seen[run.ID] = true
		tree = append(tree, Relative{run, depth})
		page, err := o.store.Runs(ctx, metastore.RunQuery{Tenant: who.tenant(), Parent: run.ID, Limit: metastore.MaxPage})
		if err != nil {
			return err
		}
		wide := page.Next != "" || len(page.Runs) > limit-len(tree) // they fill the tree, and looking each of them up takes long
		cut = cut || wide
		for _, child := range slices.Backward(page.Runs) {
			if wide {
				if len(tree) < limit && !seen[child.ID] {
					seen[child.ID] = true
					tree = append(tree, Relative{child, depth + 1})
				}
				continue
			}
			if err := walk(child, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return tree, cut, walk(first, 0)
}
