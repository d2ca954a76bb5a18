package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// phone is the target of alarms in tests: it takes all messages but those that answer refuses.
type phone struct {
	mu     sync.Mutex
	took   []string // titles
	ids    map[string]int
	answer func(alarms.Target, alarms.Message) alarms.Answer // nil = all is delivered
}

func (p *phone) send(_ context.Context, t alarms.Target, m alarms.Message) alarms.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := alarms.Answer{Delivered: true, Status: 200, Text: "ok"}
	if p.answer != nil {
		a = p.answer(t, m)
	}
	if p.ids == nil {
		p.ids = map[string]int{}
	}
	p.ids[m.ID]++
	if a.Delivered {
		title := m.Title
		if m.Resolved {
			title = "Resolved: " + title
		}
		p.took = append(p.took, title)
	}
	return a
}

// heard returns the titles that were taken since the last call.
func (p *phone) heard() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.took
	p.took = nil
	return took
}

// called has the fixture send alarms of some rules to a phone.
func called(h *fixture, rules ...kernel.AlarmRule) *phone {
	h.t.Helper()
	p := new(phone)
	h.stop()
	h.alarm = p.send
	h.start()
	h.must(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "phone", Kind: "slack", URL: "https://hooks.example/secret"}})
	for _, r := range rules {
		r.Targets = []string{"phone"}
		h.must(kernel.SetAlarmRule{Rule: r})
	}
	return p
}

func (h *fixture) alarms(which metastore.AlarmState) []*kernel.Alarm {
	h.t.Helper()
	synctest.Wait()
	list, err := h.full.Alarms(h.ctx, metastore.AlarmQuery{Tenant: "*", Which: which})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func (p *phone) want(t *testing.T, when string, titles ...string) {
	t.Helper()
	if got := p.heard(); !slices.Equal(got, titles) {
		t.Errorf("%s: people heard %q, want %q", when, got, titles)
	}
}

// flaky is a job that fails while bad is set.
func flaky(key jobs.Key, bad *atomic.Bool) jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error {
		if bad.Load() {
			return jobs.NoRetry(errors.New("no paper"))
		}
		return nil
	}), jobs.Options{Key: key})
}

// People hear of a failure at once, of more of them together, and of the end.
func TestAlarmOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		p := called(h, kernel.AlarmRule{Name: "failed", Kind: kernel.AlarmFailed, InRow: 2, Every: 10 * time.Minute})
		var bad atomic.Bool
		h.worker(worker.Config{}, flaky("print", &bad))
		run := func() {
			h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "print"})
			time.Sleep(2 * time.Second)
		}
		bad.Store(true)
		run()
		p.want(t, "after one failure")
		run()
		p.want(t, "after two in a row", "Job print failed 2 times")
		run()
		run()
		p.want(t, "within ten minutes")
		time.Sleep(10 * time.Minute)
		p.want(t, "ten minutes later", "Job print failed 4 times")
		run()
		bad.Store(false)
		run()
		time.Sleep(5 * time.Minute)
		p.want(t, "soon after a success")
		time.Sleep(10 * time.Minute)
		p.want(t, "once it stays well", "Resolved: Job print failed 5 times")
		if open := h.alarms(metastore.UnsettledAlarm); len(open) > 0 {
			t.Errorf("%d alarms are left", len(open))
		}
		bad.Store(true)
		run()
		bad.Store(false)
		run()
		p.want(t, "failures that are not in a row")
	})
}

// A target that is away is tried again with longer and longer pauses, what it answers is kept, and others do not wait
// for it. What it never takes is given up after a day.
func TestAlarmTargetIsAway(t *testing.T) {
	tests.WithoutRace(t)
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		p := called(h, kernel.AlarmRule{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1})
		h.must(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "deaf", Kind: "teams", URL: "https://away.example/secret"}})
		h.must(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1, Targets: []string{"deaf", "phone"}}})
		var tries atomic.Int64
		p.answer = func(to alarms.Target, _ alarms.Message) alarms.Answer {
			if to.Kind == alarms.Teams {
				tries.Add(1)
				return alarms.Answer{Text: "no route to host"}
			}
			return alarms.Answer{Delivered: true}
		}
		var bad atomic.Bool
		bad.Store(true)
		stop := h.worker(worker.Config{}, flaky("print", &bad))
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "print"})
		time.Sleep(5 * time.Second)
		p.want(t, "while another target is away", "Job print failed")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := tries.Load(); n < 4 || n > 8 {
			t.Errorf("%d tries in ten minutes", n)
		}
		a := h.alarms(metastore.OpenAlarm)[0]
		at := slices.IndexFunc(a.Sends, func(s kernel.AlarmSend) bool { return s.Target == "deaf" })
		if s := a.Sends[at]; s.Reported != 0 || s.Tries == 0 || !s.Next.After(time.Now()) || a.Sent[len(a.Sent)-1].Text != "no route to host" {
			t.Errorf("the record is %+v, %+v", s, a.Sent)
		}
		stop()
		time.Sleep(26 * time.Hour)
		before := tries.Load()
		if time.Sleep(2 * time.Hour); tries.Load() != before || before > 40 {
			t.Errorf("%d tries in a day, and %d in two hours after it", before, tries.Load()-before)
		}
	})
}

// A new leader goes on where the last one stopped: nothing is lost that failed while there was none, and a message whose
// record was lost has the same ID again.
func TestAlarmsSurviveALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		p := called(h, kernel.AlarmRule{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1}, kernel.AlarmRule{Name: "missed", Kind: kernel.AlarmMissed})
		h.worker(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick", Cron: "0 * * * * *", Misfire: jobs.MisfireSkip}))
		hang := make(chan struct{})
		p.answer = func(alarms.Target, alarms.Message) alarms.Answer { <-hang; return alarms.Answer{Delivered: true} }
		var bad atomic.Bool
		bad.Store(true)
		h.worker(worker.Config{Name: "w2"}, flaky("print", &bad))
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "print"})
		time.Sleep(5 * time.Second)
		go func() { time.Sleep(time.Second); close(hang) }() // delivered, but the leader is gone by then
		h.stop()
		time.Sleep(10 * time.Minute)
		p.answer = nil
		h.start()
		time.Sleep(5 * time.Second)
		heard := p.heard()
		if slices.Sort(heard); len(heard) != 3 || heard[0] != "Job print failed" || heard[1] != heard[0] || !strings.Contains(heard[2], "missed") {
			t.Errorf("people heard %q", heard)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ids["default/1/raised/1"] != 2 {
			t.Errorf("the messages were %v", p.ids)
		}
	})
}

// In quiet hours nothing is sent but what is urgent; afterwards one message says what is still so.
func TestAlarmsInQuietHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t) // it is midnight UTC
		defer h.close()
		h.calm()
		quiet := kernel.Quiet{From: "22:00", To: "07:00"}
		p := called(h, kernel.AlarmRule{Name: "calm", Kind: kernel.AlarmFailed, InRow: 1, Quiet: quiet},
			kernel.AlarmRule{Name: "urgent", Kind: kernel.AlarmFailed, InRow: 1, Quiet: quiet, Urgent: true, Scope: kernel.Scope{Keys: []string{"pay"}}})
		var bad atomic.Bool
		bad.Store(true)
		h.worker(worker.Config{}, flaky("print", &bad), flaky("pay", &bad))
		for range 3 {
			h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "print"})
			time.Sleep(time.Minute)
		}
		p.want(t, "in quiet hours")
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "pay"})
		time.Sleep(5 * time.Second)
		p.want(t, "in quiet hours, of an urgent rule", "Job pay failed")
		time.Sleep(7 * time.Hour)
		heard := p.heard()
		if slices.Sort(heard); !slices.Equal(heard, []string{"Job pay failed", "Job print failed 3 times"}) {
			t.Errorf("in the morning people heard %q", heard)
		}
	})
}

// Conditions of time: an app without a worker, a job that has not succeeded in time, a slow run; each ends by itself.
func TestAlarmsOfConditions(t *testing.T) {
	tests.WithoutRace(t)
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		p := called(h, kernel.AlarmRule{Name: "alone", Kind: kernel.AlarmNoWorker, After: time.Minute},
			kernel.AlarmRule{Name: "wait", Kind: kernel.AlarmBacklog, After: 5 * time.Minute},
			kernel.AlarmRule{Name: "slow", Kind: kernel.AlarmSlow, Factor: 3, After: time.Minute},
			kernel.AlarmRule{Name: "by-six", Kind: kernel.AlarmExpected, At: "06:00", Scope: kernel.Scope{Keys: []string{"close"}}})
		var takes atomic.Int64
		job := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
			}
			return nil
		}), jobs.Options{Key: "close", Timeout: jobs.None})
		stop := h.worker(worker.Config{}, job)
		run := func() { h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "close"}) }
		takes.Store(int64(30 * time.Second))
		for range 6 {
			run()
			time.Sleep(time.Minute)
		}
		p.want(t, "while all is well")
		takes.Store(int64(4 * time.Minute))
		run()
		time.Sleep(80 * time.Second)
		p.want(t, "soon")
		time.Sleep(30 * time.Second)
		p.want(t, "after three times the average", "A run of job close is slow")
		time.Sleep(4 * time.Minute)
		p.want(t, "once it has ended", "Resolved: A run of job close is slow")
		stop()
		takes.Store(int64(time.Second))
		run()
		time.Sleep(75 * time.Second)
		p.want(t, "without a worker", "App default has no worker")
		time.Sleep(5 * time.Minute)
		p.want(t, "later", "Runs of app default wait")
		stop = h.worker(worker.Config{Name: "w2"}, job)
		time.Sleep(5 * time.Minute)
		heard := p.heard()
		if slices.Sort(heard); !slices.Equal(heard, []string{"Resolved: App default has no worker", "Resolved: Runs of app default wait"}) {
			t.Errorf("with a worker again people heard %q", heard)
		}
		// It is 00:20 of the first day: today's time counts from the next day on, as the job is new.
		time.Sleep(24 * time.Hour)
		p.want(t, "on the first day")
		time.Sleep(24 * time.Hour)
		p.want(t, "on the second day", "Job close has not succeeded in time")
		h.must(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "by-six", Kind: kernel.AlarmExpected, At: "06:00", Urgent: true, Scope: kernel.Scope{Keys: []string{"close"}}, Targets: []string{"phone"}}})
		time.Sleep(5 * time.Minute)
		p.want(t, "after an edit of the rule")
		run()
		time.Sleep(5 * time.Minute)
		p.want(t, "once it has succeeded", "Resolved: Job close has not succeeded in time")
		stop()
	})
}

// A new leader does not miss workers that have not reported to it yet.
func TestNoAlarmOfWorkersAfterAChangeOfLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		p := called(h, kernel.AlarmRule{Name: "alone", Kind: kernel.AlarmNoWorker, After: time.Minute})
		stop := h.worker(worker.Config{Slots: 1}, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
			<-ctx.Done()
			return ctx.Err()
		}), jobs.Options{Key: "long", Timeout: jobs.None}))
		defer stop()
		for range 2 {
			h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "long"})
		}
		time.Sleep(3 * time.Minute)
		h.stop()
		h.start()
		time.Sleep(3 * time.Minute)
		p.want(t, "while the worker is busy")
	})
}

// A job that must check in raises an alarm when it does not, also if it never has.
func TestAlarmOfAJobThatDoesNotCheckIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		for _, key := range []jobs.Key{"nas.backup", "nas.never", "other"} {
			h.must(kernel.Register{App: "nas", Worker: kernel.NoWorker, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered}})
		}
		p := called(h, kernel.AlarmRule{Name: "silent", Kind: kernel.AlarmExpected, After: 20 * time.Minute, Scope: kernel.Scope{Keys: []string{"nas.*"}}})
		in := func(failed bool) {
			h.must(kernel.CheckIn{ID: jobs.NewID(time.Now()), Key: "nas.backup", Failed: failed, Took: time.Minute})
		}
		in(false)
		time.Sleep(15 * time.Minute)
		in(false)
		p.want(t, "while it checks in")
		time.Sleep(7 * time.Minute)
		p.want(t, "without any", "Job nas.never has not succeeded in time")
		in(true)
		time.Sleep(10 * time.Minute)
		p.want(t, "before the time is over")
		time.Sleep(6 * time.Minute)
		p.want(t, "when the last ones failed", "Job nas.backup has not succeeded in time")
		in(false)
		time.Sleep(3 * time.Minute)
		p.want(t, "once it has succeeded", "Resolved: Job nas.backup has not succeeded in time")
	})
}

// A due time that a faulty leader passed over, with neither a run nor a reason, raises an alarm, which stays.
func TestAlarmOfAGap(t *testing.T) {
	tests.WithoutRace(t)
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		for _, key := range []jobs.Key{"tick", "tock"} {
			h.must(kernel.Register{App: "app", Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Recurring,
				Code: kernel.Settings{Schedule: new("0 0/10 * * * *"), MaxConcurrency: new(0)}}})
		}
		p := called(h, kernel.AlarmRule{Name: "gap", Kind: kernel.AlarmGap})
		time.Sleep(time.Hour + 90*time.Second)
		h.must(kernel.Pause{Key: "tick", Reason: "stock is counted"})
		time.Sleep(time.Hour)
		h.must(kernel.Resume{Key: "tick"})
		time.Sleep(2 * time.Hour)
		p.want(t, "while each due time has a run or a reason")
		h.stop()
		time.Sleep(20 * time.Minute)
		d, err := h.full.Definition(h.ctx, "default", "tick")
		if err != nil {
			t.Fatal(err)
		}
		g, err := h.full.Global(h.ctx, "default")
		if err != nil {
			t.Fatal(err)
		}
		s, err := h.full.State(h.ctx)
		if err != nil {
			t.Fatal(err)
		}
		h.store = h.full
		h.must(kernel.Fire{Key: "tick", Job: d.UID, Revision: d.Revision, Global: g.Revision, Term: s.Term, From: d.Cursor, To: d.Cursor.Add(10 * time.Minute)})
		h.start()
		time.Sleep(time.Minute)
		p.want(t, "after a change of leader", "The ledger of job tick has a gap")
		list := h.alarms(metastore.UnsettledAlarm)
		if want := "job tick: due time " + d.Cursor.Add(10*time.Minute).UTC().Format(time.RFC3339) + " has no record."; len(list) != 1 || list[0].Text != want {
			t.Errorf("open alarms %+v, want one with the text %q", list, want)
		}
		time.Sleep(24 * time.Hour)
		if list = h.alarms(metastore.UnsettledAlarm); len(list) != 1 {
			t.Errorf("%d alarms are open a day later, want the same one", len(list))
		}
	})
}

// A rule's alarms end with it, and no app has more open ones than it leaves to others: failures of one app do not hide
// those of another.
func TestAlarmsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		p := called(h, kernel.AlarmRule{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1})
		var bad atomic.Bool
		bad.Store(true)
		var list []jobs.Job
		for i := range kernel.OpenAlarms.Most + 20 {
			list = append(list, flaky(jobs.Key(fmt.Sprintf("job%03d", i)), &bad))
		}
		h.worker(worker.Config{Slots: 300}, list...)
		h.worker(worker.Config{App: "modest"}, flaky("modest", &bad))
		fail := func(key jobs.Key) { h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: key}) }
		for i := range list {
			fail(jobs.Key(fmt.Sprintf("job%03d", i)))
		}
		time.Sleep(5 * time.Minute)
		half := kernel.OpenAlarms.Most / 2
		if open := h.alarms(metastore.OpenAlarm); len(open) != half {
			t.Errorf("%d alarms of one app are open, want %d", len(open), half)
		}
		fail("modest")
		time.Sleep(5 * time.Minute)
		if open := h.alarms(metastore.OpenAlarm); len(open) != half+1 || open[0].Job != "modest" {
			t.Errorf("%d alarms are open with that of another app, want %d", len(open), half+1)
		}
		if n := len(p.heard()); n != half+1 {
			t.Errorf("people heard of %d", n)
		}
		h.must(kernel.DropAlarmRule{Name: "failed"})
		time.Sleep(5 * time.Minute)
		if left := h.alarms(metastore.UnsettledAlarm); len(left) > 0 {
			t.Errorf("%d alarms of a deleted rule are left, such as %+v", len(left), left[0])
		}
		h.ahead.Store(int64(31 * 24 * time.Hour))
		time.Sleep(2*metastore.ClockPatience + time.Minute)
		if left := h.alarms(metastore.AnyAlarm); len(left) > 0 {
			t.Errorf("%d alarms are kept for a month", len(left))
		}
	})
}
