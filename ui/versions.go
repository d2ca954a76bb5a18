package ui

import (
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
	Revision uint64
	Versions []versionRow
	Fault    string
}

type versionRow struct {
	ops.Version
	Changes []altered
	Now     bool
	Back    bool // the edits differed then, so that they can be restored
}

// altered is a field before and after, as in the form.
type altered struct{ Label, Old, New string }

func (u *UI) versions(r *http.Request, v visitor) (answer, error) {
	return u.versionsAnswer(r, v, "", 0)
}

func (u *UI) versionsAnswer(r *http.Request, v visitor, fault string, status int) (answer, error) {
	key := jobs.Key(r.PathValue("key"))
	list, err := u.ops.Versions(r.Context(), v.Who, key)
	if err != nil {
		return answer{}, err
	}
	p := versionsPage{visitor: v, Key: key, Fault: fault}
	for i, version := range list {
		row := versionRow{Version: version, Now: i == 0}
		if i == 0 {
			p.Revision = version.Revision
		} else {
			back, err := u.ops.RolledBack(r.Context(), v.Who, key, version.Revision)
			row.Back = err == nil && (len(back.Clear) > 0 || !back.Set.Equal(&list[0].Edits))
		}
		if i+1 < len(list) {
			row.Changes = alterations(version.Changed, &list[i+1].Policy, &version.Policy)
		}
		p.Versions = append(p.Versions, row)
	}
	return answer{page: "versions", title: "Versions of " + string(key), data: p, status: status}, nil
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

func (u *UI) rollback(r *http.Request, v visitor) (answer, error) {
	key := jobs.Key(r.PathValue("key"))
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	to, _ := strconv.ParseUint(r.PostFormValue("to"), 10, 64) // none: refused below
	revision, _ := strconv.ParseUint(r.PostFormValue("revision"), 10, 64)
	_, err := u.ops.Rollback(r.Context(), who, key, to, revision)
	if errors.Is(err, jobs.Conflict) || errors.Is(err, jobs.Stale) || errors.Is(err, jobs.BadInput) {
		return u.versionsAnswer(r, v, said(err), statusOf(err))
	}
	return goTo("/jobs/"+string(key), "saved"), err
}
