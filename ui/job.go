package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/chart"
)

// jobPage is the page of one job.
type jobPage struct {
	jobRow
	Held                  bool     // debug mode holds its runs
	Why                   []string // what keeps it from running
	Fires                 []fire
	Recent                []runRow
	Spark                 template.HTML
	Graph                 template.HTML // jobs that follow each other; "" = none
	Day, Week             chart.Stack
	Busy, Waiting         int
	Succeeded, Terminated int // in the last 24 hours
	Missed                []*kernel.Missed
	Alarms                []alarmRow // open ones about it
	Options               []option   // set for this job
	Defaults              []option   // the other settings
	HTTP                  *httpWork  // its requests; nil = none
	Exec                  *execWork  // its command; nil = none
	Schema                string
	Go                    string // code to enqueue a run, or ""
	Curl                  string
}

// fire is a next due time.
type fire struct {
	At     time.Time
	Wall   string        // what clocks in the job's zone show
	Remark string        // what a change of the clocks did to it
	Silent kernel.Reason // why it gets no run now; "" = it does
}

// option is the effective value of a setting, and its owner.
type option struct {
	Name, Label, Value string
	Owner              string // of ops.OwnerBuiltIn ...
	Code               string // the value if it followed the code again; only of a job that has code
	Bundle             string // the files that set it; "" = none
}

const pageFires = 10

func (u *UI) job(r *http.Request, v visitor) (answer, error) {
	ctx, key := r.Context(), jobs.Key(r.PathValue("key"))
	job, err := u.ops.Job(ctx, v.Who, key, pageFires)
	if err != nil {
		return answer{}, err
	}
	p := jobPage{jobRow: u.jobRow(job, v, r.URL.Path), Fires: fires(job.Definition, job.Next), Schema: pretty(job.Schema)}
	p.Options, p.Defaults = options(&job)
	p.HTTP, p.Exec = httpWorkOf(job.Definition.Policy.HTTP), execWorkOf(job.Definition.Policy.Exec)
	past, err := u.ops.History(ctx, v.Who, job.Definition)
	if err != nil {
		return answer{}, err
	}
	p.Missed, p.Day = past.Missed, hours(past.Hours, u.ops.Now())
	stats, err := u.ops.Stats(ctx, v.Who, ops.StatsQuery{Job: key, Days: chartDays})
	if err != nil {
		return answer{}, err
	}
	p.Week = daily(stats.Days)
	p.Busy, p.Waiting = past.Live[jobs.Processing], past.Live[jobs.Enqueued]+past.Live[jobs.Failed]+past.Live[jobs.Scheduled]
	p.Succeeded, p.Terminated = int(p.Day.Series[0].Sum()), int(p.Day.Series[3].Sum())
	list, err := u.begun(ctx, v.Who, key)
	if err != nil {
		return answer{}, err
	}
	p.Recent = u.runRows(list[:min(len(list), 10)])
	if p.Graph, err = u.jobGraph(ctx, v.Who, key); err != nil {
		return answer{}, err
	}
	p.Spark = chart.Spark("The last runs of "+string(key), u.bars(list))
	global, err := u.ops.Settings(ctx, v.Who)
	if err != nil {
		return answer{}, err
	}
	p.First = time.Time{}
	for i := range p.Fires {
		f := &p.Fires[i]
		if f.Silent = ops.Silence(job.Definition, global, f.At); f.Silent == "" && p.First.IsZero() {
			p.First = f.At
		}
	}
	if p.Alarms, err = u.jobAlarms(ctx, v, key); err != nil {
		return answer{}, err
	}
	explained, err := u.ops.Explain(ctx, v.Who, key)
	if err != nil {
		return answer{}, err
	}
	p.Why = explained.Why
	p.Held = !p.Recurring && global.TriggeredDebug.On
	u.snippets(&p, r)
	return answer{page: "job", title: string(key), data: p}, nil
}

// fires returns due times in the job's zone.
func fires(d *kernel.Definition, next []time.Time) []fire {
	when, err := timetable.Schedule(d)
	if err != nil || when == nil {
		return nil
	}
	list := make([]fire, len(next))
	for i, at := range next {
		list[i] = fire{At: at, Wall: when.In(at).Format("Mon 2 Jan 2006, 15:04:05 MST"), Remark: when.Remark(at)}
	}
	return list
}

// essential are the settings that are always shown, also with their defaults.
var essential = []string{"schedule", "zone", "maxConcurrency", "overlap", "timeout", "retries"}

// options are the settings that someone set, and the others.
func options(job *ops.Job) (said, defaults []option) {
	d, policy, owners := job.Definition, job.InCode(), job.Owners()
	for _, s := range settings {
		if !s.For(d.Kind) || s.Name == "description" || s.Name == "name" {
			continue
		}
		o := option{Name: s.Name, Label: s.Label, Value: s.Words(&d.Policy), Owner: cmp.Or(owners[s.Name], ops.OwnerBuiltIn)}
		if slices.Contains(d.BundleFields, s.Name) {
			o.Bundle = d.Bundle
		}
		if o.Owner == ops.OwnerEdit && d.Registered {
			o.Code = cmp.Or(s.Words(&policy), "nothing")
		}
		if o.Owner == ops.OwnerBuiltIn && !slices.Contains(essential, s.Name) {
			defaults = append(defaults, o)
		} else {
			said = append(said, o)
		}
	}
	for _, l := range d.Policy.Limits {
		said = append(said, option{Label: "Shares limit " + l.Name, Value: fmt.Sprintf("%d at a time", l.Max), Owner: owners["limits"]})
	}
	return said, defaults
}

// snippets are the code to start a run.
func (u *UI) snippets(p *jobPage, r *http.Request) {
	args := bytes.TrimSpace(p.Definition.Policy.Args)
	if len(args) == 0 && !p.Recurring {
		args = []byte(example(p.Definition.Schema))
	}
	p.Curl = u.curl(r, &kernel.Run{Key: p.Key, Args: args})
	if p.Recurring {
		return
	}
	p.Go = fmt.Sprintf("var Job = jobs.Trigger[Args](%q)\n\nc, err := carillon.Dial(%q)\nrun, err := Job.Enqueue(ctx, c, Args{}, jobs.After(10*time.Minute))", p.Key, u.busAddress(r, "client.token"))
}

const defaultBus = "nats://127.0.0.1:4222"

// busAddress returns the address of the bus for code to copy, with a token file where tokens are required. For a server
// that listens on all addresses it is the host of this page.
func (u *UI) busAddress(r *http.Request, token string) string {
	here := (&url.URL{Host: r.Host}).Hostname()
	text, _, _ := strings.Cut(u.bus, ",") // the first of several servers
	bus, err := url.Parse(text)
	switch {
	case err != nil || bus.Host == "":
		text = defaultBus
		if !u.open {
			text = "tls://" + net.JoinHostPort(here, "4222")
		}
	case here != "" && net.ParseIP(bus.Hostname()).IsUnspecified():
		text = bus.Scheme + "://" + net.JoinHostPort(here, bus.Port())
	default: // no user, password or parameter: pages show it
		text = bus.Scheme + "://" + bus.Host
	}
	if !u.open {
		text += "?token-file=" + token
	}
	return text
}

// origin returns the address at which the browser reached this page.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// example returns the arguments that a schema requires.
func example(schema []byte) string {
	values := map[string]any{}
	for _, f := range formOf(schema) {
		if f.Required {
			values[f.Name] = f.empty()
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// follow makes a field follow the code again.
func (u *UI) follow(r *http.Request, v visitor) (answer, error) {
	key, who := jobs.Key(r.PathValue("key")), v.Who
	who.Reason = r.PostFormValue("reason")
	was, err := u.ops.Job(r.Context(), who, key, 0)
	if err != nil {
		return answer{}, err
	}
	job, err := u.ops.Edit(r.Context(), who, kernel.Edit{Key: key, Clear: []string{r.PostFormValue("field")}})
	return edited("follows", was, job), err
}

// edited redirects to a job after an edit, with a link back to the revision that it had.
func edited(did string, was, is ops.Job) answer {
	a := goTo("/jobs/"+string(was.Key), did)
	if is.Definition != nil && is.Revision != was.Revision {
		a.next += "&undo=" + strconv.FormatUint(was.Revision, 10)
	}
	return a
}
