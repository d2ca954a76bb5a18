package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// manyPage asks before a change of all the jobs, or all the runs, that a filter selects, and then shows its result.
type manyPage struct {
	visitor
	Action   ops.Action
	OfJobs   bool
	Filter   url.Values // as in the URL of the list
	Lines    [][2]string
	Found    ops.Many // of a dry run, or what was done
	Finished bool
	Fault    string
	Request  string // a random key, so that the same form sent twice creates no second run
	Zones    []string
	Back     string
	Here     string
}

// manyTime is how long a request goes on with further parts. The page then offers to continue.
const manyTime = 10 * time.Second

// manyWords are the texts of an action: its title, and what it did.
var manyWords = map[ops.Action][2]string{
	ops.PauseJobs: {"Pause", "paused"}, ops.ResumeJobs: {"Resume", "resumed"}, ops.TriggerJobs: {"Run", "started"}, ops.DeleteJobs: {"Delete", "deleted"},
	ops.CancelRuns: {"Cancel", "cancelled"}, ops.RetryRuns: {"Rerun", "started again"},
}

// Verb is the action as a title.
func (p *manyPage) Verb() string { return manyWords[p.Action][0] }

// Did is the action as a result.
func (p *manyPage) Did() string { return manyWords[p.Action][1] }

// What returns a number of jobs or runs as text.
func (p *manyPage) What(n int) string {
	if p.OfJobs {
		return plural(n, "job")
	}
	return plural(n, "run")
}

// manyFilters are the names of filters in URLs, with their labels.
var manyFilters = [][2]string{{"q", "Search"}, {"app", "App"}, {"tag", "Tag"}, {"kind", "Kind"}, {"job", "Job"}, {"state", "State"}, {"worker", "Worker"},
	{"origin", "Origin"}, {"parent", "Parent run"}, {"batch", "Batch"}, {"code", "Error code"}, {"arg", "Argument"}, {"within", "Ended within"}, {"from", "Created from"}, {"to", "Created before"}}

// manyLink is a link to the page of an action, under the filter of a list.
type manyLink struct {
	Text, Path string
	Danger     bool
}

func manyLinkTo(of string, action ops.Action, filter url.Values) manyLink {
	return manyLink{Text: manyWords[action][0], Path: "/bulk/" + of + "/" + string(action) + "?" + filter.Encode(), Danger: action == ops.DeleteJobs || action == ops.CancelRuns}
}

// Many lists the actions on all jobs that the filter selects.
func (p jobList) Many() (links []manyLink) {
	if !p.Operator() || !p.Filter.Any() || len(p.Rows) == 0 {
		return nil
	}
	for _, action := range []ops.Action{ops.PauseJobs, ops.ResumeJobs, ops.TriggerJobs, ops.DeleteJobs} {
		if action != ops.DeleteJobs || p.Admin() {
			links = append(links, manyLinkTo("jobs", action, p.Filter.values()))
		}
	}
	return links
}

// Many lists the actions on all runs that the filter selects.
func (p runsPage) Many() (links []manyLink) {
	if !p.Operator() || !p.Filter.Any() && p.Filter.State == "" || len(p.Rows) == 0 {
		return nil
	}
	state, err := stateOf(p.Filter.State)
	if err != nil || state.Final() {
		links = append(links, manyLinkTo("runs", ops.RetryRuns, p.Filter.values()))
	}
	if err != nil || !state.Final() {
		links = append(links, manyLinkTo("runs", ops.CancelRuns, p.Filter.values()))
	}
	return links
}

func (u *UI) manyJobs(action ops.Action) handler {
	return func(r *http.Request, v visitor) (answer, error) {
		f := jobFilterOf(r)
		q, err := f.query()
		if err != nil {
			return answer{}, err
		}
		until, err := pauseEnd(r.PostFormValue("until"), r.PostFormValue("at"), r.PostFormValue("zone"), u.ops.Now())
		if err != nil {
			return answer{}, err
		}
		m := ops.ManyJobs{Action: action, Filter: q, Until: until, Live: ops.LiveRuns(r.PostFormValue("runs")), Origin: kernel.FromPerson, Idempotency: r.PostFormValue("request"),
			Resumption: ops.Resumption{Held: ops.Held(r.PostFormValue("held")), Missed: ops.Missed(r.PostFormValue("missed"))}}
		p := &manyPage{visitor: v, Action: action, OfJobs: true, Filter: f.values(), Back: "/jobs?" + f.values().Encode(), Zones: zones("")}
		return u.many(r, p, func(ctx context.Context, who ops.Who, dry bool, cursor string) (ops.Many, error) {
			m.Dry, m.Filter.After = dry, jobs.Key(cursor)
			return u.ops.ManyJobs(ctx, who, m)
		})
	}
}

func (u *UI) manyRuns(action ops.Action) handler {
	return func(r *http.Request, v visitor) (answer, error) {
		if err := r.ParseForm(); err != nil {
			return answer{}, kernel.Invalid("the filter is not a URL's: %v", err)
		}
		f := filterOf(r.Form)
		q, faults := f.query()
		for _, fault := range faults {
			return answer{}, kernel.Invalid("%s", fault)
		}
		m := ops.ManyRuns{Action: action, Filter: q, Idempotency: r.PostFormValue("request")}
		p := &manyPage{visitor: v, Action: action, Filter: f.values(), Back: runsPath(f.values())}
		return u.many(r, p, func(ctx context.Context, who ops.Who, dry bool, cursor string) (ops.Many, error) {
			m.Dry, m.Filter.Cursor = dry, cursor
			return u.ops.ManyRuns(ctx, who, m)
		})
	}
}

// many shows the page, or does the action and shows its result.
func (u *UI) many(r *http.Request, p *manyPage, do func(ctx context.Context, who ops.Who, dry bool, cursor string) (ops.Many, error)) (answer, error) {
	ctx, who := r.Context(), p.Who
	who.Reason = r.PostFormValue("reason")
	p.Here, p.Request = r.URL.Path, rand.Text()
	for _, f := range manyFilters {
		if text := p.Filter.Get(f[0]); text != "" {
			p.Lines = append(p.Lines, [2]string{f[1], text})
		}
	}
	title := p.Verb() + " jobs"
	if !p.OfJobs {
		title = p.Verb() + " runs"
	}
	a := answer{page: "many", title: title, data: p}
	var err error
	if r.Method != http.MethodPost {
		if p.Found, err = do(ctx, who, true, ""); jobs.CodeOf(err) == jobs.BadInput {
			p.Fault, a.status, err = said(err), statusOf(err), nil
		}
		return a, err
	}
	p.Finished = true
	for begun, cursor, more := time.Now(), r.PostFormValue("cursor"), true; more; more = cursor != "" && time.Since(begun) < manyTime {
		part, err := do(ctx, who, false, cursor)
		sum := &p.Found
		sum.Matched, sum.Done, sum.Refused = sum.Matched+part.Matched, sum.Done+part.Done, sum.Refused+part.Refused
		sum.Why = append(sum.Why, part.Why...)
		sum.Cursor, cursor = part.Cursor, part.Cursor
		if refusal, ok := errors.AsType[*kernel.Refusal](err); ok {
			p.Fault, a.status, sum.Cursor = refusal.Text, statusOf(err), ""
			return a, nil
		}
		if err != nil {
			return answer{}, err
		}
	}
	return a, nil
}
