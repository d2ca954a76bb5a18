package ui

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// runPage is the page of one run.
type runPage struct {
	visitor
	runRow
	Known    bool // its job still exists
	Acts     bool // the visitor may act on it
	Moves    []moveRow
	Attempts []attempt
	Skipped  int // attempts before those that are shown
	Log      logPart
	In       text   // its arguments
	Out      text   // its result
	Kept     text   // its checkpoint
	Trace    string // the ID of its trace
	Explains string // the explanation of its state
	Spread   bool   // it is a run of a broadcast, and the parent of the others
	Children []runRow
	More     bool // children than those
	Graph    template.HTML
	InBatch  *kernel.Batch // nil = none, or it ended long ago
	Alarms   []alarmRow    // of a run that failed for good: the open ones about its job
	CanStop  bool
	CanRun   bool
	Fault    string // error of a refused form
	Curl     string
	Go       string
}

// moveRow is one line of the history, with how long the run stayed in that state.
type moveRow struct {
	kernel.Move
	Why  string
	Held time.Duration // until the next transition; negative = it is the current state
}

// text is JSON for reading, shortened if it is long.
type text struct {
	Text string
	Cut  bool
}

const (
	runChildren = 20
	mostText    = 64 << 10 // bytes of JSON on a page
)

func (u *UI) run(r *http.Request, v visitor) (answer, error) {
	return u.runAnswer(r, v, func(*runPage) {})
}

// runAnswer returns the page of a run, with the additions of a refused form.
func (u *UI) runAnswer(r *http.Request, v visitor, add func(*runPage)) (answer, error) {
	ctx := r.Context()
	id, err := runID(r)
	if err != nil {
		return answer{}, err
	}
	run, err := u.ops.Run(ctx, v.Who, id)
	if err != nil {
		return answer{}, err
	}
	p := runPage{visitor: v, runRow: u.runRow(run), In: shorten(run.Args), Out: shorten(run.Result), Kept: shorten(run.Checkpoint),
		CanStop: kernel.May(run.State, jobs.Cancelled), CanRun: run.State.Final()}
	for i, m := range run.Moves {
		m.Text = run.Text(&m)
		row := moveRow{Move: m, Why: causes[m.Cause], Held: -1}
		if i+1 < len(run.Moves) {
			row.Held = run.Moves[i+1].At.Sub(m.At)
		}
		p.Moves = append(p.Moves, row)
	}
	p.Attempts, p.Skipped = attemptsOf(run, u.ops.Now())
	if p.Log, err = u.logPart(r, v, id); err != nil {
		return answer{}, err
	}
	children, err := u.ops.Runs(ctx, v.Who, metastore.RunQuery{Parent: id, Limit: runChildren})
	if err != nil {
		return answer{}, err
	}
	if !run.State.Final() && run.State != jobs.Processing {
		e, err := u.ops.ExplainRun(ctx, v.Who, id)
		if err != nil {
			return answer{}, err
		}
		p.Explains = e.Why
	}
	p.Spread = run.Place != nil && run.Place.Group == run.ID && !run.ID.IsZero()
	p.Children, p.More = u.runRows(children.Runs), children.Next != ""
	if run.State == jobs.Terminated {
		if p.Alarms, err = u.jobAlarms(ctx, v, run.Key); err != nil {
			return answer{}, err
		}
	}
	if p.Graph, err = u.runGraph(ctx, v.Who, run, run.Place == nil && (len(children.Runs) > 0 || !run.Parent.IsZero())); err != nil {
		return answer{}, err
	}
	if !run.Batch.IsZero() {
		if p.InBatch, err = u.ops.Batch(ctx, v.Who, run.Batch); err != nil && !errors.Is(err, jobs.NotFound) {
			return answer{}, err
		}
	}
	job := &kernel.Definition{Key: run.Key, App: run.App}
	if found, err := u.ops.Job(ctx, v.Who, run.Key, 0); err == nil {
		p.Known, job = true, found.Definition
	}
	p.Acts = v.May(job)
	p.Curl, p.Go = u.curl(r, run), goCall(run)
	if parts := strings.Split(run.Trace, "-"); len(parts) > 2 {
		p.Trace = parts[1]
	}
	add(&p)
	return answer{page: "run", title: string(run.Key), data: p}, nil
}

func runID(r *http.Request) (jobs.ID, error) {
	id, err := jobs.ParseID(r.PathValue("id"))
	if err != nil {
		return id, kernel.Refuse(jobs.NotFound, "run not found")
	}
	return id, nil
}

func shorten(b []byte) text {
	if len(b) == 0 {
		return text{}
	}
	s := pretty(b)
	if len(s) <= mostText {
		return text{Text: s}
	}
	return text{Text: strings.ToValidUTF8(s[:mostText], ""), Cut: true}
}

func (u *UI) cancel(r *http.Request, v visitor) (answer, error) {
	id, err := runID(r)
	if err != nil {
		return answer{}, err
	}
	v.Who.Reason = r.PostFormValue("reason")
	if _, err = u.ops.Cancel(r.Context(), v.Who, id); err != nil {
		return u.refused(r, v, err)
	}
	return goTo("/runs/"+id.String(), "cancelled"), nil
}

func (u *UI) again(r *http.Request, v visitor) (answer, error) {
	id, err := runID(r)
	if err != nil {
		return answer{}, err
	}
	made, err := u.ops.Again(r.Context(), v.Who, id, nil, "")
	if err != nil {
		return u.refused(r, v, err)
	}
	return goTo("/runs/"+made.ID.String(), "started"), nil
}

// refused shows the run's page again, with the error.
func (u *UI) refused(r *http.Request, v visitor, err error) (answer, error) {
	status := statusOf(err)
	if status != http.StatusUnprocessableEntity && status != http.StatusConflict {
		return answer{}, err
	}
	a, failed := u.runAnswer(r, v, func(p *runPage) { p.Fault = said(err) })
	a.status = status
	return a, failed
}

// curl returns a command that starts the same run by the API.
func (u *UI) curl(r *http.Request, run *kernel.Run) string {
	lines := []string{"curl -X POST " + quoted(u.origin(r)+"/api/v1/jobs/"+string(run.Key)+"/trigger")}
	if !u.open {
		lines = append(lines, `-H "Authorization: Bearer $CARILLON_TOKEN"`)
	}
	if len(run.Args) > 0 {
		body, err := json.Marshal(map[string]json.RawMessage{"args": run.Args})
		if err != nil {
			return ""
		}
		lines = append(lines, "-H 'Content-Type: application/json'", "-d "+quoted(string(body)))
	}
	return strings.Join(lines, " \\\n  ")
}

// origin returns the address of this site, as the browser knows it.
func (u *UI) origin(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host + u.base
}

// quoted quotes a text for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// goCall returns code that starts the same run.
func goCall(run *kernel.Run) string {
	args := ""
	if len(run.Args) > 0 {
		args = ",\n\tArgs: []byte(" + goText(string(run.Args)) + ")"
	}
	return "runs, err := client.Enqueue(ctx, jobs.Request{\n\tKey: " + strconv.Quote(string(run.Key)) + args + ",\n})"
}

func goText(s string) string {
	if strconv.CanBackquote(s) {
		return "`" + s + "`"
	}
	return strconv.Quote(s)
}

// attempt is one attempt of a run, with its place on a time scale: a bar of waiting and a bar of work.
type attempt struct {
	N           uint32
	Worker      string
	State       jobs.State // how it ended, or Processing
	Why         string
	Error       string
	Begun       time.Time
	Waited      time.Duration // since the previous attempt, or since the run was due
	Took        time.Duration
	WaitX, RunX int // of attemptScale
	WaitW, RunW int
}

const (
	attemptScale = 1000
	mostAttempts = 30 // on the page, the latest
)

// attemptsOf extracts the attempts of a run from its history. Time starts when it was first due, or was requested.
func attemptsOf(run *kernel.Run, now time.Time) (list []attempt, skipped int) {
	var since, first time.Time // since when it waits
	for i, m := range run.Moves {
		if m.State != jobs.Processing {
			if m.State == jobs.Enqueued || m.State == jobs.Failed {
				since = m.At
			}
			continue
		}
		if first.IsZero() {
			first = since
		}
		a := attempt{N: m.Attempt, Worker: m.By, State: jobs.Processing, Begun: m.At, Waited: m.At.Sub(since), Took: now.Sub(m.At)}
		if i+1 < len(run.Moves) {
			end := run.Moves[i+1]
			a.State, a.Why, a.Error, a.Took = end.State, causes[end.Cause], run.Text(&end), end.At.Sub(m.At)
			// An attempt that failed for good leaves two lines, at the same time.
			if i+2 < len(run.Moves) && run.Moves[i+2].State == jobs.Terminated {
				a.State = jobs.Terminated
			}
		}
		list = append(list, a)
	}
	if n := len(list); n > 0 && list[n-1].Error != "" && run.Error != "" {
		list[n-1].Error = run.Error // the history has it shortened
	}
	skipped = max(0, len(list)-mostAttempts)
	list = list[skipped:]
	if len(list) == 0 {
		return nil, 0
	}
	if skipped > 0 {
		first = list[0].Begun.Add(-list[0].Waited)
	}
	last := list[len(list)-1]
	whole := max(1, last.Begun.Add(last.Took).Sub(first))
	at := func(t time.Time) int {
		return int(min(attemptScale, max(0, float64(t.Sub(first))/float64(whole)*attemptScale)))
	}
	for i := range list {
		a := &list[i]
		a.WaitX, a.RunX = at(a.Begun.Add(-a.Waited)), at(a.Begun)
		a.WaitW = a.RunX - a.WaitX
		a.RunW = max(4, at(a.Begun.Add(a.Took))-a.RunX) // at least visible
		a.RunX = min(a.RunX, attemptScale-a.RunW)
	}
	return list, skipped
}

// Bad reports whether the attempt failed.
func (a attempt) Bad() bool { return a.State == jobs.Failed || a.State == jobs.Terminated }
