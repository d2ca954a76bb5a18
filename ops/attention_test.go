package ops_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// crew is a Live that knows workers and stuck attempts.
type members struct {
	workers  []ops.Worker
	stuck    map[jobs.ID]bool
	step     time.Duration
	off      time.Duration
	refusals []ops.Refusals
}

func (c *members) Workers(jobs.Tenant) []ops.Worker    { return c.workers }
func (m *members) Refusals(jobs.Tenant) []ops.Refusals { return m.refusals }
func (*members) Shares() []ops.Share                   { return nil }
func (c *members) Nodes() []ops.Node                   { return nil }
func (c *members) Attempt(_ jobs.Tenant, run jobs.ID) (ops.Attempt, bool) {
	return ops.Attempt{Stuck: c.stuck[run]}, c.stuck[run]
}
func (c *members) Leader() ops.Leader                                            { return ops.Leader{Node: "n1", Step: c.step, Off: c.off} }
func (c *members) Pulse(jobs.Tenant) []ops.Minute                                { return nil }
func (c *members) Watch(ctx context.Context, _ jobs.Tenant, _ func(bus.Changes)) { <-ctx.Done() }

func serving(app string, keys ...jobs.Key) ops.Worker {
	w := ops.Worker{WorkerInfo: bus.WorkerInfo{App: app, Name: app + "-1", Keys: map[jobs.Key]int{}}}
	for _, key := range keys {
		w.Keys[key] = 1
	}
	return w
}

// run makes a run of a job and lets it end.
func (d *fixture) run(key jobs.Key, outcome kernel.Outcome) jobs.ID {
	d.t.Helper()
	d.now = d.now.Add(time.Second)
	id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: key}).ID
	d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
	if outcome != 0 {
		d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: outcome, Error: "no"})
	}
	return id
}

func TestAttention(t *testing.T) {
	all := []jobs.Key{"app.nightly", "app.often", "app.work"}
	for _, c := range []struct {
		name string
		do   func(*fixture, *members)
		want string // the kinds and how many
		says string
	}{
		{"nothing to look at", func(*fixture, *members) {}, "[]", ""},
		{"no worker at all", func(_ *fixture, c *members) { c.workers = nil }, "[no_worker:3]", "No worker is online to run the 3 jobs"},
		{"its clock is not the others'", func(_ *fixture, c *members) { c.off = -2 * time.Second }, "[clock:1]", "is 2s off the clocks"},
		{"its clock is nearly the others'", func(_ *fixture, c *members) { c.off = 400 * time.Millisecond }, "[]", ""},
		{"its clock was set", func(_ *fixture, c *members) { c.step = -time.Hour }, "[clock:1]", "The clock of n1 was set back by 1h0m0s"},
		{"a limit refuses", func(d *fixture, c *members) {
			c.refusals = []ops.Refusals{{Bound: kernel.BoundMemory, N: 3, First: d.now.Add(-time.Minute), Last: d.now, Why: "too little memory."}}
		}, "[limit:3]", "at the limit memory: too little memory.\n"},
		{"none of the app", func(d *fixture, c *members) {
			c.workers = []ops.Worker{serving("other", all...)}
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
			d.now = d.now.Add(time.Minute)
		}, "[no_worker:1]", "1 run of app.work is ready, and no worker of the app app is online"},
		{"none with the job", func(d *fixture, c *members) {
			c.workers = []ops.Worker{serving("app", "app.nightly")}
			for range 2 {
				d.now = d.now.Add(time.Second)
				d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
			}
			d.now = d.now.Add(time.Minute)
		}, "[no_worker:2]", "2 runs of app.work are ready, and no worker of the app app that is online has this job"},
		{"one is ready since a moment", func(d *fixture, c *members) {
			c.workers = []ops.Worker{serving("other")}
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
		}, "[]", ""},
		{"stuck", func(d *fixture, c *members) {
			id := d.run("app.work", 0)
			d.apply(kernel.Cancel{ID: id})
			c.stuck[id] = true
		}, "[stuck:1]", "A run of app.work was asked to stop"},
		{"going on for days", func(d *fixture, _ *members) {
			id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work", Timeout: new(time.Duration(0))}).ID
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			d.now = d.now.Add(50 * time.Hour)
		}, "[endless:1]", "A run of app.work has been processing for 2 days, and its job has no timeout"},
		{"failing", func(d *fixture, _ *members) {
			d.run("app.work", kernel.OutcomeFatal)
			d.run("app.work", kernel.OutcomeSuccess)
			for range 4 {
				d.run("app.work", kernel.OutcomeFatal)
			}
		}, "[failing:4]", "The last 4 runs of app.work failed for good"},
		{"it has failed, and is well again", func(d *fixture, _ *members) {
			for range 4 {
				d.run("app.work", kernel.OutcomeFatal)
			}
			d.run("app.work", kernel.OutcomeSuccess)
		}, "[]", ""},
		{"it failed two days ago", func(d *fixture, _ *members) {
			for range 4 {
				d.run("app.work", kernel.OutcomeFatal)
			}
			d.now = d.now.Add(48 * time.Hour)
		}, "[]", ""},
		{"a run fails again and again", func(d *fixture, _ *members) {
			id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work", Retries: new(9)}).ID
			for i := range uint32(4) {
				d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: i + 1})
				d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: i + 1, Outcome: kernel.OutcomeError, Error: "no"})
				d.now = d.now.Add(time.Minute) // its retry is due
				d.apply(kernel.Release{ID: id})
			}
		}, "[failing:1]", "A run of app.work has failed 4 times"},
		{"it has paused itself", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{PauseAfter: new(2)}})
			d.run("app.work", kernel.OutcomeFatal)
			d.run("app.work", kernel.OutcomeFatal)
		}, "[gave_up:2]", "app.work has paused itself: 2 consecutive runs failed"},
		{"lost", func(d *fixture, _ *members) {
			id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
			for i := range uint32(kernel.MaxLosses + 1) {
				d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: i + 1})
				d.apply(kernel.Expire{ID: id, Attempt: i + 1, Cause: kernel.ByLoss})
			}
		}, "[lost:1]", "1 run of app.work ended because the worker was lost"},
		{"missed", func(d *fixture, _ *members) { d.miss("app.often", 3, kernel.MissedLate) }, "[missed:3]", "3 due times of app.often passed"},
		{"passed on purpose", func(d *fixture, _ *members) { d.miss("app.often", 3, kernel.MissedDebug) }, "[]", ""},
		{"missed long ago", func(d *fixture, _ *members) {
			d.miss("app.often", 3, kernel.MissedLate)
			d.now = d.now.Add(30 * time.Hour)
		}, "[]", ""},
		{"a schedule that cannot be read", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.nightly", Set: kernel.Settings{Schedule: new("never ever")}})
		}, "[trouble:1]", "The schedule of app.nightly is invalid"},
		{"paused and forgotten", func(d *fixture, _ *members) {
			if _, err := d.Pause(d.t.Context(), ann, kernel.Pause{Key: "app.nightly"}); err != nil {
				d.t.Fatal(err)
			}
			d.now = d.now.Add(50 * time.Hour)
		}, "[paused:1]", "app.nightly has been paused by ann for 2 days"},
		{"paused until then", func(d *fixture, _ *members) {
			d.apply(kernel.Pause{Key: "app.nightly", Until: d.now.Add(100 * time.Hour)})
			d.now = d.now.Add(50 * time.Hour)
		}, "[]", ""},
		{"an open alarm", func(d *fixture, _ *members) {
			d.alarm("failed")
			d.run("app.work", kernel.OutcomeFatal)
		}, "[alarm:1]", "1 alarm is open: Job app.work failed."},
		{"open alarms", func(d *fixture, _ *members) {
			d.alarm("failed")
			d.run("app.often", kernel.OutcomeFatal)
			d.run("app.work", kernel.OutcomeFatal)
		}, "[alarm:2]", "2 alarms are open, the newest: Job app.work failed."},
		{"ended alarms", func(d *fixture, _ *members) {
			d.alarm("failed")
			d.run("app.work", kernel.OutcomeFatal)
			d.sent(true, "ok")
			d.apply(kernel.EndAlarm{Rule: "failed", Job: "app.work", App: "app", N: 1, Why: "test"})
		}, "[]", ""},
		{"a target that fails", func(d *fixture, _ *members) {
			d.alarm("failed")
			d.run("app.work", kernel.OutcomeFatal)
			d.sent(false, "no such channel\nat all")
			d.sent(false, "no such robot\nat all")
		}, "[alarm:1 alarm:1]", "Target chat does not accept messages about 1 alarm: no such robot."},
		{"a target that does not accept the message about the end", func(d *fixture, _ *members) {
			d.alarm("failed")
			d.run("app.work", kernel.OutcomeFatal)
			d.apply(kernel.EndAlarm{Rule: "failed", Job: "app.work", App: "app", N: 1, Why: "test"})
			d.sent(false, "")
		}, "[alarm:1]", "Target chat does not accept messages about 1 alarm: status 503."},
		{"a target that failed, and accepts again", func(d *fixture, _ *members) {
			d.alarm("failed")
			d.run("app.work", kernel.OutcomeFatal)
			d.sent(false, "no")
			d.sent(true, "ok")
		}, "[alarm:1]", "1 alarm is open"},
		{"the most urgent first", func(d *fixture, c *members) {
			d.miss("app.often", 1, kernel.MissedLate)
			for range 3 {
				d.run("app.work", kernel.OutcomeFatal)
			}
			c.workers = nil
		}, "[no_worker:3 failing:3 missed:1]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, members := newFixture(t), &members{workers: []ops.Worker{serving("app", all...)}, stuck: map[jobs.ID]bool{}}
			d.Ops = ops.New(ops.Config{Store: d.store, Logs: d.logs, Live: members, Now: func() time.Time { return d.now }})
			c.do(d, members)
			o, err := d.Overview(t.Context(), ann)
			if err != nil {
				t.Fatal(err)
			}
			kinds, texts := []string{}, ""
			for _, a := range o.Attention {
				kinds = append(kinds, fmt.Sprintf("%s:%d", a.Kind, a.N))
				texts += a.Text + "\n"
			}
			if fmt.Sprint(kinds) != c.want || !strings.Contains(texts, c.says) {
				t.Errorf("%v\n%swant %s, %q", kinds, texts, c.want, c.says)
			}
		})
	}
}

// alarm creates a rule on runs that fail, with a target.
func (d *fixture) alarm(rule string) {
	d.t.Helper()
	d.apply(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "chat", Kind: "slack", URL: "https://hooks.example/1"}})
	d.apply(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: rule, Kind: kernel.AlarmFailed, InRow: 1, Targets: []string{"chat"}}})
}

// sent records the answer to a message about the first alarm.
func (d *fixture) sent(ok bool, answer string) {
	d.t.Helper()
	d.now = d.now.Add(time.Second)
	k := kernel.SentAlarm{Rule: "failed", Job: "app.work", App: "app", N: 1, Reported: 1, Sent: kernel.AlarmSent{Target: "chat", At: d.now, What: kernel.AlarmRaised, Status: 503, Text: answer, OK: ok}}
	if !ok {
		k.Next = d.now.Add(time.Minute)
	}
	d.apply(k)
}

// miss lets due times of a job pass.
func (d *fixture) miss(key jobs.Key, n int, why kernel.Reason) {
	d.t.Helper()
	if s, err := d.store.State(d.t.Context()); err != nil || s.Term == 0 {
		d.apply(kernel.Lead{Term: 1, Node: "n1"})
	}
	def, err := d.store.Definition(d.t.Context(), jobs.DefaultTenant, key)
	if err != nil {
		d.t.Fatal(err)
	}
	global, err := d.store.Global(d.t.Context(), jobs.DefaultTenant)
	if err != nil {
		d.t.Fatal(err)
	}
	first, last := d.now.Add(time.Minute), d.now.Add(time.Duration(n)*time.Minute)
	d.now = last.Add(time.Second)
	d.apply(kernel.Fire{Key: key, Job: def.UID, Revision: def.Revision, Global: global.Revision, Term: 1, From: def.Cursor, To: last,
		Missed: []kernel.Missed{{From: first, To: last, Count: uint64(n), Reason: why}}})
}
