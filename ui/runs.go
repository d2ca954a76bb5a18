package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// runsPage is the list of runs. All it depends on is in its URL.
type runsPage struct {
	visitor
	Filter  runFilter
	Tabs    []stateTab
	Rows    []runRow
	Allowed map[jobs.Key]bool // of a visitor with a scope: the jobs of the rows that it has
	Newest  string            // paths of other pages of the list, or ""
	Newer   string
	Older   string
	Through time.Time // the search was cut short at this time
	Faults  filterFaults
	Here    string // where the forms redirect to
	Done    string // the result of a form
	Keys    []jobs.Key
	Apps    []string
	Workers []string
	Origins []kernel.Origin
}

// runFilter is the filter in the URL, as it was typed.
type runFilter struct {
	State, Job, App, Tag, Worker, Origin, Parent, Batch, From, To, Zone, Code, Arg string
	Within                                                                         string // how long ago they ended at most
	Cursor                                                                         string
	Back                                                                           []string // cursors of the pages before this one, "" for the first
}

// filterFaults are the errors of a filter, by its field; "" = of none in particular. With any, the list has no rows:
// all runs would look like those that the filter selects.
type filterFaults map[string]string

// note adds the error of a field. The first error of a field counts.
func (f filterFaults) note(field string, err error) {
	if refusal, ok := errors.AsType[*kernel.Refusal](err); ok && f[field] == "" {
		f[field] = refusal.Text
	}
}

// Of returns the error at a field, or "".
func (f filterFaults) Of(field string) string { return f[field] }

// Elsewhere lists the errors of what has no field on the page, or at least none that can be typed into.
func (f filterFaults) Elsewhere() (list []string) {
	for _, name := range []string{"state", ""} {
		if f[name] != "" {
			list = append(list, f[name])
		}
	}
	return list
}

// stateTab is one state and how many runs are in it.
type stateTab struct {
	State jobs.State // New = all
	Name  string
	Count string // "" = not known
	Hint  string // what the count counts
	Path  string
	Here  bool
}

const (
	runsRows = 50
	// mostBack is how many previous pages a URL remembers; beyond, "newest" links to the first.
	mostBack = 20
	// countedExactly is the largest count that a tab shows exactly.
	countedExactly = 10_000
	// localTime is the format of browsers for a date and time.
	localTime = "2006-01-02T15:04"
)

func filterOf(q url.Values) runFilter {
	get := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	f := runFilter{State: get("state"), Job: get("job"), App: get("app"), Tag: get("tag"), Worker: get("worker"), Origin: get("origin"), Parent: get("parent"), Batch: get("batch"),
		From: get("from"), To: get("to"), Zone: get("zone"), Code: get("code"), Arg: get("arg"), Within: get("within"), Cursor: q.Get("cursor"), Back: q["back"]}
	switch { // the browser fills in the viewer's zone only if the URL has no time
	case f.From == "" && f.To == "":
		f.Zone = ""
	case f.Zone == "":
		f.Zone = "UTC"
	}
	f.Back = f.Back[max(0, len(f.Back)-mostBack):]
	return f
}

// Any reports whether a field other than the state filters the list.
func (f runFilter) Any() bool {
	return f.Job != "" || f.App != "" || f.Tag != "" || f.Worker != "" || f.Origin != "" || f.Parent != "" || f.Batch != "" || f.From != "" || f.To != "" || f.Code != "" || f.Arg != "" || f.Within != ""
}

// values returns the filter without the position in the list.
func (f runFilter) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"state": f.State, "job": f.Job, "app": f.App, "tag": f.Tag, "worker": f.Worker, "origin": f.Origin, "parent": f.Parent, "batch": f.Batch, "from": f.From, "to": f.To, "zone": f.Zone, "code": f.Code, "arg": f.Arg, "within": f.Within} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

func runsPath(v url.Values) string {
	if len(v) == 0 {
		return "/runs"
	}
	return "/runs?" + v.Encode()
}

// at returns the path of another page of the list.
func (f runFilter) at(cursor string, back []string) string {
	v := f.values()
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	for _, b := range back[max(0, len(back)-mostBack):] {
		v.Add("back", b)
	}
	return runsPath(v)
}

// query converts the filter. Invalid fields are reported and left out: what is left must not be shown.
func (f runFilter) query() (q ops.RunFilter, faults filterFaults) {
	faults = filterFaults{}
	q = ops.RunFilter{Tag: f.Tag, RunQuery: metastore.RunQuery{App: f.App, Worker: f.Worker, Origin: kernel.Origin(f.Origin),
		Code: f.Code, Cursor: f.Cursor, Limit: runsRows}}
	var err error
	if f.State != "" {
		q.State, err = stateOf(f.State)
		faults.note("state", err)
	}
	switch {
	case f.Job == "":
	case isPattern(f.Job):
		q.Match = f.Job
		faults.note("job", metastore.CheckMatch(f.Job))
	default:
		q.Job = jobs.Key(f.Job)
		faults.note("job", q.Job.Check())
	}
	if f.Arg != "" {
		arg, err := metastore.ParseArg(f.Arg)
		q.Args = []metastore.Arg{arg}
		faults.note("arg", err)
	}
	if f.Within != "" {
		if q.Within, err = time.ParseDuration(f.Within); err != nil || q.Within <= 0 {
			faults.note("within", kernel.Invalid("invalid time %.20q since the end: want a duration such as 1h or 90m", f.Within))
		}
	}
	if f.Parent != "" {
		q.Parent, err = jobs.ParseID(f.Parent)
		faults.note("parent", err)
	}
	if f.Batch != "" {
		q.Batch, err = jobs.ParseID(f.Batch)
		faults.note("batch", err)
	}
	if f.Origin != "" && !slices.Contains(origins, q.Origin) {
		faults.note("origin", kernel.Invalid("invalid origin %.40q: want one of %q", f.Origin, origins))
	}
	if err := checkZone(f.Zone); err != nil {
		faults.note("from", err)
		return q, faults
	}
	q.From, err = timeOf(f.From, f.Zone)
	faults.note("from", err)
	q.To, err = timeOf(f.To, f.Zone)
	faults.note("to", err)
	return q, faults
}

// stateOf reads the name of a state, in any case: the command line accepts it so, too.
func stateOf(name string) (jobs.State, error) {
	for _, s := range kernel.States() {
		if strings.EqualFold(name, s.String()) {
			return s, nil
		}
	}
	return kernel.ParseState(name)
}

var origins = kernel.Origins()

// timeOf reads a time of the filter, in a zone unless it has an offset; "" is the zero time.
func timeOf(text, zone string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{localTime, "2006-01-02T15:04:05", time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, location(zone)); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, kernel.Invalid("invalid time %.40q: want 2026-11-21T14:30", text)
}

func (u *UI) runs(r *http.Request, v visitor) (answer, error) {
	ctx, who := r.Context(), v.Who
	f := filterOf(r.URL.Query())
	q, faults := f.query()
	p := runsPage{visitor: v, Filter: f, Faults: faults, Origins: origins, Here: f.at(f.Cursor, f.Back), Done: doneText(r.URL.Query())}
	var page metastore.Page
	if len(faults) == 0 {
		var err error
		page, err = u.ops.FilterRuns(ctx, who, q)
		if jobs.CodeOf(err) == jobs.BadInput && f.Cursor != "" {
			// A bookmark of an old list: start at its top.
			q.Cursor, f.Cursor, f.Back = "", "", nil
			page, err = u.ops.FilterRuns(ctx, who, q)
		}
		switch {
		case jobs.CodeOf(err) == jobs.BadInput && len(q.Args) > 0: // no job declares it
			faults.note("arg", err)
		case jobs.CodeOf(err) == jobs.BadInput:
			faults.note("", err)
		case err != nil:
			return answer{}, err
		}
	}
	status := 0
	if len(faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	var err error
	p.Rows, p.Through = u.runRows(page.Runs), page.Searched
	if f.whole() {
		if p.Rows, err = u.fold(ctx, who, p.Rows); err != nil {
			return answer{}, err
		}
	}
	u.unplaced(ctx, who, p.Rows)
	var keys []jobs.Key
	for _, row := range p.Rows {
		keys = append(keys, row.Key)
	}
	if p.Allowed, err = u.ops.Allowed(ctx, who, keys); err != nil {
		return answer{}, err
	}
	if page.Next != "" {
		p.Older = f.at(page.Next, append(slices.Clone(f.Back), f.Cursor))
	}
	if f.Cursor != "" {
		p.Newest = f.at("", nil)
		if n := len(f.Back); n > 0 {
			p.Newer = f.at(f.Back[n-1], f.Back[:n-1])
		}
	}
	if p.Tabs, err = u.stateTabs(ctx, who, p.Filter, q, page, len(faults) > 0); err != nil {
		return answer{}, err
	}
	list, _, err := u.ops.Jobs(ctx, who, ops.JobQuery{Limit: metastore.MaxPage})
	if err != nil {
		return answer{}, err
	}
	for _, j := range list {
		p.Keys = append(p.Keys, j.Key)
		if !slices.Contains(p.Apps, j.App) {
			p.Apps = append(p.Apps, j.App)
		}
	}
	for _, w := range u.ops.Workers(ctx, who) {
		p.Workers = append(p.Workers, w.Name)
	}
	return answer{page: "runs", title: "Runs", data: p, status: status}, nil
}

// stateTabs counts where counting is cheap: unfinished runs by their counters, finished ones by the hours of the last
// day. Under another filter only the runs on the page are counted, and under an invalid one nothing is.
func (u *UI) stateTabs(ctx context.Context, who ops.Who, f runFilter, q ops.RunFilter, page metastore.Page,
	invalid bool) ([]stateTab, error) {
	narrow := f
	if !isPattern(f.Job) {
		narrow.Job = ""
	}
	var live map[jobs.State]int
	ended := map[jobs.State]int64{}
	if !narrow.Any() && !invalid {
		now := u.ops.Now()
		counts, err := u.ops.Counts(ctx, who, metastore.CountQuery{Job: q.Job, From: now.Truncate(time.Hour).Add(-23 * time.Hour), To: now.Add(time.Hour)})
		if err != nil {
			return nil, err
		}
		live = counts.Live
		for _, t := range counts.Tallies {
			for state, n := range t.Runs {
				ended[jobs.State(state)] += n
			}
		}
	}
	var tabs []stateTab
	for _, state := range append([]jobs.State{kernel.New}, kernel.States()...) {
		tab := stateTab{State: state, Name: state.String(), Here: state == q.State}
		to := f
		to.State = tab.Name
		if state == kernel.New {
			tab.Name, to.State = "All", ""
		}
		tab.Path = to.at("", nil)
		switch {
		case invalid:
		case live == nil && tab.Here:
			tab.Count, tab.Hint = strconv.Itoa(len(page.Runs)), "on this page"
			if page.Next != "" || f.Cursor != "" {
				tab.Count += "+"
			}
		case live == nil || state == kernel.New:
		case state.Final():
			tab.Count, tab.Hint = counted(ended[state]), "in the last 24 hours"
		default:
			tab.Count, tab.Hint = counted(int64(live[state])), "now"
		}
		tabs = append(tabs, tab)
	}
	return tabs, nil
}

// counted formats a count for a tab.
func counted(n int64) string {
	if n > countedExactly {
		return count(countedExactly) + "+"
	}
	return count(int(n))
}

// bulk does one action on all selected runs, and shows the list again with the result.
func (u *UI) bulk(r *http.Request, v visitor) (answer, error) {
	ctx, who := r.Context(), v.Who
	who.Reason = r.PostFormValue("reason")
	ticked := r.PostForm["id"]
	if len(ticked) == 0 {
		return answer{}, kernel.Invalid("no runs selected")
	}
	if len(ticked) > metastore.MaxPage {
		return answer{}, kernel.Invalid("%d runs selected, at most %d allowed", len(ticked), metastore.MaxPage)
	}
	ids := make([]jobs.ID, len(ticked))
	for i, text := range ticked {
		var err error
		if ids[i], err = jobs.ParseID(text); err != nil {
			return answer{}, err
		}
	}
	what := r.PostFormValue("do")
	did, refused, first := 0, 0, ""
	for _, id := range ids {
		var err error
		switch what {
		case "cancel":
			_, err = u.ops.Cancel(ctx, who, id)
		case "again":
			_, err = u.ops.Again(ctx, who, id, nil, "")
		default:
			return answer{}, kernel.Invalid("invalid do %.20q: want cancel or again", what)
		}
		refusal, ok := errors.AsType[*kernel.Refusal](err)
		switch {
		case err == nil:
			did++
		case ok && refusal.Code == jobs.Unknown: // not to be counted with the refused ones
			return answer{}, kernel.Refuse(jobs.Unknown, "completed for %s; the outcome for run %s is unknown: check the runs before you repeat the request", plural(did, "run"), id)
		case ok && refusal.Code != jobs.Forbidden && (refusal.Code != jobs.Unavailable || did > 0):
			refused++
			first = cmp.Or(first, refusal.Text)
		case did > 0:
			err = errors.Join(kernel.Refuse(jobs.Unknown, "completed for %s, then interrupted: check the runs before you repeat the request", plural(did, "run")), err)
			return answer{}, err
		default:
			return answer{}, err
		}
	}
	here, err := url.Parse(local(r.PostFormValue("here")))
	if err != nil {
		return answer{}, err
	}
	q := here.Query()
	q.Set("bulk", what)
	q.Set("n", strconv.Itoa(did))
	q.Del("no")
	q.Del("why")
	if refused > 0 {
		q.Set("no", strconv.Itoa(refused))
		q.Set("why", first)
	}
	here.RawQuery = q.Encode()
	return answer{next: here.String()}, nil
}

// doneText describes the result of bulk. It comes from the URL, so it has only numbers and a refusal.
func doneText(q url.Values) string {
	n, err := strconv.Atoi(q.Get("n"))
	if err != nil {
		return ""
	}
	var text string
	switch q.Get("bulk") {
	case "cancel":
		text = result(n, "run was cancelled.", "runs were cancelled.")
	case "again":
		text = result(n, "run was started again.", "runs were started again.")
	default:
		return ""
	}
	if no, err := strconv.Atoi(q.Get("no")); err == nil && no > 0 {
		text += " " + result(no, "was not: ", "were not, the first because ") + firstLine(q.Get("why")) + "."
	}
	return text
}

func result(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%s %s", count(n), many)
}
