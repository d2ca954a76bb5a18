package controlplane_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timemodel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// change is something that happens to a job, or to all. do reports whether it did.
type change struct {
	name string
	all  bool
	do   func(w *lives, c *citizen) bool
}

// edits returns a change of some settings.
func edits(name string, draw func(w *lives, s *kernel.Settings)) change {
	return change{name, false, func(w *lives, c *citizen) bool {
		var s kernel.Settings
		if name == "schedule" {
			s.Schedule = c.set.Schedule
		}
		draw(w, &s)
		return !c.gone && w.change(c, s)
	}}
}

var changes = []change{
	edits("schedule", drawSchedule), edits("zone", drawZone), edits("gap", drawGap), edits("twice", drawTwice),
	edits("start", drawStart), edits("end", drawEnd), edits("first", drawFirst), edits("ttl", drawTTL),
	edits("calendars", drawCalendars), edits("misfire", drawMisfire), edits("early", drawEarly), edits("jitter", drawJitter),
	edits("overlap", drawOverlap), edits("startWithin", drawStartWithin),
	{"restart", false, restart}, {"disabled", false, disable}, {"disabled", false, disable},
	{"pause", false, pauseOne}, {"pause", false, pauseOne}, {"pause until", false, pauseUntil},
	{"pause all", true, pauseMany("job-*", "")}, {"pause by tag", true, pauseMany("", "some")},
	{"debug", true, debug}, {"debug", true, debug}, {"suspension", true, suspend}, {"suspension", true, suspend},
	{"leader", true, lead}, {"leader", true, lead}, {"leader", true, lead}, {"leader", true, lead},
	{"workers", true, staff}, {"workers", true, staff}, {"code", true, strip}, {"code", true, strip},
	{"calendar", true, func(w *lives, _ *citizen) bool { w.closes("a"); return true }},
	{"default", true, defaults}, {"default", true, defaults}, {"misfireAfter", true, misfireAfter},
	{"clock ahead", true, setClock(+1)}, {"clock back", true, setClock(-1)},
	{"deletion", false, remove},
}

// settings draws those of a new job.
func (w *lives) settings() (s kernel.Settings) {
	s.Handler = new("work")
	drawForm(w, &s)
	for _, draw := range []func(*lives, *kernel.Settings){drawZone, drawGap, drawTwice, drawStart, drawEnd, drawFirst, drawTTL, drawCalendars, drawMisfire, drawEarly, drawJitter, drawOverlap, drawStartWithin, drawTags} {
		if w.rnd.IntN(4) == 0 {
			draw(w, &s)
		}
	}
	return s
}

// drawForm draws the schedule of a new job: some count from the end of their last run. Those stay so.
func drawForm(w *lives, s *kernel.Settings) {
	if drawSchedule(w, s); w.rnd.IntN(8) == 0 {
		s.Schedule = new("90s after end")
		drawSchedule(w, s)
	}
}

func drawSchedule(w *lives, s *kernel.Settings) {
	if strings.HasSuffix(or(s.Schedule, ""), afterEnd) {
		s.Schedule = new(fmt.Sprint(30+w.rnd.IntN(200), "s", afterEnd))
		return
	}
	local := w.now().In(place(w.clocks.zone))
	h, m := local.Hour(), w.rnd.IntN(60)
	s.Schedule = new([]string{
		fmt.Sprintf("%d %d,%d,%d %d,%d,%d * * *", w.rnd.IntN(60), m, (m+20)%60, (m+40)%60, h, (h+1)%24, (h+2)%24),
		"0 */3 * * * *", "30 1-59/7 * * * *", "*/20 * * * * *", "*/5 * * * *",
		"@every 150s", "@every 11m", "PT4M", "R9/PT2M", "P1D",
		w.soon().Format(time.RFC3339), w.soon().In(place(or(s.Zone, or(w.common.Zone, "UTC")))).Format(time.DateTime),
	}[w.rnd.IntN(12)])
}

func place(zone string) *time.Location {
	l, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	return l
}

// soon is a time in the next hour.
func (w *lives) soon() time.Time {
	return w.now().Truncate(time.Second).Add(time.Duration(60+w.rnd.IntN(3000)) * time.Second).UTC()
}

func drawZone(w *lives, s *kernel.Settings) { s.Zone = new(w.clocks.zone) }
func drawGap(w *lives, s *kernel.Settings)  { s.Gap = new([]jobs.Gap{"before", "skip"}[w.rnd.IntN(2)]) }
func drawTwice(w *lives, s *kernel.Settings) {
	s.Twice = new([]jobs.Twice{"second", "both"}[w.rnd.IntN(2)])
}
func drawStart(w *lives, s *kernel.Settings) { s.Start = new(w.soon()) }
func drawEnd(w *lives, s *kernel.Settings)   { s.End = new(w.soon()) }
func drawFirst(w *lives, s *kernel.Settings) { s.First = new(w.soon()) }
func drawTTL(w *lives, s *kernel.Settings) {
	s.TTL = new(time.Duration(600+w.rnd.IntN(4000)) * time.Second)
}
func drawCalendars(w *lives, s *kernel.Settings) {
	s.Calendars = new([][]string{{"a"}, {"b"}, {"b", "a"}, {}}[w.rnd.IntN(4)])
}
func drawMisfire(w *lives, s *kernel.Settings) {
	s.Misfire = new([]jobs.Misfire{jobs.MisfireAll, jobs.MisfireSkip, jobs.MisfireOnce}[w.rnd.IntN(3)])
}
func drawEarly(w *lives, s *kernel.Settings) {
	s.Early = new(time.Duration(w.rnd.IntN(300)) * time.Second)
}
func drawJitter(w *lives, s *kernel.Settings) {
	s.Jitter = new(time.Duration(w.rnd.IntN(120)) * time.Second)
}

func drawOverlap(w *lives, s *kernel.Settings) {
	s.MaxConcurrency = new(w.rnd.IntN(2))
	s.Overlap = new([]jobs.Overlap{jobs.OverlapSkip, jobs.OverlapQueue, jobs.OverlapQueueOne, jobs.OverlapReplace}[w.rnd.IntN(4)])
}
func drawStartWithin(w *lives, s *kernel.Settings) {
	s.StartWithin = new(time.Duration(w.rnd.IntN(60)) * time.Second)
}
func drawTags(_ *lives, s *kernel.Settings) { s.Tags = &[]string{"some"} }

const afterEnd = " after end"

func restart(w *lives, c *citizen) bool {
	if c.gone || !w.allowed(c) {
		return false
	}
	w.yes(kernel.Edit{Key: c.key, Restart: true})
	w.happenedTo(c, timemodel.Event{Restart: true})
	return true
}

func disable(w *lives, c *citizen) bool {
	return !c.gone && w.change(c, kernel.Settings{Disabled: new(!or(c.set.Disabled, false))})
}

func pauseOne(w *lives, c *citizen) bool {
	switch {
	case c.gone:
		return false
	case c.paused:
		if _, _, err := w.ops().Resume(w.ctx, ann, c.key, ops.Resumption{}); err != nil {
			w.t.Fatal(err)
		}
	default:
		w.yes(kernel.Pause{Key: c.key})
	}
	w.notePause(c)
	return true
}

func pauseUntil(w *lives, c *citizen) bool {
	if c.gone {
		return false
	}
	w.yes(kernel.Pause{Key: c.key, Until: w.now().Add(time.Duration(w.rnd.IntN(900)+1) * time.Second)})
	w.notePause(c)
	return true
}

// pauseMany pauses or resumes the jobs that a filter selects.
func pauseMany(match, tag string) func(w *lives, _ *citizen) bool {
	return func(w *lives, _ *citizen) bool {
		m := ops.ManyJobs{Action: ops.ResumeJobs, Filter: ops.JobQuery{Match: match, Tag: tag}}
		if w.rnd.IntN(2) == 0 {
			m.Action = ops.PauseJobs
			if w.rnd.IntN(2) == 0 {
				m.Until = w.now().Add(time.Duration(w.rnd.IntN(900)+1) * time.Second)
			}
		}
		if _, err := w.ops().ManyJobs(w.ctx, ann, m); err != nil {
			w.t.Fatal(err)
		}
		for _, c := range w.all {
			if !c.gone {
				w.notePause(c)
			}
		}
		return true
	}
}

// notePause records whether the job is paused now.
func (w *lives) notePause(c *citizen) {
	is := w.definition(c.key).Paused
	was := c.pause
	switch c.paused = is != nil; {
	case is != nil && (was == nil || !is.At.Equal(was.At)):
		w.happenedTo(c, timemodel.Event{Pause: new(is.Until)})
	case is == nil && was != nil:
		w.happenedTo(c, timemodel.Event{Resume: true})
	}
	c.pause = is
}

func debug(w *lives, _ *citizen) bool {
	w.debug = !w.debug
	w.yes(kernel.Configure{RecurringDebug: new(w.debug)})
	w.happened(timemodel.Event{Debug: new(w.debug)})
	return true
}

// lead has the leader go, or come back.
func lead(w *lives, _ *citizen) bool {
	if w.away = !w.away; w.away {
		w.stop()
		w.happened(timemodel.Event{Leads: new(false)})
		return true
	}
	w.happened(timemodel.Event{Leads: new(true)})
	began := w.now()
	w.start()
	w.follow(began)
	return true
}

// staff has the workers go, or come back.
func staff(w *lives, _ *citizen) bool {
	if w.idle = !w.idle; w.idle {
		w.leave()
	} else {
		w.work()
	}
	w.mans()
	return true
}

// strip has a worker without the code of the jobs take the place of the one that has it, or the other way around.
func strip(w *lives, _ *citizen) bool {
	if w.idle || w.away {
		return false
	}
	w.leave()
	w.stripped = !w.stripped
	w.work()
	w.mans()
	return true
}

// mans records whether a worker lives that has the code.
func (w *lives) mans() {
	if w.idle || w.stripped {
		w.unmanned = append(w.unmanned, span{w.now(), w.now().AddDate(1, 0, 0)})
	} else if n := len(w.unmanned); n > 0 {
		w.unmanned[n-1].until = w.now()
	}
}

func suspend(w *lives, _ *citizen) bool {
	w.suspended = !w.suspended
	var at metastore.Store = w.store
	if w.away {
		at = w.full
	}
	k := kernel.SuspendTenant{Name: acme, On: w.suspended}
	if r := at.Apply(w.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
		w.t.Fatal(r.Err)
	}
	w.happened(timemodel.Event{Suspended: new(w.suspended)})
	return true
}

// defaults changes those of the tenant. A job follows them when the leader has read them.
func defaults(w *lives, _ *citizen) bool {
	var s kernel.Settings
	[]func(*lives, *kernel.Settings){drawZone, drawMisfire, drawGap, drawTwice}[w.rnd.IntN(4)](w, &s)
	w.yes(kernel.Configure{Defaults: &s})
	w.common = s.Over(w.common)
	w.follow(w.now())
	return true
}

// follow waits until all jobs follow the defaults, if a node leads, and records when they did: before anything else of
// that moment.
func (w *lives) follow(began time.Time) {
	if w.away {
		return
	}
	time.Sleep(5 * time.Second)
	for _, c := range w.all {
		if c.gone {
			continue
		}
		if at := w.definition(c.key).Edited; !at.Before(began) {
			w.history = append(w.history, happening{c, timemodel.Event{At: at.Add(-1), Spec: w.spec(c)}})
		}
	}
}

func misfireAfter(w *lives, _ *citizen) bool {
	late := time.Duration(1+w.rnd.IntN(120)) * time.Second
	w.yes(kernel.Configure{MisfireAfter: &late})
	w.happened(timemodel.Event{LateAfter: late})
	return true
}

// setClock sets the clock for good: the store follows it after a while. It stands still until a clock that was set back is
// where it was, and so do people here: which change came first would not be known.
func setClock(sign time.Duration) func(w *lives, _ *citizen) bool {
	return func(w *lives, _ *citizen) bool {
		if w.away || w.stripped { // undecided due times would be judged by a clock that is behind the store's
			return false
		}
		w.ahead.Add(int64(sign * time.Duration(60+w.rnd.IntN(600)) * time.Second))
		w.now()
		time.Sleep(metastore.ClockPatience - time.Nanosecond)
		commit := func() { w.yes(kernel.SetCalendar{Name: "unused", Description: w.now().String()}) }
		commit() // the time of the store goes on from it
		w.happened(timemodel.Event{Leads: new(false)})
		time.Sleep(time.Nanosecond)
		commit() // the leader looks at the clock at once
		w.happened(timemodel.Event{Leads: new(true)})
		for w.clock.Now().Before(w.latest) {
			time.Sleep(time.Second)
		}
		return true
	}
}

func remove(w *lives, c *citizen) bool {
	if c.gone {
		return false
	}
	w.yes(kernel.Delete{Key: c.key})
	w.happenedTo(c, timemodel.Event{Deleted: true})
	c.gone, c.died = true, w.now()
	w.create(c.key)
	return true
}

// closes has a calendar exclude other times of the day, or makes it.
func (w *lives) closes(name string) {
	type minutes struct{ from, to int }
	var spans []minutes
	rules := []string{}
	for range w.rnd.IntN(3) {
		at := w.clocks.at.Add(time.Duration(w.rnd.IntN(120)-60) * time.Minute)
		from := at.Hour()*60 + at.Minute()
		to := (from + 1 + w.rnd.IntN(20)) % 1440
		if from < to {
			spans = append(spans, minutes{from, to})
			rules = append(rules, fmt.Sprintf("%02d:%02d-%02d:%02d", from/60, from%60, to/60, to%60))
		}
	}
	w.yes(kernel.SetCalendar{Name: name, Rules: rules})
	w.happened(timemodel.Event{Calendar: name, Excludes: func(at time.Time) bool {
		minute := at.UTC().Hour()*60 + at.UTC().Minute()
		for _, s := range spans {
			if s.from <= minute && minute < s.to {
				return true
			}
		}
		return false
	}})
}

// properties are the settings that a job has, and the states that it is in.
func (w *lives) properties(c *citizen) (list []string) {
	if c.gone {
		return nil
	}
	list = append(list, form(*c.set.Schedule))
	for _, name := range c.set.Given() {
		if name != "schedule" && name != "handler" && name != "disabled" {
			list = append(list, name)
		}
	}
	for name, is := range map[string]bool{"paused": c.pause != nil && (c.pause.Until.IsZero() || c.pause.Until.After(w.now())), "suspended": w.suspended, "no code": w.stripped, "by code": c.version > 0, "disabled": or(c.set.Disabled, false), "debug": w.debug, "no leader": w.away, "no worker": w.idle} {
		if is {
			list = append(list, name)
		}
	}
	return list
}

func form(text string) string {
	var at time.Time
	switch fields := len(strings.Fields(text)); {
	case at.UnmarshalText([]byte(text)) == nil:
		return "once"
	case strings.HasSuffix(text, afterEnd):
		return "after end"
	case fields == 2:
		return "once"
	case fields > 4 && json.Valid([]byte(text[:1])):
		return "cron"
	case fields > 4:
		return "cron steps"
	case text[0] == 'R':
		return "count"
	case text[len(text)-1] == 'D':
		return "days"
	default:
		return "interval"
	}
}
