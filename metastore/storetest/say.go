package storetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The text of effects and rows in a story: zero values are left out.

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// named puts names in the place of ids.
func (tl *telling) named(text string) string {
	return uuids.ReplaceAllStringFunc(text, func(s string) string {
		id, err := jobs.ParseID(s)
		if err != nil {
			return s
		}
		if name, ok := tl.names[id]; ok {
			return name
		}
		return "(unnamed)"
	})
}

// since is a time as the story writes it.
func since(at time.Time) string {
	d := at.Sub(Start)
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if d < 0 {
		return text
	}
	return "+" + text
}

func (tl *telling) result(r metastore.Result) string {
	if r.Err != nil {
		return tl.named(fmt.Sprintf("refused, %s: %v", jobs.CodeOf(r.Err), r.Err))
	}
	var lines []string
	if r.Existing {
		lines = append(lines, "(as before)")
	}
	for _, d := range r.Definitions {
		lines = append(lines, tl.definition(d))
	}
	for _, m := range r.Missed {
		lines = append(lines, missed(m))
	}
	for _, run := range r.Runs {
		lines = append(lines, tl.sayRun(run))
	}
	if r.Global != nil {
		lines = append(lines, global(r.Global))
	}
	if len(r.LedgerSeed) > 0 {
		lines = append(lines, fmt.Sprintf("ledger seed %.8x", r.LedgerSeed))
	}
	if r.Token != nil {
		lines = append(lines, token(r.Token))
	}
	if len(lines) == 0 {
		return "done"
	}
	return strings.Join(lines, "\n")
}

// phrase collects the parts of a line.
type phrase []string

func (p *phrase) add(when bool, format string, args ...any) {
	if when {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (p *phrase) time(what string, at time.Time) {
	if !at.IsZero() {
		*p = append(*p, what+" "+since(at))
	}
}

func (tl *telling) sayRun(run *kernel.Run) string {
	if run.State == kernel.New {
		return tl.named(run.ID.String() + " is known by its name alone")
	}
	p := phrase{run.ID.String() + " " + run.State.String()}
	p.add(run.Cause != "", "by %s", run.Cause)
	p.add(run.Tenant != jobs.DefaultTenant, "of %s", run.Tenant)
	p.add(run.State == jobs.Scheduled && run.Cause == "", "due %s", since(run.Due))
	if run.Cause == kernel.ByPause {
		p.time("until", run.RetryAt)
	}
	p.add(run.Attempt > 0, "attempt %d of %s", run.Attempt, run.Worker)
	if run.State == jobs.Failed {
		p.time("retry", run.RetryAt)
	}
	if run.State == jobs.Processing {
		p.time("until", run.Deadline)
	}
	p.add(run.Execution > 0, "execution %d", run.Execution)
	p.add(run.Handler != "", "handler %s", run.Handler)
	p.add(run.Work != "", "with %s", run.Work)
	if at := run.Place; at != nil {
		p.add(at.Total > 0, "part %d of %d", at.Index, at.Total)
		p.add(at.Total == 0, "route %s", at.Route)
		p.add(at.Pin != "", "to %s", at.Pin)
		p.add(len(at.Needs) > 0, "needs %s", strings.Join(at.Needs, " "))
		p.add(at.Hash != "", "by %q", at.Hash)
	}
	p.add(run.Failures > 0, "failures %d", run.Failures)
	p.add(run.Losses > 0, "losses %d", run.Losses)
	p.add(run.Unbegun > 0, "unbegun %d", run.Unbegun)
	p.add(run.First, "first")
	p.add(run.Waits != "", "waits at %s", run.Waits)
	p.time("which opens", run.Opens)
	p.add(run.Reserved, "keeps its slots by argument")
	p.add(run.Forced && !run.State.Final(), "forced")
	p.add(run.Holds, "holds %s", strings.Join(run.Gates, " "))
	p.add(run.Lingering, "lingering")
	p.add(run.Code() != "", "code %s", run.Code())
	p.add(run.Error != "", "error %q", run.Error)
	p.add(len(run.Result) > 0, "result %s", run.Result)
	p.add(len(run.Checkpoint) > 0, "checkpoint %s", strings.Trim(string(run.Checkpoint), `"`))
	if f := run.Feedback; f != nil {
		said, _ := f.Since(0)
		p.add(true, "heard %q of attempt %d", said, f.Attempt)
		p.add(f.Lasts, "lasting")
		p.add(f.Final, "and that was all")
	}
	return tl.named(strings.Join(p, ", "))
}

// history is all lines of a run's history.
func (tl *telling) history(run *kernel.Run) string {
	lines := []string{fmt.Sprintf("%s of %s, origin %s, by %s, priority %d, args %s", run.ID, run.Key, run.Origin, run.Actor, run.Priority, run.Args)}
	if run.Trace != "" {
		lines[0] += ", trace " + run.Trace
	}
	for _, m := range run.Moves {
		p := phrase{"  " + since(m.At) + " " + m.State.String()}
		p.add(m.Cause != "", "by %s", m.Cause)
		p.add(m.Attempt > 0, "attempt %d", m.Attempt)
		p.add(m.By != "", "%s", m.By)
		p.add(m.Text != "", "%q", m.Text)
		lines = append(lines, strings.Join(p, ", "))
	}
	return tl.named(strings.Join(lines, "\n"))
}

func (tl *telling) definition(d *kernel.Definition) string {
	p := phrase{fmt.Sprintf("job %s revision %d, change %d", d.Key, d.Revision, d.Change)}
	if d.Gone() {
		p.add(true, "deleted")
		return strings.Join(p, ", ")
	}
	p.add(d.Tenant != jobs.DefaultTenant, "of %s", d.Tenant)
	p.add(d.Version > 0, "version %d", d.Version)
	p.add(!d.Registered, "not registered")
	p.add(d.Bundle != "", "%s", strings.Join(append([]string{"bundle", d.Bundle}, d.BundleFields...), " "))
	p.add(len(d.Code.Given()) > 0, "code %s", strings.Join(d.Code.Given(), " "))
	p.add(len(d.Edits.Given()) > 0, "edits %s", strings.Join(d.Edits.Given(), " "))
	if d.Kind == kernel.Recurring {
		p.time("cursor", d.Cursor)
		p.add(d.Waits(), "waits for the end of %s", d.Running)
		p.time("counts from", d.Ended)
		p.add(len(d.Undecided) > 0, "%d earlier schedules undecided", len(d.Undecided))
	}
	if d.Paused != nil {
		p.add(true, "paused by %s", d.Paused.By)
		p.add(d.Paused.Reason != "", "because %q", d.Paused.Reason)
		p.add(d.Paused.Failed > 0, "after %d failures in a row", d.Paused.Failed)
		p.time("until", d.Paused.Until)
	}
	if a := d.AfterPause; a != nil {
		p.add(true, "what was held is decided by %s", a.By)
		p.add(a.Discard, "requested runs are discarded")
		p.time("due times begin from", a.From)
	}
	return strings.Join(p, ", ")
}

func missed(m *kernel.Missed) string {
	text := fmt.Sprintf("missed %s %s to %s, %d of them, %s", m.Key, since(m.From), since(m.To), m.Count, m.Reason)
	if len(m.Parents) > 0 {
		text += ": " + strings.ReplaceAll(ends(m.Parents), "\n", ", ")
	}
	return text
}

// ends are the runs of an occasion.
func ends(list []kernel.Ended) string {
	return several(list, func(e kernel.Ended) string {
		switch {
		case e.State == kernel.New:
			return string(e.Job) + " has not ended"
		case e.Total > 0:
			return fmt.Sprintf("%s %s, %d of %d parts", e.Job, e.State, e.Parts, e.Total)
		}
		return fmt.Sprintf("%s %s", e.Job, e.State)
	})
}

func global(g *kernel.Global) string {
	p := phrase{fmt.Sprintf("global revision %d", g.Revision)}
	if t := &g.Tenancy; !t.Since.IsZero() {
		p.add(true, "tenant %s", g.Tenant)
		p.add(t.Title != "", "%q", t.Title)
		p.add(t.Limits != kernel.TenantLimits{}, "limits %+v", t.Limits)
		p.add(t.Suspended.On, "suspended by %s", t.Suspended.By)
		p.add(t.Deleted.On, "deleted by %s", t.Deleted.By)
	}
	p.add(g.RecurringDebug.On, "recurring debug by %s", g.RecurringDebug.By)
	p.add(g.TriggeredDebug.On, "triggered debug by %s", g.TriggeredDebug.By)
	p.add(g.NewJobs != "", "new jobs %s", g.NewJobs)
	p.add(len(g.File.Defaults.Given()) > 0, "file %s", strings.Join(g.File.Defaults.Given(), " "))
	p.add(len(g.Defaults.Given()) > 0, "defaults %s", strings.Join(g.Defaults.Given(), " "))
	for _, a := range g.Apps {
		p.add(true, "app %s %s", a.App, strings.Join(a.Set.Given(), " "))
	}
	p.add(g.MaxJobs > 0, "at most %d jobs", g.MaxJobs)
	p.add(g.MisfireAfter > 0, "misfire after %v", g.MisfireAfter)
	for _, s := range g.Setters {
		p.add(true, "%s", strings.Join(strings.Fields(fmt.Sprint(s.Name, " ", s.App, " by ", s.By, " ", since(s.At))), " "))
	}
	return strings.Join(p, ", ")
}

// several is a list in a story: a line each, or "none".
func several[T any](list []T, say func(T) string) string {
	if len(list) == 0 {
		return "none"
	}
	lines := make([]string, len(list))
	for i, v := range list {
		lines[i] = say(v)
	}
	return strings.Join(lines, "\n")
}

func sorted(lines []string) string {
	slices.Sort(lines)
	return several(lines, func(s string) string { return s })
}
