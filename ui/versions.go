package ui

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// versionsPage is the versions of a job, newest first.
type versionsPage struct {
	visitor
	Key      jobs.Key
	Versions []versionRow
}

// rollbackPage asks before a rollback, and shows what it would change.
type rollbackPage struct {
	visitor
	Key      jobs.Key
	To       uint64
	Revision uint64 // the current one, which the form is based on
	Reason   string
	Changes  []altered
	Fires    []fire
	Warnings []string
	Fault    string
}

type versionRow struct {
	ops.Version
	Changes []altered
	Now     bool
	Back    bool   // the edits differed then, so that they can be restored
	Why     string // why they cannot be
}

// altered is a field before and after, as in the form.
type altered struct{ Label, Old, New string }

func (u *UI) versions(r *http.Request, v visitor) (answer, error) {
	key := jobs.Key(r.PathValue("key"))
	list, err := u.ops.Versions(r.Context(), v.Who, key)
	if err != nil {
		return answer{}, err
	}
	p := versionsPage{visitor: v, Key: key}
	for i, version := range list {
		row := versionRow{Version: version, Now: i == 0}
		if i > 0 {
			back, err := u.ops.RolledBack(r.Context(), v.Who, key, version.Revision)
			row.Back = err == nil && (len(back.Clear) > 0 || !back.Set.Equal(&list[0].Edits))
			if err != nil {
				row.Why = said(err)
			}
		}
		if i+1 < len(list) {
			row.Changes = alterations(version.Changed, &list[i+1].Policy, &version.Policy)
		}
		p.Versions = append(p.Versions, row)
	}
	return answer{page: "versions", title: "Versions of " + string(key), data: p}, nil
}

func alterations(list []ops.Difference, before, after *kernel.Policy) []altered {
	var out []altered
	for _, d := range list {
		c := altered{Label: d.Field}
		for _, s := range settings {
			if s.Name == d.Field {
				c = altered{s.Label, s.Words(before), s.Words(after)}
			}
		}
		out = append(out, c)
	}
	return out
}

func (u *UI) rollbackForm(r *http.Request, v visitor) (answer, error) {
	return u.rollbackAnswer(r, v, nil)
}

// rollbackAnswer is the page of a rollback, after a refusal with its text.
func (u *UI) rollbackAnswer(r *http.Request, v visitor, refused error) (answer, error) {
	ctx, key := r.Context(), jobs.Key(r.PathValue("key"))
	job, err := u.ops.Job(ctx, v.Who, key, 0)
	if err != nil {
		return answer{}, err
	}
	to, _ := strconv.ParseUint(r.FormValue("to"), 10, 64) // none: refused below
	p := rollbackPage{visitor: v, Key: key, To: to, Revision: job.Revision, Reason: r.PostFormValue("reason")}
	edit, err := u.ops.RolledBack(ctx, v.Who, key, to)
	if err == nil {
		var after ops.Job
		if after, err = u.ops.Preview(ctx, v.Who, edit, pageFires); err == nil {
			p.Changes = alterations(ops.Differences(job.Definition, after.Definition), &job.Definition.Policy, &after.Definition.Policy)
			p.Fires, p.Warnings = fires(after.Definition, after.Next), after.Warnings
		}
	}
	a := answer{page: "rollback", title: "Roll back " + string(key)}
	if err = cmp.Or(refused, err); err != nil {
		if _, ok := errors.AsType[*kernel.Refusal](err); !ok {
			return answer{}, err
		}
		p.Fault, a.status = said(err), statusOf(err)
	}
	a.data = p
	return a, nil
}

func (u *UI) rollback(r *http.Request, v visitor) (answer, error) {
	key, who := jobs.Key(r.PathValue("key")), v.Who
	who.Reason = r.PostFormValue("reason")
	to, _ := strconv.ParseUint(r.PostFormValue("to"), 10, 64) // none: refused below
	revision, _ := strconv.ParseUint(r.PostFormValue("revision"), 10, 64)
	was, err := u.ops.Job(r.Context(), who, key, 0)
	if err != nil {
		return answer{}, err
	}
	job, err := u.ops.Rollback(r.Context(), who, key, to, revision)
	if errors.Is(err, jobs.Conflict) || errors.Is(err, jobs.Stale) || errors.Is(err, jobs.BadInput) {
		return u.rollbackAnswer(r, v, err)
	}
	return edited("saved", was, job), err
}
