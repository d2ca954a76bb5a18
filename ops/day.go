package ops

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// DayQuery selects what Day counts.
type DayQuery struct {
	From, To time.Time // at most 26 hours
	App      string    // "" = all apps
	After    string    // the page after this row: Day.Next
}

// Day is what happened and what is planned in each hour of a day, by job, or by app if there are many jobs.
type Day struct {
	Hours []time.Time // their starts. They are hours of UTC, so a zone may have 30 minutes of the day before
	Known time.Time   // runs of hours before it are counted by day only
	Rows  []DayRow
	ByApp bool
	Next  string // the query of the next page; "" = this is the last one
	Left  int    // jobs whose due times were not counted because that would take too long
}

// DayRow is a job, or an app.
type DayRow struct {
	Job   jobs.Key // "" = it is an app
	App   string
	Jobs  int
	Hours []DayHour
}

// DayHour is an hour of a row.
type DayHour struct {
	Planned int // due times from now on
	Ran     int // runs that Succeeded in this hour
	Failed  int // runs that were Terminated in this hour
	Missed  int // due times without a run; of a job only
}

const (
	dayRows = 50      // of a page; with more jobs, rows are apps
	dayLook = 300_000 // due times in all: a part of a second
	dayLong = 26 * time.Hour
)

// days is a Day in progress.
type days struct {
	Day
	o      *Ops
	ctx    context.Context
	q      DayQuery
	now    time.Time
	global *kernel.Global
	looked int
	known  map[sameTimes][]int // planned due times of jobs with the same
}

// Day counts due times and runs of each hour of a day. Work is bounded: with more than 50 jobs, rows are apps, and due
// times that would take too long are left out.
func (o *Ops) Day(ctx context.Context, who Who, q DayQuery) (Day, error) {
	if long := q.To.Sub(q.From); long <= 0 || long > dayLong {
		return Day{}, kernel.Invalid("invalid range of %s: want more than 0s, up to %s", long, dayLong)
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Day{}, err
	}
	d := &days{o: o, ctx: ctx, q: q, now: o.Now(), global: global, known: map[sameTimes][]int{}}
	for at := q.From.UTC().Truncate(time.Hour); at.Before(q.To); at = at.Add(time.Hour) {
		d.Hours = append(d.Hours, at)
	}
	d.Known = d.now.Add(-kernel.KeepHours).Truncate(time.Hour)
	if err := d.read(who.tenant()); err != nil {
		return Day{}, err
	}
	return d.Day, nil
}

// read reads jobs until there are more than a page has; without a filter, the rows are then apps.
func (d *days) read(tenant jobs.Tenant) error {
	var list []*kernel.Definition
	for after := jobs.Key(d.q.After); ; {
		part, err := d.o.store.Definitions(d.ctx, metastore.DefinitionQuery{Tenant: tenant, App: d.q.App, After: after, Limit: dayRows + 1})
		if err != nil {
			return err
		}
		for _, def := range part {
			if after = def.Key; !kernel.SystemKey(def.Key) && !def.Gone() {
				list = append(list, def)
			}
		}
		if len(list) > dayRows || len(part) <= dayRows {
			break
		}
	}
	if d.q.App == "" && (len(list) > dayRows || d.q.After != "") {
		return d.apps(tenant)
	}
	if len(list) > dayRows {
		list = list[:dayRows]
		d.Next = string(list[dayRows-1].Key)
	}
	for _, def := range list {
		row := DayRow{Job: def.Key, App: def.App, Jobs: 1, Hours: make([]DayHour, len(d.Hours))}
		d.plan(def, &row)
		if err := d.missed(def, &row); err != nil {
			return err
		}
		if err := d.ran(metastore.CountQuery{Tenant: tenant, Job: def.Key}, &row); err != nil {
			return err
		}
		d.Rows = append(d.Rows, row)
	}
	return nil
}

// apps makes rows of apps.
func (d *days) apps(tenant jobs.Tenant) error {
	d.ByApp = true
	of := map[string][]*kernel.Definition{}
	if err := metastore.EachDefinition(d.ctx, d.o.store, tenant, func(part []*kernel.Definition) error {
		for _, def := range part {
			if !kernel.SystemKey(def.Key) && !def.Gone() && def.App > d.q.After {
				of[def.App] = append(of[def.App], def)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for app, defs := range of {
		d.Rows = append(d.Rows, DayRow{App: app, Jobs: len(defs), Hours: make([]DayHour, len(d.Hours))})
	}
	slices.SortFunc(d.Rows, func(a, b DayRow) int { return cmp.Compare(a.App, b.App) })
	if len(d.Rows) > dayRows {
		d.Rows = d.Rows[:dayRows]
		d.Next = d.Rows[dayRows-1].App
	}
	for i := range d.Rows {
		row := &d.Rows[i]
		for _, def := range of[row.App] {
			d.plan(def, row)
		}
		if err := d.ran(metastore.CountQuery{Tenant: tenant, App: row.App}, row); err != nil {
			return err
		}
	}
	return nil
}

// hour returns the index of the hour of a time.
func (d *days) hour(at time.Time) int { return int(at.Sub(d.Hours[0]) / time.Hour) }

// end returns when the last hour ends.
func (d *days) end() time.Time { return d.Hours[len(d.Hours)-1].Add(time.Hour) }

// walk calls fn with the hours of a job's due times from a time to another one, both included. False: it would take too
// long.
func (d *days) walk(def *kernel.Definition, from, to time.Time, fn func(due time.Time, n int)) bool {
	when, err := d.o.dueBy(def, d.global)
	if err != nil || when == nil {
		return true // the job's page shows why
	}
	for after := from.Add(-1); ; {
		due, ok := when.Next(after)
		if !ok || due.After(to) {
			return true
		}
		if d.looked++; d.looked > dayLook {
			return false
		}
		n := when.InMinute(due)
		if after = due; n > 1 {
			after = due.Truncate(time.Minute).Add(time.Minute - 1)
		}
		fn(due, n)
		if def.FixedDelay() {
			return true // later due times depend on how long it runs
		}
	}
}

// plan adds the due times of a job from now on.
func (d *days) plan(def *kernel.Definition, row *DayRow) {
	p := &def.Policy
	if p.Schedule == "" || p.Disabled || def.Waits() || !d.end().After(d.now) {
		return
	}
	same := sameTimes{p.Schedule, p.Zone, strings.Join(p.Calendars, "\x00"), p.Start, p.End, p.Gap, p.Twice}
	alone := def.Paused != nil || !def.Stopped.IsZero() || p.TTL != 0 || def.FixedDelay() || !schedule.SameForAll(p.Schedule)
	planned, known := d.known[same]
	if !known || alone {
		from := d.now
		if d.Hours[0].After(from) {
			from = d.Hours[0]
		}
		planned = make([]int, len(d.Hours))
		if d.looked > dayLook || !d.walk(def, from, d.end().Add(-1), func(due time.Time, n int) {
			if Silence(def, d.global, due) == "" {
				planned[d.hour(due)] += n
			}
		}) {
			d.Left++
			return
		}
		if !alone {
			d.known[same] = planned
		}
	}
	for i, n := range planned {
		row.Hours[i].Planned += n
	}
}

// missed adds the ledger of a job. Due times of a range over several hours are those of the present schedule, or those
// of its first hour if that has none.
func (d *days) missed(def *kernel.Definition, row *DayRow) error {
	list, err := d.o.store.Ledger(d.ctx, def.Tenant, def.UID, ledgerLook)
	if err != nil {
		return err
	}
	first, last := d.Hours[0], d.end().Add(-1)
	list = list[sort.Search(len(list), func(i int) bool { return !list[i].From.After(last) }):]
	for _, m := range list { // newest first
		if m.To.Before(first) {
			break
		}
		from, to := m.From, m.To
		if from.Before(first) {
			from = first
		}
		if to.After(last) {
			to = last
		}
		if d.hour(from) == d.hour(to) && from.Equal(m.From) && to.Equal(m.To) {
			row.Hours[d.hour(from)].Missed += int(m.Count)
			continue
		}
		found := 0
		d.walk(def, from, to, func(due time.Time, n int) {
			row.Hours[d.hour(due)].Missed += n
			found += n
		})
		if found == 0 {
			row.Hours[d.hour(from)].Missed += int(m.Count)
		}
	}
	return nil
}

// ran adds the finished runs.
func (d *days) ran(q metastore.CountQuery, row *DayRow) error {
	if d.Hours[0].After(d.now) || !d.end().After(d.Known) {
		return nil
	}
	q.From, q.To = d.Hours[0], d.end()
	counts, err := d.o.store.Counts(d.ctx, q)
	if err != nil {
		return err
	}
	for _, t := range metastore.Hours(counts.Tallies) {
		if i := d.hour(t.Start()); !t.Start().Before(d.Hours[0]) && i < len(row.Hours) {
			row.Hours[i].Ran += int(t.Runs[jobs.Succeeded])
			row.Hours[i].Failed += int(t.Runs[jobs.Terminated])
		}
	}
	return nil
}
