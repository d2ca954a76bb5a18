package ops

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// RunFilter selects runs: the store's filter, and what definitions know.
type RunFilter struct {
	metastore.RunQuery
	Tag    string        // a tag that their jobs have now
	Within time.Duration // only those that ended within this time; 0 = all
}

// maxTagged is how many jobs with a tag a list of runs may have: the query names them.
const maxTagged = 5_000

// Any reports whether it filters at all.
func (f *RunFilter) Any() bool {
	q := &f.RunQuery
	return q.Job != "" || q.State != kernel.New || q.Worker != "" || !q.Parent.IsZero() || !q.Batch.IsZero() || q.Origin != "" || q.Cause != "" || q.Code != "" ||
		q.App != "" || q.Match != "" || len(q.Args) > 0 || f.Tag != "" || !q.From.IsZero() || f.Within != 0
}

// FilterRuns lists runs as [Ops.Runs] does, with a filter that also knows tags.
func (o *Ops) FilterRuns(ctx context.Context, who Who, f RunFilter) (metastore.Page, error) {
	q, err := o.runQuery(ctx, who, f)
	if err != nil {
		return metastore.Page{}, err
	}
	page, err := o.Runs(ctx, who, q)
	return f.lately(page, o.Now()), err
}

// lately leaves those of a page that ended within the filter's time. Lists have those that ended last first, so that
// nothing follows a page without any.
func (f *RunFilter) lately(page metastore.Page, now time.Time) metastore.Page {
	if f.Within == 0 {
		return page
	}
	since := now.Add(-f.Within)
	page.Runs = slices.DeleteFunc(slices.Clone(page.Runs), func(run *kernel.Run) bool { return run.Ended.Before(since) })
	if len(page.Runs) == 0 {
		page.Next, page.Searched = "", time.Time{}
	}
	return page
}

// runQuery resolves a filter to one that the store knows.
func (o *Ops) runQuery(ctx context.Context, who Who, f RunFilter) (metastore.RunQuery, error) {
	q := f.RunQuery
	if !q.Batch.IsZero() {
		b, err := batchOf(ctx, o.store, who.tenant(), q.Batch)
		if err != nil {
			return q, err
		}
		if q.From.Before(b.Opened) { // no run of it is older
			q.From = b.Opened
		}
	}
	if f.Tag == "" && len(q.Args) == 0 {
		return q, nil
	}
	list, err := o.selected(ctx, who, JobQuery{App: q.App, Match: q.Match, Tag: f.Tag})
	if err == nil && len(q.Args) > 0 {
		list, err = o.searchable(ctx, who, list, &q)
	}
	if err != nil {
		return q, err
	}
	if len(list) > maxTagged {
		return q, kernel.Invalid("%d jobs have this tag or these arguments: narrow the list by app or match to at most %d jobs", len(list), maxTagged)
	}
	q.Jobs = make([]jobs.Key, len(list))
	for i, d := range list {
		q.Jobs[i] = d.Key
	}
	slices.Sort(q.Jobs)
	if len(list) == 1 && q.Job == "" { // which has an index
		q.Job, q.Jobs = list[0].Key, nil
	}
	return q, nil
}

// Any reports whether it filters at all.
func (q *JobQuery) Any() bool {
	return q.App != "" || q.Text != "" || q.Tag != "" || q.Bundle != "" || q.Match != "" || q.Kind != 0 || q.Paused != nil || q.State != ""
}

// selects reports whether a job passes the filters that the store does not know.
func (q *JobQuery) selects(o *Ops, d *kernel.Definition) bool {
	return (q.Text == "" || mentions(d, q.Text)) && (q.Tag == "" || slices.Contains(d.Policy.Tags, q.Tag)) && (q.Bundle == "" || d.Bundle == q.Bundle) && (q.Kind == 0 || d.Kind == q.Kind) &&
		(q.Match == "" || metastore.MatchesKey(q.Match, d.Key)) && (q.Paused == nil || paused(d, o.Now()) == *q.Paused)
}

// in reports whether conditions are those of the filter.
func (q *JobQuery) in(list []Condition) bool {
	if q.State == Active {
		return len(list) == 0
	}
	return slices.Contains(list, q.State)
}

// checkState refuses what is no state.
func (q *JobQuery) checkState() error {
	if q.State != "" && !slices.Contains(Conditions(), q.State) {
		return kernel.Invalid("invalid state %.20q: want one of %q", string(q.State), Conditions())
	}
	return nil
}

// selected lists the jobs that a filter selects, by key. Its page is not obeyed.
func (o *Ops) selected(ctx context.Context, who Who, q JobQuery) ([]*kernel.Definition, error) {
	if err := errors.Join(metastore.CheckMatch(q.Match), q.checkState()); err != nil {
		return nil, err
	}
	in := func(*kernel.Definition) bool { return true }
	if q.State != "" {
		global, err := o.store.Global(ctx, who.tenant())
		if err != nil {
			return nil, err
		}
		standing, err := o.conditioner(ctx, who, global)
		if err != nil {
			return nil, err
		}
		in = func(d *kernel.Definition) bool { return q.in(standing.of(d)) }
	}
	rows, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant(), App: q.App})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(rows), func(d *kernel.Definition) bool { return !q.selects(o, d) || !in(d) }), nil
}

// searchable returns the jobs of a list that declare all arguments of a query as searchable. Without such jobs the query
// is refused: an empty list would look as if no run had these arguments.
func (o *Ops) searchable(ctx context.Context, who Who, list []*kernel.Definition, q *metastore.RunQuery) (found []*kernel.Definition, err error) {
	for _, d := range list {
		if q.Job != "" && d.Key != q.Job {
			continue
		}
		schema, err := o.schema(ctx, who, d)
		if err != nil {
			return nil, err
		}
		paths := argschema.Searchable(schema)
		if !slices.ContainsFunc(q.Args, func(a metastore.Arg) bool { return !slices.Contains(paths, a.Path) }) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		names := make([]string, len(q.Args))
		for i, a := range q.Args {
			names[i] = "args." + a.Path
		}
		return nil, kernel.Invalid("none of these jobs declares %.100s as searchable: add the tag carillon:\"search\" to the field", strings.Join(names, ", "))
	}
	return found, nil
}
