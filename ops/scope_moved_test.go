package ops_test

import (
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A scope has a run if it has the run's job as that is now: a job that has moved takes its runs along. Of a deleted job
// the key and the app count, for its runs and for its alarms.
func TestScopeFollowsTheJob(t *testing.T) {
	d := newFixture(t)
	in := func(s kernel.Scope) ops.Who {
		return ops.Who{Actor: "person:bob", Role: ops.Operator, Scope: &s}
	}
	old, moved, tagged, keyed := in(kernel.Scope{Apps: []string{"app"}}), in(kernel.Scope{Apps: []string{"shop"}}), in(kernel.Scope{Tags: []string{"hot"}}), in(kernel.Scope{Keys: []string{"app.work"}})
	d.apply(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "chat", Kind: "slack", URL: "https://hooks.example/1"}})
	d.apply(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "slow", Kind: kernel.AlarmSlow, Factor: 2, Targets: []string{"chat"}}})
	check := func(when string, act func(ops.Who) error, allowed ...ops.Who) {
		t.Helper()
		for _, who := range []ops.Who{old, moved, tagged, keyed} {
			may := false
			for _, a := range allowed {
				may = may || a.Scope == who.Scope
			}
			if err := act(who); may == errors.Is(err, jobs.Forbidden) || may && err != nil {
				t.Errorf("%s, scope %s: %v", when, who.Scope, err)
			}
		}
	}
	cancels := func(who ops.Who) error {
		run, err := d.Trigger(t.Context(), root, kernel.Create{Key: "app.work"})
		if err == nil {
			_, err = d.Cancel(t.Context(), who, run.Run.ID)
		}
		if err != nil {
			return err
		}
		_, err = d.Again(t.Context(), who, run.Run.ID, nil, "")
		return err
	}
	endsAlarm := func(who ops.Who) error {
		d.apply(kernel.RaiseAlarm{Rule: "slow", Job: "app.work", App: "shop"})
		list, err := d.Alarms(t.Context(), root, "open", 0, 1)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return d.EndAlarm(t.Context(), who, list[0].N)
	}
	check("at first", cancels, old, keyed)
	if _, err := d.Edit(t.Context(), root, kernel.Edit{Key: "app.work", Set: kernel.Settings{Tags: &[]string{"hot"}}}); err != nil {
		t.Fatal(err)
	}
	check("with a tag", cancels, old, tagged, keyed)
	d.apply(kernel.Register{App: "shop", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "app.work", Kind: kernel.Triggered, Version: 1}})
	check("in another app", cancels, moved, tagged, keyed)
	check("in another app, an alarm", endsAlarm, moved, tagged, keyed)
	left := map[*kernel.Scope]jobs.ID{}
	for _, who := range []ops.Who{old, moved, tagged, keyed} {
		run, err := d.Trigger(t.Context(), root, kernel.Create{Key: "app.work"})
		if err != nil {
			t.Fatal(err)
		}
		left[who.Scope] = run.Run.ID
	}
	d.apply(kernel.RaiseAlarm{Rule: "slow", Job: "app.work", App: "shop"})
	if _, err := d.Delete(t.Context(), root, kernel.Delete{Key: "app.work"}, ops.FinishLiveRuns); err != nil {
		t.Fatal(err)
	}
	check("deleted", func(who ops.Who) error { _, err := d.Cancel(t.Context(), who, left[who.Scope]); return err }, moved, keyed)
	check("deleted, an alarm", endsAlarm, moved, keyed)
}
