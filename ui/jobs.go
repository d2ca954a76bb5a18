package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/chart"
)

// jobList is the page of all jobs.
type jobList struct {
	visitor
	Filter jobFilter
	Rows   []jobRow
	Next   string // the query of the next page, or ""
	First  string // the query of the first page; "" if this is it
	Apps   []string
	Back   string // this page
}

// jobFilter is the filter in the URL.
type jobFilter struct {
	Q, App, Tag, Kind, State, After string
}

// Any reports whether there is a filter.
func (f jobFilter) Any() bool { f.After = ""; return f != jobFilter{} }

func jobFilterOf(r *http.Request) jobFilter {
	return jobFilter{Q: r.FormValue("q"), App: r.FormValue("app"), Tag: r.FormValue("tag"), Kind: r.FormValue("kind"), State: r.FormValue("state"), After: r.FormValue("after")}
}

// values returns the filter without the position in the list.
func (f jobFilter) values() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"q": f.Q, "app": f.App, "tag": f.Tag, "kind": f.Kind, "state": f.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// at returns the URL's query for the page after a key.
func (f jobFilter) at(after string) string {
	q := f.values()
	if after != "" {
		q.Set("after", after)
	}
	return q.Encode()
}

// query converts the filter. A search with a * is a pattern of keys.
func (f jobFilter) query() (ops.JobQuery, error) {
	q := ops.JobQuery{App: f.App, Text: f.Q, Tag: f.Tag}
	if isPattern(f.Q) {
		q.Text, q.Match = "", f.Q
	}
	switch f.Kind {
	case "":
	case "recurring":
		q.Kind = kernel.Recurring
	case "triggered":
		q.Kind = kernel.Triggered
	default:
		return q, kernel.Invalid("invalid kind %.20q: want recurring or triggered", f.Kind)
	}
	switch f.State {
	case "":
	default:
		if q.State = ops.Condition(f.State); !slices.Contains(ops.Conditions(), q.State) {
			return q, kernel.Invalid("invalid state %.20q: want one of %q", f.State, ops.Conditions())
		}
	}
	return q, nil
}

// isPattern reports whether a text of a filter is a pattern of keys. Keys have no *.
func isPattern(text string) bool { return strings.Contains(text, "*") }

// jobRow is a line of the table of jobs.
type jobRow struct {
	ops.Job
	visitor
	Recurring bool
	Paused    *kernel.Held // now
	Asks      bool         // for arguments: starting it needs a form
	First     time.Time    // next due time; zero = none
	Runs      []chart.Run
	Last      *kernel.Run // the latest run that has started
	Zones     []string    // those in which a pause may end
	Back      string
}

// conditionWords are the conditions of jobs as tags and filters show them: the word, the tone, the sentence.
var conditionWords = map[ops.Condition][3]string{
	ops.BadSchedule: {"invalid schedule", "bad", "Its schedule is invalid: it does not fire"}, ops.IsDisabled: {"disabled", "warn", "Each run is skipped"},
	ops.IsSuspended: {"suspended", "warn", "The tenant is suspended"}, ops.IsPaused: {"paused", "warn", ""},
	ops.InDebug:   {"debug", "warn", "Debug mode holds its runs"},
	ops.IsStopped: {"stopped", "bad", "No online worker of its app has the job any more: it does not fire"},
	ops.Unserved:  {"no worker", "bad", "No online worker has the job: its runs wait"},
	ops.IsFull:    {"full", "warn", "Runs wait for a slot of a limit"}, ops.IsFailing: {"failing", "bad", "Its last runs failed for good, or one fails again and again"},
	ops.IsFinished: {"finished", "", "Its schedule has no due time left"}, ops.Active: {"active", "", ""},
}

// conditionTag is a condition of a job as a tag.
type conditionTag struct{ Word, Tone, Title string }

// Tags are the conditions that the column of the next due time does not show.
func (r jobRow) Tags() (tags []conditionTag) {
	for _, c := range r.Conditions {
		switch c {
		case ops.IsPaused, ops.IsDisabled, ops.IsFinished, ops.InDebug, ops.IsSuspended, ops.BadSchedule:
			continue
		}
		w := conditionWords[c]
		tags = append(tags, conditionTag{w[0], w[1], w[2]})
	}
	return tags
}

// States are the choices of the filter of states.
func (p jobList) States() (list [][2]string) {
	for _, c := range append([]ops.Condition{ops.Active}, ops.Conditions()[:len(ops.Conditions())-1]...) {
		word := conditionWords[c][0]
		list = append(list, [2]string{string(c), strings.ToUpper(word[:1]) + word[1:]})
	}
	return list
}

// Spark draws its last runs.
func (r jobRow) Spark() any { return chart.Spark("The last runs of "+string(r.Key), r.Runs) }

const pageJobs = 50

func (u *UI) jobs(r *http.Request, v visitor) (answer, error) {
	ctx := r.Context()
	f := jobFilterOf(r)
	q, err := f.query()
	if err != nil {
		return answer{}, err
	}
	q.After, q.Limit, q.Next = jobs.Key(f.After), pageJobs, 1
	list, more, err := u.ops.Jobs(ctx, v.Who, q)
	if err != nil {
		return answer{}, err
	}
	p := jobList{visitor: v, Filter: f, Back: r.URL.RequestURI()}
	if f.After != "" {
		p.First = "?" + f.at("")
	}
	if more {
		p.Next = "?" + f.at(string(list[len(list)-1].Key))
	}
	for _, j := range list {
		row := u.jobRow(j, v, p.Back)
		if row.Runs, row.Last, err = u.sparks.of(ctx, u, v.Who, j.Key); err != nil {
			return answer{}, err
		}
		p.Rows = append(p.Rows, row)
		if !slices.Contains(p.Apps, j.App) {
			p.Apps = append(p.Apps, j.App)
		}
	}
	if f.App != "" && !slices.Contains(p.Apps, f.App) {
		p.Apps = append(p.Apps, f.App)
	}
	slices.Sort(p.Apps)
	return answer{page: "jobs", title: "Jobs", data: p}, nil
}

func (u *UI) jobRow(j ops.Job, v visitor, back string) jobRow {
	row := jobRow{Job: j, visitor: v, Recurring: j.Kind == kernel.Recurring, Asks: j.Kind == kernel.Triggered, Zones: zones(j.Definition.Policy.Zone), Back: back}
	if len(j.Next) > 0 && !j.Is(ops.IsStopped) { // what is due while it is stopped is decided afterwards
		row.First = j.Next[0]
	}
	if p := j.Definition.Paused; p != nil && (p.Until.IsZero() || u.ops.Now().Before(p.Until)) {
		row.Paused = p
	}
	return row
}

// zones returns the zones for times in forms: the job's, and UTC. The browser adds its own.
func zones(own string) []string {
	if own == "" || own == "UTC" {
		return []string{"UTC"}
	}
	return []string{own, "UTC"}
}

// sparks caches the last runs of jobs. Each is looked up at most every few seconds, however many users see the list.
type sparks struct {
	mu   sync.Mutex
	kept map[sparkKey]spark
}

type sparkKey struct {
	tenant jobs.Tenant
	key    jobs.Key
}

type spark struct {
	at   time.Time
	runs []chart.Run
	last *kernel.Run
}

const (
	sparkLife = 3 * time.Second
	maxSparks = 5_000
)

func (s *sparks) of(ctx context.Context, u *UI, who ops.Who, key jobs.Key) ([]chart.Run, *kernel.Run, error) {
	now, at := time.Now(), sparkKey{who.Tenant, key}
	s.mu.Lock()
	kept, ok := s.kept[at]
	s.mu.Unlock()
	if ok && now.Sub(kept.at) < sparkLife {
		return kept.runs, kept.last, nil
	}
	list, err := u.begun(ctx, who, key)
	if err != nil {
		return nil, nil, err
	}
	fresh := spark{at: now, runs: u.bars(list)}
	if len(list) > 0 {
		fresh.last = list[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || len(s.kept) >= maxSparks {
		s.kept = map[sparkKey]spark{}
	}
	s.kept[at] = fresh
	return fresh.runs, fresh.last, nil
}

// begun returns the last started runs of a job, newest first. Runs that wait for their time come first in the store's
// list and may hide all others: then each state is read separately.
func (u *UI) begun(ctx context.Context, who ops.Who, key jobs.Key) ([]*kernel.Run, error) {
	q := metastore.RunQuery{Job: key, Limit: chart.SparkRuns}
	page, err := u.ops.Runs(ctx, who, q)
	if err != nil {
		return nil, err
	}
	list := page.Runs
	if page.Next != "" && slices.ContainsFunc(list, waits) {
		q.Ended = true
		if page, err = u.ops.Runs(ctx, who, q); err != nil {
			return nil, err
		}
		list, q.Ended = page.Runs, false
		for _, q.State = range slices.DeleteFunc(kernel.States(), func(s jobs.State) bool { return waiting(s) || s.Final() }) {
			if page, err = u.ops.Runs(ctx, who, q); err != nil {
				return nil, err
			}
			list = append(slices.Clip(list), page.Runs...)
		}
	}
	list = slices.DeleteFunc(slices.Clone(list), waits)
	slices.SortStableFunc(list, func(a, b *kernel.Run) int {
		return cmp.Or(latest(b).Compare(latest(a)), slices.Compare(b.ID[:], a.ID[:]))
	})
	return list[:min(len(list), chart.SparkRuns)], nil
}

func waits(run *kernel.Run) bool { return waiting(run.State) }

func waiting(s jobs.State) bool { return s == jobs.Scheduled || s == jobs.Enqueued }

// bars converts runs for a spark, oldest first.
func (u *UI) bars(list []*kernel.Run) []chart.Run {
	bars := make([]chart.Run, len(list))
	for i, run := range list {
		row := u.runRow(run)
		bar := chart.Run{Class: strings.ToLower(run.State.String()), Took: row.Took, Words: run.State.String(), At: row.When, Href: u.base + "/runs/" + run.ID.String()}
		if row.Took > 0 {
			bar.Words += " after " + long(row.Took)
		}
		if row.Why != "" {
			bar.Words += ", " + row.Why
		}
		bars[len(list)-1-i] = bar
	}
	return bars
}
