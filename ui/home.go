package ui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// home is the first page: how much goes on, the jobs, the latest runs.
type home struct {
	Overview ops.Overview
	Busy     int // runs that a worker has
	Waiting  int // due, for a slot or a worker; or for their retry
	Delayed  int
	Chart    chart
	Jobs     []jobRow
	MoreJobs bool
	Running  []runRow
	Recent   []runRow
	Filter   filter
	Workers  []ops.Worker
}

func (home) title() string { return "Overview" }

// filter is what the URL asks for.
type filter struct {
	Job   string
	State string
}

// Any says that there is a filter.
func (f filter) Any() bool { return f != filter{} }

// jobRow is a line of the table of jobs.
type jobRow struct {
	ops.Job
	Recurring bool
	First     time.Time // next due time; zero = none
	Held      string    // why it does not fire, or ""
	Args      string    // default arguments
}

// runRow is a line of a table of runs.
type runRow struct {
	*jobs.Instance
	Mark     string
	Why      string
	When     time.Time // of its latest move
	Took     time.Duration
	Progress *bus.Progress
	Stuck    bool
	Text     string // its error, or how far it is
}

const (
	homeJobs = 100 // jobs on the first page
	homeRuns = 25  // runs in each of its tables
)

func (u *UI) home(r *http.Request) (string, any, error) {
	ctx, who := r.Context(), u.who(r)
	h := home{Filter: filter{Job: r.FormValue("job"), State: r.FormValue("state")}}
	var err error
	if h.Overview, err = u.ops.Overview(ctx, who); err != nil {
		return "", nil, err
	}
	live := h.Overview.Live
	h.Busy, h.Waiting, h.Delayed = live[jobs.Processing], live[jobs.Enqueued]+live[jobs.Failed], live[jobs.Scheduled]
	h.Chart = draw(h.Overview.Hours, h.Overview.Now)
	list, more, err := u.ops.Jobs(ctx, who, ops.JobQuery{Limit: homeJobs, Next: 1})
	if err != nil {
		return "", nil, err
	}
	h.MoreJobs = more
	for _, j := range list {
		h.Jobs = append(h.Jobs, jobRowOf(j))
	}
	running, err := u.ops.Instances(ctx, who, metastore.InstanceQuery{State: jobs.Processing, Limit: homeRuns})
	if err != nil {
		return "", nil, err
	}
	h.Running = u.runRows(running.Instances)
	if h.Recent, err = u.recent(ctx, who, h.Filter); err != nil {
		return "", nil, err
	}
	h.Workers = u.ops.Workers(ctx, who)
	return "home", h, nil
}

func jobRowOf(j ops.Job) jobRow {
	row := jobRow{Job: j, Recurring: j.Kind == jobs.Recurring, Held: string(j.Silent), Args: "{}"}
	if len(j.Next) > 0 {
		row.First = j.Next[0]
	}
	if len(j.Definition.Policy.Args) > 0 {
		row.Args = pretty(j.Definition.Policy.Args)
	}
	return row
}

// recent lists what happened last. Without a state, it looks at a few runs of each: in one list, a hundred thousand
// delayed runs would hide the ones that failed a minute ago.
func (u *UI) recent(ctx context.Context, who ops.Who, f filter) ([]runRow, error) {
	states := []jobs.State{jobs.Enqueued, jobs.Succeeded, jobs.Failed, jobs.Terminated, jobs.Cancelled, jobs.Skipped, jobs.Scheduled}
	if f.State != "" {
		state, err := jobs.ParseState(f.State)
		if err != nil {
			return nil, err
		}
		states = []jobs.State{state}
	}
	var found []*jobs.Instance
	for _, state := range states {
		page, err := u.ops.Instances(ctx, who, metastore.InstanceQuery{Job: jobs.Key(f.Job), State: state, Limit: homeRuns})
		if err != nil {
			return nil, err
		}
		found = append(found, page.Instances...)
	}
	slices.SortStableFunc(found, func(a, b *jobs.Instance) int {
		return cmp.Or(latest(b).Compare(latest(a)), slices.Compare(b.ID[:], a.ID[:]))
	})
	return u.runRows(found[:min(len(found), homeRuns)]), nil
}

// latest is when a run last moved.
func latest(in *jobs.Instance) time.Time {
	if n := len(in.Moves); n > 0 {
		return in.Moves[n-1].At
	}
	return in.Created
}

func (u *UI) runRows(list []*jobs.Instance) []runRow {
	rows := make([]runRow, len(list))
	for i, in := range list {
		rows[i] = u.runRow(in)
	}
	return rows
}

func (u *UI) runRow(in *jobs.Instance) runRow {
	row := runRow{Instance: in, Mark: marks[in.State], Why: causes[in.Cause], When: latest(in), Text: in.Error}
	if in.Waits != "" {
		row.Why = "waits for " + gate(in.Waits)
	}
	switch {
	case in.State == jobs.Processing:
		row.Took = u.ops.Now().Sub(in.Started)
	case !in.Started.IsZero():
		row.Took = latest(in).Sub(in.Started)
	}
	if in.State != jobs.Processing && !in.Lingering {
		return row
	}
	now, _ := u.ops.Live().Attempt(in.ID)
	row.Progress, row.Stuck = now.Progress, now.Stuck
	if row.Progress != nil {
		row.Text = row.Progress.Text
	}
	return row
}

// debugBanner says that a debug mode is on.
type debugBanner struct {
	Kind string
	jobs.Debug
	Held int // runs that are held back
}

func (u *UI) banners(ctx context.Context, who ops.Who) []debugBanner {
	global, err := u.ops.Settings(ctx, who)
	if err != nil {
		return nil // the page itself says so
	}
	var list []debugBanner
	if global.RecurringDebug.On {
		list = append(list, debugBanner{Kind: "recurring", Debug: global.RecurringDebug})
	}
	if global.TriggeredDebug.On {
		held, _ := u.ops.HeldBack(ctx, who)
		list = append(list, debugBanner{Kind: "triggered", Debug: global.TriggeredDebug, Held: held})
	}
	return list
}

func (u *UI) trigger(r *http.Request) (string, error) {
	made, err := u.ops.Trigger(r.Context(), u.who(r), jobs.Create{Key: jobs.Key(r.PathValue("key")), Args: argsOf(r), Origin: jobs.FromPerson})
	if err != nil {
		return "", err
	}
	return "/runs/" + made.ID.String(), nil
}

// argsOf is what was written into the field for arguments; nothing means the job's own.
func argsOf(r *http.Request) []byte {
	if text := r.PostFormValue("args"); text != "" {
		return []byte(text)
	}
	return nil
}

func (u *UI) pause(r *http.Request) (string, error) {
	_, err := u.ops.Pause(r.Context(), u.who(r), jobs.Pause{Key: jobs.Key(r.PathValue("key")), Reason: r.PostFormValue("reason")})
	return "/", err
}

func (u *UI) resume(r *http.Request) (string, error) {
	_, err := u.ops.Resume(r.Context(), u.who(r), jobs.Key(r.PathValue("key")))
	return "/", err
}

// debug switches a debug mode.
func (u *UI) debug(r *http.Request) (string, error) {
	on := r.PostFormValue("on") == "true"
	var k jobs.Configure
	switch kind := r.PostFormValue("kind"); kind {
	case "recurring":
		k.RecurringDebug = &on
	case "triggered":
		k.TriggeredDebug = &on
	default:
		return "", jobs.Invalid("kind %.20q is neither recurring nor triggered", kind)
	}
	_, err := u.ops.Configure(r.Context(), u.who(r), k, ops.Held(r.PostFormValue("held")))
	return "/", err
}
