package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Settings are the settings of all jobs.
type Settings struct {
	Recurring    Debug    `json:"recurringDebug" doc:"While it is on, due times are recorded in the ledger and get no runs."`
	Triggered    Debug    `json:"triggeredDebug" doc:"While it is on, triggered runs are held back unless a user started them."`
	MisfireAfter Duration `json:"misfireAfter" doc:"How late a due time may be and still fire by itself."`
	NewJobs      string   `json:"newJobs" enum:"enabled,disabled" doc:"State of a job that a worker registers for the first time."`
	MaxJobs      int      `json:"maxJobs" doc:"Max number of jobs."`
	Jobs         int      `json:"jobs" doc:"Number of jobs."`
	AppLimits    []Limit  `json:"appLimits" nullable:"false" doc:"Limits of each app's parallel runs and starts."`
	RetryBudget  Rate     `json:"retryBudget" doc:"Rate limit of retries of all jobs; later ones are spread."`
	Revision     uint64   `json:"revision"`
	Kept         *Kept    `json:"kept,omitempty" doc:"Retention of finished runs; not in the response to a change."`
	Sources      []Source `json:"sources" nullable:"false" doc:"The value of each setting, and where it comes from."`
	Released     int      `json:"released,omitempty" doc:"Held runs that this change started."`
	Discarded    int      `json:"discarded,omitempty" doc:"Held runs that this change cancelled."`
}

// Source is a setting of all jobs with its value, and where that comes from.
type Source struct {
	Name      string     `json:"name" doc:"Name in a change and in reset; defaults.retries is the default of the jobs' setting retries."`
	App       string     `json:"app,omitempty" doc:"The app whose jobs have this default."`
	Value     any        `json:"value"`
	Triggered any        `json:"triggered,omitempty" doc:"Value for triggered jobs, if it differs."`
	From      string     `json:"from" enum:"built-in,file,tenant,app" doc:"file: the configuration file of a server; tenant, app: a request or a page."`
	By        string     `json:"by,omitempty" doc:"Who set it."`
	At        *time.Time `json:"at,omitempty"`
	File      any        `json:"file,omitempty" doc:"Value of the configuration file, which this value overrules until it is reset."`
}

func settingsOf(g *kernel.Global) Settings {
	sources := ops.Sources(g)
	list := make([]Source, len(sources))
	for i, s := range sources {
		list[i] = Source{Name: s.Name, App: s.App, Value: inAPI(s.Value), Triggered: inAPI(s.Triggered), From: s.Kind, By: s.By, At: when(s.At), File: inAPI(s.File)}
	}
	return Settings{Sources: list, Recurring: debugOf(g.RecurringDebug), Triggered: debugOf(g.TriggeredDebug), MisfireAfter: Duration(g.Late()),
		NewJobs: string(cmp.Or(g.NewJobs, kernel.NewEnabled)), MaxJobs: g.Quota(), Jobs: g.Jobs, Revision: g.Revision,
		AppLimits: LimitsOf(g.AppLimits), RetryBudget: Rate(g.Budget())}
}

type configureInput struct {
	Body struct {
		RecurringDebug *bool     `json:"recurringDebug,omitempty"`
		TriggeredDebug *bool     `json:"triggeredDebug,omitempty"`
		Held           string    `json:"held,omitempty" enum:"release,discard" doc:"When a debug mode is switched off: start or cancel the runs that it held back."`
		MisfireAfter   *Duration `json:"misfireAfter,omitempty"`
		NewJobs        *string   `json:"newJobs,omitempty" enum:"enabled,disabled" doc:"State of a job that a worker registers for the first time."`
		MaxJobs        *int      `json:"maxJobs,omitempty" minimum:"0" maximum:"100000000" doc:"0 = 1,000,000."`
		AppLimits      *[]Limit  `json:"appLimits,omitempty" maxItems:"1000" nullable:"false" doc:"The whole list, by app; applies to new runs."`
		RetryBudget    *Rate     `json:"retryBudget,omitempty" doc:"Rate limit of retries of all jobs; none = no rate limit."`
		Defaults       *Policy   `json:"defaults,omitempty" doc:"Defaults of the jobs' settings, such as zone and retries."`
		App            string    `json:"app,omitempty" maxLength:"200" doc:"Defaults and reset concern the jobs of this app."`
		Reset          []string  `json:"reset,omitempty" maxItems:"100" nullable:"false" doc:"Settings, by their names in sources, that follow the configuration file again, or else the built-in value."`
	}
}

// Overview is the data of the overview page.
type Overview struct {
	Now            time.Time      `json:"now"`
	Leader         string         `json:"leader,omitempty" doc:"The leader's node."`
	Shares         []Share        `json:"shares,omitempty" nullable:"false" doc:"The nodes that fire a share of the jobs each, by name; only for the default tenant. Missing: the leader fires all."`
	RecurringDebug bool           `json:"recurringDebug"`
	TriggeredDebug bool           `json:"triggeredDebug"`
	Workers        int            `json:"workers"`
	Runs           map[string]int `json:"runs" doc:"Unfinished runs, by state."`
	FailedLastHour int            `json:"failedLastHour" doc:"Runs that failed for good within the last hour; 200 means at least 200."`
	Hours          []HourCount    `json:"hours" nullable:"false" doc:"How many runs entered a state, by hour, of the last 24."`
	Attention      []Attention    `json:"attention" nullable:"false" doc:"Problems that need attention, most urgent first, up to 20."`
	Pulse          []Minute       `json:"pulse" nullable:"false" doc:"The last hour as the leader saw it, oldest minute first; the last minute is incomplete."`
}

// Share is a node that fires a share of the jobs.
type Share struct {
	Node  string     `json:"node"`
	Here  bool       `json:"here" doc:"This node sent the response."`
	Jobs  int        `json:"jobs" doc:"Recurring jobs in its share, of all tenants."`
	Fired uint64     `json:"fired" doc:"Due times that it fired since it joined."`
	Since *time.Time `json:"since,omitempty" doc:"Since when it has a share."`
}

// Attention is a problem that needs attention.
type Attention struct {
	Kind   string     `json:"kind" enum:"clock,no_worker,alarm,stopped,stuck,failing,gave_up,lost,outbox,audit,endless,missed,trouble,paused"`
	Text   string     `json:"text" doc:"One sentence that names the job, run or worker, if there is one."`
	Job    jobs.Key   `json:"job,omitempty"`
	Run    string     `json:"run,omitempty" format:"uuid"`
	Target string     `json:"target,omitempty" doc:"The target of alarms that does not accept messages."`
	N      int        `json:"n" doc:"Number of runs, requests, due times, jobs or alarms concerned."`
	Since  *time.Time `json:"since,omitempty"`
}

// Minute is the activity of one minute.
type Minute struct {
	At         time.Time `json:"at" doc:"Its start."`
	Started    int       `json:"started" doc:"Attempts started."`
	Succeeded  int       `json:"succeeded"`
	Failed     int       `json:"failed" doc:"Attempts that failed."`
	Terminated int       `json:"terminated"`
	Cancelled  int       `json:"cancelled"`
	Skipped    int       `json:"skipped"`
	LateP50    float64   `json:"lateP50" doc:"Seconds from due to start, of first attempts; rounded up, by a quarter at most."`
	LateP99    float64   `json:"lateP99"`
	LateMax    float64   `json:"lateMax"`
}

// HourCount is how many runs entered a state within an hour.
type HourCount struct {
	Hour  time.Time `json:"hour"`
	State string    `json:"state"`
	Runs  int64     `json:"runs"`
}

// hourCounts are the numbers of some states.
func hourCounts(hours []kernel.Tally, of func(jobs.State) bool) []HourCount {
	list := []HourCount{}
	for _, t := range hours {
		for state, n := range t.Runs {
			if state := jobs.State(state); n > 0 && of(state) {
				list = append(list, HourCount{Hour: t.Start(), State: state.String(), Runs: n})
			}
		}
	}
	return list
}

type workerList struct {
	Items []Worker `json:"items" nullable:"false"`
}

type workerPath struct {
	Name   string `path:"name" maxLength:"200"`
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
}

type none struct{}

func (a *API) routeSystem() {
	tags := []string{"system"}
	register(a, ops.Viewer, huma.Operation{OperationID: "get-settings", Method: http.MethodGet, Path: "/settings", Tags: tags, Summary: "Read the settings of all jobs"},
		func(ctx context.Context, _ *none) (*struct{ Body Settings }, error) {
			g, err := a.ops.Settings(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			out := settingsOf(g)
			out.Kept = keptOf(a.ops.Cleaning(who(ctx)), g)
			return &struct{ Body Settings }{out}, nil
		})
	a.routePurge()
	a.routeStats()
	register(a, ops.Admin, huma.Operation{OperationID: "change-settings", Method: http.MethodPatch, Path: "/settings", Tags: tags, Summary: "Change the settings of all jobs",
		Description: "Switching triggered debug mode off while it holds runs back is refused unless held is given."}, a.configure)
	register(a, ops.Viewer, huma.Operation{OperationID: "list-workers", Method: http.MethodGet, Path: "/workers", Tags: tags, Summary: "List workers"},
		func(ctx context.Context, _ *none) (*struct{ Body workerList }, error) {
			out := workerList{Items: []Worker{}}
			for _, w := range a.ops.Workers(ctx, who(ctx)) {
				out.Items = append(out.Items, workerOf(w))
			}
			return &struct{ Body workerList }{out}, nil
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "list-apps", Method: http.MethodGet, Path: "/apps", Tags: tags, Summary: "List apps (worker groups)"}, a.apps)
	for verb, on := range map[string]bool{"drain": true, "resume": false} {
		appSummary := map[bool]string{true: "Drain the workers of an app", false: "Resume the drained workers of an app"}[on]
		register(a, ops.Operator, huma.Operation{OperationID: verb + "-app", Method: http.MethodPost, Path: "/apps/{name}/" + verb, Tags: tags, Summary: appSummary,
			Description: "Its online workers: those that come online later are not drained. To pause its jobs: /bulk/jobs/pause."},
			func(ctx context.Context, in *workerPath) (*struct{ Body workerList }, error) {
				return a.drained(ctx, in, on, a.ops.DrainApp)
			})
		summary := map[bool]string{true: "Drain a worker", false: "Resume a drained worker"}[on]
		register(a, ops.Operator, huma.Operation{OperationID: verb + "-worker", Method: http.MethodPost, Path: "/workers/{name}/" + verb, Tags: tags, Summary: summary,
			Description: "The worker of this name, or all processes with a configured name. A drained worker finishes its runs, and stays."},
			func(ctx context.Context, in *workerPath) (*struct{ Body workerList }, error) {
				return a.drained(ctx, in, on, a.ops.Drain)
			})
	}
	register(a, ops.Viewer, huma.Operation{OperationID: "overview", Method: http.MethodGet, Path: "/overview", Tags: tags, Summary: "Show the overview"}, a.overview)
}

// drained drains workers, or resumes them, by a verb.
func (a *API) drained(ctx context.Context, in *workerPath, on bool, verb func(context.Context, ops.Who, string, bool) ([]ops.Worker, error)) (*struct{ Body workerList }, error) {
	asker := who(ctx)
	asker.Reason = in.Reason
	drained, err := verb(ctx, asker, in.Name, on)
	if err != nil {
		return nil, err
	}
	out := workerList{Items: []Worker{}}
	for _, w := range drained {
		out.Items = append(out.Items, workerOf(w))
	}
	return &struct{ Body workerList }{out}, nil
}

// App is a worker group: its jobs and its online workers.
type App struct {
	Name     string `json:"name"`
	Jobs     int    `json:"jobs"`
	Paused   int    `json:"paused,omitempty" doc:"Paused jobs."`
	Disabled int    `json:"disabled,omitempty" doc:"Disabled jobs."`
	Workers  int    `json:"workers" doc:"Online workers."`
	Drained  int    `json:"drained,omitempty" doc:"Drained workers."`
	Slots    int    `json:"slots" doc:"Slots of its workers; 0 = no limit, or no workers."`
	Running  int    `json:"running" doc:"Attempts that run on its workers."`
}

type appList struct {
	Items []App `json:"items" nullable:"false"`
}

func (a *API) apps(ctx context.Context, _ *none) (*struct{ Body appList }, error) {
	list, err := a.ops.Apps(ctx, who(ctx))
	if err != nil {
		return nil, err
	}
	out := appList{Items: make([]App, len(list))}
	for i, app := range list {
		out.Items[i] = App(app)
	}
	return &struct{ Body appList }{out}, nil
}

func (a *API) configure(ctx context.Context, in *configureInput) (*struct{ Body Settings }, error) {
	b := &in.Body
	k := kernel.Configure{RecurringDebug: b.RecurringDebug, TriggeredDebug: b.TriggeredDebug, MisfireAfter: (*time.Duration)(b.MisfireAfter),
		MaxJobs: b.MaxJobs, NewJobs: (*kernel.NewJobs)(b.NewJobs), RetryBudget: (*jobs.Rate)(b.RetryBudget), App: b.App, Reset: b.Reset}
	if b.Defaults != nil {
		k.Defaults = new(b.Defaults.settings())
	}
	if b.AppLimits != nil {
		k.AppLimits = new(Limits(*b.AppLimits))
	}
	done, err := a.ops.Configure(ctx, who(ctx), k, ops.Held(b.Held))
	if err != nil {
		return nil, err
	}
	out := settingsOf(done.Global)
	out.Released, out.Discarded = done.Released, done.Discarded
	return &struct{ Body Settings }{out}, nil
}

func shareOf(f ops.Share) Share {
	return Share{Node: f.Node, Here: f.Here, Jobs: f.Jobs, Fired: f.Fired, Since: when(f.Since)}
}

func (a *API) overview(ctx context.Context, _ *none) (*struct{ Body Overview }, error) {
	o, err := a.ops.Overview(ctx, who(ctx))
	if err != nil {
		return nil, err
	}
	out := Overview{Now: o.Now, Leader: o.Leader.Node, RecurringDebug: o.Recurring.On, TriggeredDebug: o.Triggered.On, Workers: o.Workers,
		Runs: map[string]int{}, FailedLastHour: o.Failed, Hours: hourCounts(o.Hours, func(jobs.State) bool { return true })}
	out.Attention, out.Pulse = make([]Attention, len(o.Attention)), make([]Minute, len(o.Pulse))
	for _, f := range o.Shares {
		out.Shares = append(out.Shares, shareOf(f))
	}
	for i, n := range o.Attention {
		out.Attention[i] = Attention{Kind: string(n.Kind), Text: n.Text, Job: n.Job, Run: n.Run.String(), Target: n.Target, N: n.N, Since: when(n.Since)}
	}
	for i, m := range o.Pulse {
		out.Pulse[i] = Minute{At: m.At, Started: m.Started, Succeeded: m.Succeeded, Failed: m.Failed, Terminated: m.Terminated, Cancelled: m.Cancelled,
			Skipped: m.Skipped, LateP50: m.LateP50.Seconds(), LateP99: m.LateP99.Seconds(), LateMax: m.LateMax.Seconds()}
	}
	for state, n := range o.Live {
		out.Runs[state.String()] = n
	}
	return &struct{ Body Overview }{out}, nil
}
