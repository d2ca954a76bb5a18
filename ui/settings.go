package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// About describes the process, for the page of settings.
type About struct {
	Node    string // its name
	Store   string // where rows are stored
	Version string // of the program or the library
}

// settingsPage is the settings of all jobs.
type settingsPage struct {
	visitor
	Modes                         []debugMode
	Misfire                       string // as typed, or the current value
	Default                       string // the default value
	Limits                        string // of apps, as typed, or the current value
	Budget                        string // of retries, as typed, or the current value
	WasLimits, WasBudget          string // the values when the form was made
	NewJobs                       kernel.NewJobs
	Fault                         string
	Field                         string   // the refused form: misfire, limits, newJobs, recurring, triggered, defaults, reset
	Defaults, AppDefaults         []source // of jobs
	Sources                       map[string]source
	Names                         []string // of settings with a default
	Name, Value, App              string   // the default as typed
	About                         About
	Leader                        ops.Leader
	Purging                       ops.Purging
	PurgeJob, PurgeAge, PurgeText string
	Purged                        time.Time // runs of all jobs that finished before were purged by hand
	Go                            string
	Revision                      uint64
}

// debugMode is one of the two debug modes.
type debugMode struct {
	Kind string
	kernel.Debug
	Held  int // runs that it holds back
	Does  string
	Fault string
}

// source is a setting, with its values as pages show them and where they come from.
type source struct {
	ops.Source
	Admin                bool
	Recurring, Triggered string // of a default
	InFile               string // value of the configuration file that it overrules; "" = none
}

func (u *UI) settings(r *http.Request, v visitor) (answer, error) {
	return u.settingsAnswer(r.Context(), v, func(*settingsPage) {})
}

func (u *UI) settingsAnswer(ctx context.Context, v visitor, add func(*settingsPage)) (answer, error) {
	global, err := u.ops.Settings(ctx, v.Who)
	if err != nil {
		return answer{}, err
	}
	p := settingsPage{visitor: v, Misfire: shortDuration(global.Late()), Default: shortDuration(kernel.DefaultMisfireAfter), Limits: kernel.LimitsText(global.AppLimits), Budget: global.Budget().String(), NewJobs: cmp.Or(global.NewJobs, kernel.NewEnabled), Names: kernel.DefaultFields(),
		About: u.about, Purging: u.ops.Cleaning(v.Who), Purged: global.Purged, Leader: u.ops.Live().Leader(), Go: runtime.Version(), Revision: global.Revision,
		Modes: []debugMode{
			{Kind: "recurring", Debug: global.RecurringDebug, Does: "Recurring jobs do not fire. Their due times go to the ledger and do not run later. Runs that have not begun are held."},
			{Kind: "triggered", Debug: global.TriggeredDebug, Does: "Runs enqueued by code are accepted and held until the mode is switched off."},
		}}
	for i, kind := range []kernel.Kind{kernel.Recurring, kernel.Triggered} {
		if !global.DebugOf(kind).On {
			continue
		}
		if p.Modes[i].Held, err = u.ops.HeldBack(ctx, v.Who, kind); err != nil {
			return answer{}, err
		}
	}
	p.WasLimits, p.WasBudget = p.Limits, p.Budget
	p.sources(global)
	add(&p)
	return answer{page: "settings", title: "Settings", data: p}, nil
}

// configure changes the misfire limit and the state of new jobs.
func (u *UI) configure(r *http.Request, v visitor) (answer, error) {
	if r.PostForm.Has("budget") {
		return u.configureLimits(r, v)
	}
	if r.PostForm.Has("reset") || r.PostForm.Has("default") {
		return u.configureDefaults(r, v)
	}
	if r.PostForm.Has("newJobs") {
		v.Who.Reason = r.PostFormValue("reason")
		if _, err := u.ops.Configure(r.Context(), v.Who, kernel.Configure{NewJobs: new(kernel.NewJobs(r.PostFormValue("newJobs")))}, ""); err != nil {
			return u.unsettled(r, v, "newJobs", err)
		}
		return goTo("/settings", "settings"), nil
	}
	typed := strings.TrimSpace(r.PostFormValue("misfire"))
	late, err := time.ParseDuration(typed)
	if err != nil {
		err = kernel.Invalid("invalid duration %.40q: want 30s, 5m or 1h30m", typed)
	} else {
		v.Who.Reason = r.PostFormValue("reason")
		_, err = u.ops.Configure(r.Context(), v.Who, kernel.Configure{MisfireAfter: &late}, "")
	}
	if err != nil {
		return u.unsettled(r, v, "misfire", err)
	}
	return goTo("/settings", "settings"), nil
}

// purge purges runs, or counts them.
func (u *UI) purge(r *http.Request, v visitor) (answer, error) {
	job, age, dry := strings.TrimSpace(r.PostFormValue("job")), strings.TrimSpace(r.PostFormValue("age")), r.PostFormValue("dry") == "true"
	d, err := time.ParseDuration(age)
	if err != nil || d < 0 {
		return u.unsettled(r, v, "purge", kernel.Invalid("invalid duration %.40q: want 120h, 30m or 0s", age))
	}
	v.Who.Reason = r.PostFormValue("reason")
	done, err := u.ops.Purge(r.Context(), v.Who, ops.Purge{Key: jobs.Key(job), Before: u.ops.Now().Add(-d), Dry: dry})
	if err != nil {
		return u.unsettled(r, v, "purge", err)
	}
	if !dry {
		return goTo("/settings", "purged"), nil
	}
	return u.settingsAnswer(r.Context(), v, func(p *settingsPage) {
		p.PurgeJob, p.PurgeAge, p.PurgeText = job, age, plural(done.Runs, "run")+" would be purged."
		if done.More {
			p.PurgeText = "More than " + p.PurgeText
		}
	})
}

// configureLimits changes the limits of all jobs together. A field that the user has not changed is left as it is: it
// may have been changed concurrently.
func (u *UI) configureLimits(r *http.Request, v visitor) (answer, error) {
	limits, err := kernel.ParseLimits(r.PostFormValue("limits"))
	budget, wrong := kernel.ParseRate(r.PostFormValue("budget"))
	if err = cmp.Or(err, wrong); err == nil {
		var k kernel.Configure
		if r.PostFormValue("limits") != r.PostFormValue("was.limits") {
			k.AppLimits = &limits
		}
		if r.PostFormValue("budget") != r.PostFormValue("was.budget") {
			k.RetryBudget = &budget
		}
		v.Who.Reason = r.PostFormValue("reason")
		_, err = u.ops.Configure(r.Context(), v.Who, k, "")
	}
	if err != nil {
		return u.unsettled(r, v, "limits", err)
	}
	return goTo("/settings", "settings"), nil
}

// configureDefaults sets a default of jobs, or resets a setting.
func (u *UI) configureDefaults(r *http.Request, v visitor) (answer, error) {
	k := kernel.Configure{App: strings.TrimSpace(r.PostFormValue("app"))}
	field := "reset"
	var err error
	if r.PostForm.Has("reset") {
		k.Reset = []string{r.PostFormValue("reset")}
	} else {
		field, k.Defaults = "defaults", &kernel.Settings{}
		err = readDefault(k.Defaults, r.PostFormValue("default"), r.PostFormValue("value"))
	}
	if err == nil {
		v.Who.Reason = r.PostFormValue("reason")
		_, err = u.ops.Configure(r.Context(), v.Who, k, "")
	}
	if err != nil {
		return u.unsettled(r, v, field, err)
	}
	return goTo("/settings", "settings"), nil
}

// readDefault sets a default to a text as the form of a job has it.
func readDefault(to *kernel.Settings, name, text string) error {
	for _, s := range settings {
		if s.Name == name {
			return s.read(to, text, "")
		}
	}
	return kernel.Invalid("there is no setting %.60q", name)
}

// debug switches a debug mode, and redirects to the page of the switch.
func (u *UI) debug(r *http.Request, v visitor) (answer, error) {
	on := r.PostFormValue("on") == "true"
	var k kernel.Configure
	kind := r.PostFormValue("kind")
	switch kind {
	case "recurring":
		k.RecurringDebug = &on
	case "triggered":
		k.TriggeredDebug = &on
	default:
		return answer{}, kernel.Invalid("invalid kind %.20q: want recurring or triggered", kind)
	}
	v.Who.Reason = r.PostFormValue("reason")
	if _, err := u.ops.Configure(r.Context(), v.Who, k, ops.Held(r.PostFormValue("held"))); err != nil {
		return u.unsettled(r, v, kind, err)
	}
	return goTo("/settings", "debug"), nil
}

// unsettled shows the page again, with the input and the error.
func (u *UI) unsettled(r *http.Request, v visitor, field string, err error) (answer, error) {
	status := statusOf(err)
	if status != http.StatusUnprocessableEntity && status != http.StatusConflict {
		return answer{}, err
	}
	a, failed := u.settingsAnswer(r.Context(), v, func(p *settingsPage) {
		p.Field, p.Fault = field, said(err)
		switch field {
		case "misfire":
			p.Misfire = r.PostFormValue("misfire")
		case "limits":
			p.Limits, p.Budget = r.PostFormValue("limits"), r.PostFormValue("budget")
			p.WasLimits, p.WasBudget = r.PostFormValue("was.limits"), r.PostFormValue("was.budget")
		case "defaults":
			p.Name, p.Value, p.App = r.PostFormValue("default"), r.PostFormValue("value"), r.PostFormValue("app")
		case "purge":
			p.PurgeJob, p.PurgeAge = r.PostFormValue("job"), r.PostFormValue("age")
		}
		for i := range p.Modes {
			if p.Modes[i].Kind == field {
				p.Modes[i].Fault = p.Fault
			}
		}
	})
	a.status = status
	return a, failed
}

// sources fills in where each setting comes from.
func (p *settingsPage) sources(g *kernel.Global) {
	p.Sources = map[string]source{}
	recurring := (&kernel.Definition{Kind: kernel.Recurring}).Resolve(g)
	triggered := (&kernel.Definition{Kind: kernel.Triggered}).Resolve(g)
	for _, s := range ops.Sources(g) {
		row := source{Source: s, Admin: p.Admin()}
		name, isDefault := strings.CutPrefix(s.Name, kernel.InDefaults)
		i := slices.IndexFunc(settings, func(f setting) bool { return f.Name == name })
		switch {
		case !isDefault:
			if s.File != nil {
				row.InFile = fmt.Sprint(s.File)
			}
			p.Sources[s.Name] = row
		case s.App != "":
			own := kernel.Policy{}
			set := g.OfApp(s.App)
			set.Lay(&own)
			row.Recurring = plainWords(settings[i], &own)
			p.AppDefaults = append(p.AppDefaults, row)
		default:
			row.Recurring, row.Triggered = plainWords(settings[i], &recurring), plainWords(settings[i], &triggered)
			if s.File != nil {
				file := kernel.Policy{}
				g.File.Defaults.Lay(&file)
				row.InFile = plainWords(settings[i], &file)
			}
			p.Defaults = append(p.Defaults, row)
		}
	}
}

// Field returns the name without its prefix.
func (s source) Field() string { return strings.TrimPrefix(s.Name, kernel.InDefaults) }

// plainWords returns a value for pages, without the label of a choice.
func plainWords(s setting, p *kernel.Policy) string {
	s.Choices = nil
	return s.Words(p)
}

// shortDuration formats a duration: 30s, 1h.
func shortDuration(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(s, "m0s")]
	return strings.TrimSuffix(s, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(s, "h0m")]
}
