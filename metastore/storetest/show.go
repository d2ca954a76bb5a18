package storetest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The reads of a story. Those that need a leader's reads or the rows show nothing for stores without them, so a story
// must have one of the others that would fail as well.
//
//	run RUN              the run            history RUN          its history
//	runs [KEY] [state=] [cause=] [arg=]  a list of runs     job KEY [FIELD ...]  the job, and its settings
//	ledger KEY           missed ranges      counts [KEY]         runs by state
//	changes N            jobs changed since a change number
//	waking               runs that wake by now, and the next time
//	ready APP            ready runs         leased               attempts under way
//	backlog              how many ready runs each app has, and since when the oldest
//	unserved             gates with a free slot and a waiter
//	lapsed               expired unique keys
//	tokens               all tokens         session SESSION      a session
//	sessions             those of the tenant
//	calendars            those of the tenant
//	alarms [which=open] [limit=n]    alarmrules       the alarms; their targets and rules
//	occasions KEY        open occasions of a job that follows others
//	batches                the batches
//	audits [target=] [by=] [before=n] [since=n] [limit=n]  the audits
//	sinks                how far the audit is exported
//	versions KEY         the job's former versions
//	aged +1h [limit=n]   rows that became history before a time
//	hourly +1h           hours that ended by a time and are not part of their days yet
func shows(verb string) func(*telling, words) string {
	return map[string]func(*telling, words) string{
		"run": showRun, "history": showHistory, "runs": showRuns, "job": showJob, "ledger": showLedger, "counts": showCounts,
		"changes": showChanges, "waking": showWaking, "ready": showReady, "backlog": showBacklog, "leased": showLeased, "unserved": showUnserved, "lapsed": showExpired,
		"tokens": showTokens, "calendars": showCalendars, "occasions": showOccasions, "batches": showBatches, "session": showSession, "sessions": showSessions, "audits": showAudits, "versions": showVersions, "aged": showAged, "hourly": showHourly,
		"alarms": showAlarms, "sinks": showSinks, "alarmrules": showAlarmRules,
	}[verb]
}

func tenantOf(w words) jobs.Tenant {
	return jobs.Tenant(or(w.value["tenant"], string(jobs.DefaultTenant)))
}

func refusedRead(err error) string { return fmt.Sprintf("refused, %s", jobs.CodeOf(err)) }

func showRun(tl *telling, w words) string {
	run, err := tl.h.Store.Run(tl.t.Context(), tenantOf(w), tl.run(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	return tl.sayRun(run)
}

func showHistory(tl *telling, w words) string {
	run, err := tl.h.Store.Run(tl.t.Context(), tenantOf(w), tl.run(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	return tl.history(run)
}

func showRuns(tl *telling, w words) string {
	q := metastore.RunQuery{Tenant: tenantOf(w), Job: jobs.Key(w.name(0))}
	q.Cause, q.App, q.Match = kernel.Cause(w.value["cause"]), w.value["app"], w.value["match"]
	if text := w.value["arg"]; text != "" {
		arg, err := metastore.ParseArg(text)
		if err != nil {
			return refusedRead(err)
		}
		q.Args = []metastore.Arg{arg}
	}
	if list, ok := w.value["jobs"]; ok {
		q.Jobs = []jobs.Key{}
		for _, key := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
			q.Jobs = append(q.Jobs, jobs.Key(key))
		}
	}
	if s := w.value["state"]; s != "" {
		q.State, _ = kernel.ParseState(s)
	}
	page, err := tl.h.Store.Runs(tl.t.Context(), q)
	if err != nil {
		return refusedRead(err)
	}
	return several(page.Runs, tl.sayRun)
}

// showJob shows a job, and some of its effective settings.
func showJob(tl *telling, w words) string {
	d, err := tl.h.Store.Definition(tl.t.Context(), tenantOf(w), jobs.Key(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	lines := []string{tl.definition(d)}
	for _, f := range w.names[1:] {
		v := reflect.ValueOf(d.Policy).FieldByName(strings.ToUpper(f[:1]) + f[1:])
		lines = append(lines, fmt.Sprintf("  %s = %v", f, v))
	}
	return strings.Join(lines, "\n")
}

func showVersions(tl *telling, w words) string {
	d, err := tl.h.Store.Definition(tl.t.Context(), tenantOf(w), jobs.Key(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	h, err := tl.h.Store.History(tl.t.Context(), d.Tenant, d.UID)
	if err != nil {
		return refusedRead(err)
	}
	lines := []string{fmt.Sprintf("%d earlier", len(h.Versions))}
	for _, v := range h.Versions {
		line := fmt.Sprintf("  revision %d until %s, then %s by %s", v.Revision, since(v.Until), v.Verb, v.By)
		for _, part := range []struct {
			name  string
			given []string
		}{{"code", v.Code.Given()}, {"edits", v.Edits.Given()}} {
			if len(part.given) > 0 {
				line += ", " + part.name + " " + strings.Join(part.given, " ")
			}
		}
		lines = append(lines, line)
	}
	for _, e := range h.Schedules {
		lines = append(lines, fmt.Sprintf("  schedule %s %s until %s, anchor %s", e.Schedule, e.Zone, since(e.Until), since(e.Anchor)))
	}
	return strings.Join(lines, "\n")
}

func showLedger(tl *telling, w words) string {
	d, err := tl.h.Store.Definition(tl.t.Context(), tenantOf(w), jobs.Key(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	list, err := tl.h.Store.Ledger(tl.t.Context(), d.Tenant, d.UID, 100)
	if err != nil {
		return refusedRead(err)
	}
	return several(list, missed)
}

func showOccasions(tl *telling, w words) string {
	d, err := tl.h.Store.Definition(tl.t.Context(), tenantOf(w), jobs.Key(w.name(0)))
	if err != nil {
		return refusedRead(err)
	}
	list, err := tl.h.Store.Occasions(tl.t.Context(), d.Tenant, d.UID, 100)
	if err != nil {
		return refusedRead(err)
	}
	return several(list, func(o *kernel.Occasion) string {
		name := o.Name
		if id, err := jobs.ParseID(name); err == nil {
			name = tl.runName(o.Tenant, id)
		}
		return fmt.Sprintf("%s of %s until %s: %s", o.Key, name, since(o.Until), strings.ReplaceAll(ends(o.Ended), "\n", ", "))
	})
}

func showCounts(tl *telling, w words) string {
	c, err := tl.h.Store.Counts(tl.t.Context(), metastore.CountQuery{Tenant: tenantOf(w), Job: jobs.Key(w.name(0)), App: w.take("app"), Payer: w.take("payer"),
		From: Start.Add(-time.Hour), To: tl.h.Clock.Now().Add(time.Hour)})
	if err != nil {
		return refusedRead(err)
	}
	var lines []string
	for _, s := range kernel.States() {
		if n := c.Live[s]; n > 0 {
			lines = append(lines, fmt.Sprintf("now %s %d", s, n))
		}
	}
	if c.Waiting > 0 {
		lines = append(lines, fmt.Sprintf("waiting %d", c.Waiting))
	}
	for _, t := range c.Tallies {
		for _, s := range kernel.States() {
			if n := t.Runs[s]; n > 0 {
				lines = append(lines, fmt.Sprintf("in the %s from %s, %s %d", spans[t.Span], since(t.Start()), s, n))
			}
		}
		if t.Took > 0 {
			lines = append(lines, fmt.Sprintf("in the %s from %s, took %v", spans[t.Span], since(t.Start()), t.Took))
		}
	}
	return several(lines, func(s string) string { return s })
}

func showChanges(tl *telling, w words) string {
	list, err := tl.h.Store.Definitions(tl.t.Context(), metastore.DefinitionQuery{Tenant: "*", Since: uint64(tl.number(w.name(0)))})
	if err != nil {
		return refusedRead(err)
	}
	return several(list, tl.definition)
}

func (tl *telling) leader() metastore.Agenda {
	a := tl.h.agenda()
	if a == nil {
		tl.t.Skip("this story needs a leader's reads, and the store has none")
	}
	return a
}

func (tl *telling) runName(t jobs.Tenant, id jobs.ID) string {
	if t != jobs.DefaultTenant {
		return tl.named(id.String()) + " of " + string(t)
	}
	return tl.named(id.String())
}

func showWaking(tl *telling, _ words) string {
	due, next, err := tl.leader().Waking(tl.t.Context(), tl.h.Clock.Now(), 100)
	if err != nil {
		return refusedRead(err)
	}
	lines := make([]string, 0, len(due)+1)
	for _, n := range due {
		lines = append(lines, tl.runName(n.Tenant, n.ID))
	}
	if !next.IsZero() {
		lines = append(lines, "next "+since(next))
	}
	return several(lines, func(s string) string { return s })
}

func showReady(tl *telling, w words) string {
	list, err := tl.leader().Ready(tl.t.Context(), metastore.ReadyQuery{Tenant: tenantOf(w), App: w.name(0), Limit: 100})
	if err != nil {
		return refusedRead(err)
	}
	return several(inTurn(tl.t, list), tl.sayRun)
}

// inTurn checks that runs start by priority, and then by their turn.
func inTurn(t *testing.T, list []*kernel.Run) []*kernel.Run {
	t.Helper()
	for i, run := range list {
		if run.Turn == 0 || i > 0 && (run.Priority > list[i-1].Priority || run.Priority == list[i-1].Priority && run.Turn <= list[i-1].Turn) {
			t.Errorf("run %s, with priority %d and turn %d, is out of turn", run.ID, run.Priority, run.Turn)
		}
	}
	return list
}

func showBacklog(tl *telling, _ words) string {
	list, err := tl.leader().Backlog(tl.t.Context())
	if err != nil {
		return refusedRead(err)
	}
	slices.SortFunc(list, func(a, b metastore.Backlog) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.App, b.App))
	})
	return several(list, func(b metastore.Backlog) string {
		return fmt.Sprintf("%s of %s: %d since %s", b.App, b.Tenant, b.Ready, since(b.Since))
	})
}

func showLeased(tl *telling, _ words) string {
	list, err := tl.leader().Leased(tl.t.Context())
	if err != nil {
		return refusedRead(err)
	}
	lines := make([]string, len(list))
	for i, run := range list {
		lines[i] = tl.sayRun(run)
	}
	return sorted(lines)
}

func showUnserved(tl *telling, _ words) string {
	list, err := tl.leader().Unserved(tl.t.Context(), 100)
	if err != nil {
		return refusedRead(err)
	}
	lines := make([]string, len(list))
	for i, ref := range list {
		lines[i] = tl.named(ref.Name)
	}
	return sorted(lines)
}

func showExpired(tl *telling, _ words) string {
	list, err := tl.leader().Expired(tl.t.Context(), tl.h.Clock.Now(), 100)
	if err != nil {
		return refusedRead(err)
	}
	var lines []string
	for _, ref := range list {
		if ref.Name != kernel.AnswerName(nonsenseID(2)) { // the story leaves that one out
			lines = append(lines, tl.named(ref.Name))
		}
	}
	return sorted(lines)
}
