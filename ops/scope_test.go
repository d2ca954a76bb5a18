package ops_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// outbox has no requests.
type outbox struct{ metastore.Outbox }

// signed is a store to which nothing is sent as if by the scheduler itself.
type signed struct {
	metastore.Store
	t *testing.T
}

func (s signed) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	for i := range batch {
		if batch[i].Sender == nil {
			s.t.Errorf("%s of %s names no sender", batch[i].Command.Verb(), batch[i].Actor)
		}
	}
	return s.Store.Apply(ctx, batch)
}

// reads are the exported functions that change nothing, or nothing of jobs: those of sessions are about their caller,
// and reports of HTTP jobs are signed.
var reads = strings.Fields(`Admit Batch Batches Denied FailedSignIn RecordDenials JobGraph RunGraph Occasions Alarm Alarms AlarmSettings Allowed Apps AuditHead Audits Authenticate Backup Calendar Calendars Cleaning Children ChildrenLogs ClusterStatus Compare Counts Day
	Execution Export ExportLedger Explain ExplainAt ExplainRun Family FilterRuns Forecast HTTPWorkers HeldBack History InUse Job Jobs LedgerKey Live Log Missed Now Overview Owners Preview
	PreviewBackfill Ready RefusedRequests Report RolledBack Run Runs Seal SeedChildren Session Sessions Settings SignIn SignInAs SignOut SignedIn Soon
	Stats Switch Tail Tokens Tree Versions Waited Watch Workers Zone`)

// Whatever acts on a job or a run refuses an operator whose scope has not the job, and names the scope; what acts on
// more refuses every scope, and what an operator may not do is refused as such.
func TestScopeIsEverywhere(t *testing.T) {
	d := newFixture(t)
	now := func() time.Time { return d.now }
	o := ops.New(ops.Config{Store: signed{d.store, t}, Now: now, Outbox: outbox{}})
	run := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
	done := d.apply(kernel.Create{ID: jobs.NewID(d.now.Add(time.Second)), Key: "app.work"})
	d.apply(kernel.Cancel{ID: done.ID})
	paused := kernel.Pause{Key: "app.often"}
	d.apply(paused)
	for _, k := range []kernel.Command{kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "chat", Kind: "slack", URL: "https://hooks.example/1"}},
		kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "slow", Kind: kernel.AlarmSlow, Factor: 2, Targets: []string{"chat"}}}, kernel.RaiseAlarm{Rule: "slow", Job: "app.work", App: "app"}} {
		d.apply(k)
	}
	d.now = d.now.Add(10 * time.Minute)
	d.apply(kernel.Fire{Key: "app.often", Job: d.definition("app.often").UID, From: d.now.Add(-10 * time.Minute), To: d.now, Revision: d.definition("app.often").Revision,
		Missed: []kernel.Missed{{From: d.now.Add(-8 * time.Minute), To: d.now.Add(-time.Minute), Count: 8, Reason: kernel.MissedPaused}}})
	batch := jobs.NewID(d.now)
	d.apply(kernel.OpenBatch{ID: batch, Then: "app.work"})
	who := ops.Who{Actor: "person:bob", Role: ops.Operator, Scope: &kernel.Scope{Keys: []string{"billing.*"}}}
	ctx := t.Context()
	many := func(a ops.Action) error {
		m, err := o.ManyJobs(ctx, who, ops.ManyJobs{Action: a, Filter: ops.JobQuery{Match: "app.w*"}, Live: ops.CancelLiveRuns, Origin: kernel.FromPerson})
		if err == nil && m.Done == 0 && m.Refused == m.Matched && m.Matched > 0 {
			err = m.Why[0].Err
		}
		return err
	}
	acts := map[string]func() error{
		"Trigger":    func() error { _, err := o.Trigger(ctx, who, kernel.Create{Key: "app.work"}); return err },
		"TriggerAll": func() error { _, err := o.TriggerAll(ctx, who, []kernel.Create{{Key: "app.work"}}); return err },
		"Again":      func() error { _, err := o.Again(ctx, who, done.ID, nil, ""); return err },
		"Cancel":     func() error { _, err := o.Cancel(ctx, who, run.ID); return err },
		"Pause":      func() error { _, err := o.Pause(ctx, who, kernel.Pause{Key: "app.work"}); return err },
		"Resume":     func() error { _, _, err := o.Resume(ctx, who, "app.often", ops.Resumption{}); return err },
		"Backfill": func() error {
			_, err := o.Backfill(ctx, who, ops.Backfill{Key: "app.often", From: d.now.Add(-time.Hour), To: d.now})
			return err
		},
		"ManyJobs": func() error {
			return errors.Join(many(ops.PauseJobs), many(ops.ResumeJobs), many(ops.TriggerJobs), many(ops.DeleteJobs))
		},
		"ManyRuns": func() error {
			m, err := o.ManyRuns(ctx, who, ops.ManyRuns{Action: ops.CancelRuns, Filter: ops.RunFilter{RunQuery: metastore.RunQuery{Job: "app.work"}}})
			if err == nil && m.Done == 0 && m.Refused > 0 {
				err = m.Why[0].Err
			}
			return err
		},
		"Edit": func() error {
			_, err := o.Edit(ctx, who, kernel.Edit{Key: "app.work", Set: kernel.Settings{Retries: new(3)}})
			return err
		},
		"Rollback": func() error { _, err := o.Rollback(ctx, who, "app.often", 1, 0); return err },
		"Delete": func() error {
			_, err := o.Delete(ctx, who, kernel.Delete{Key: "app.work"}, ops.CancelLiveRuns)
			return err
		},
		"DeleteFamily": func() error {
			_, err := o.DeleteFamily(ctx, who, kernel.Delete{Key: "app.work"}, ops.CancelLiveRuns)
			return err
		},
		"Create": func() error {
			_, err := o.Create(ctx, who, ops.Wanted{Key: "billing.new", Kind: kernel.Triggered, App: "app"})
			return err
		},
		"Declare": func() error {
			_, err := o.Declare(ctx, who, []ops.Wanted{{Key: "app.work", Set: kernel.Settings{Retries: new(3)}}}, ops.How{})
			return err
		},
		"DeclareAll": func() error {
			_, _, err := o.DeclareAll(ctx, who, nil, []ops.Wanted{{Key: "app.work", Set: kernel.Settings{Retries: new(3)}}}, ops.How{})
			return err
		},
		"Configure": func() error {
			_, err := o.Configure(ctx, who, kernel.Configure{RecurringDebug: new(true)}, ops.HeldRelease)
			return err
		},
		"Purge":        func() error { _, err := o.Purge(ctx, who, ops.Purge{}); return err },
		"PurgeApp":     func() error { _, err := o.PurgeApp(ctx, who, "app", 0, true, ""); return err },
		"Drain":        func() error { _, err := o.Drain(ctx, who, "w1", true); return err },
		"DrainApp":     func() error { _, err := o.DrainApp(ctx, who, "app", true); return err },
		"SetCalendar":  func() error { _, err := o.SetCalendar(ctx, who, kernel.SetCalendar{Name: "c"}); return err },
		"DropCalendar": func() error { return o.DropCalendar(ctx, who, kernel.DropCalendar{Name: "c"}) },
		"Grant":        func() error { _, _, err := o.Grant(ctx, who, ops.NewToken{Name: "x", Role: "viewer"}); return err },
		"Adopt": func() error {
			_, err := o.Adopt(ctx, who, ops.NewToken{Name: "x", Role: "viewer"}, ops.TokenText("default"))
			return err
		},
		"Revoke":          func() error { return o.Revoke(ctx, who, "aaaa1111") },
		"RetryRefused":    func() error { _, err := o.RetryRefused(ctx, who, []int64{1}); return err },
		"DiscardRefused":  func() error { _, err := o.DiscardRefused(ctx, who, []int64{1}); return err },
		"Invite":          func() error { _, err := o.Invite(ctx, who); return err },
		"RemoveNode":      func() error { return o.RemoveNode(ctx, who, "n") },
		"Transfer":        func() error { return o.Transfer(ctx, who, "n") },
		"Tenants":         func() error { _, _, err := o.Tenants(ctx, who, ops.TenantQuery{}); return err },
		"Tenant":          func() error { _, err := o.Tenant(ctx, who, "x"); return err },
		"Inside":          func() error { _, err := o.Inside(ctx, who, "x"); return err },
		"CreateTenant":    func() error { _, _, err := o.CreateTenant(ctx, who, ops.NewTenant{Name: "x"}); return err },
		"ChangeTenant":    func() error { _, err := o.ChangeTenant(ctx, who, "x", new("X"), nil); return err },
		"SuspendTenant":   func() error { _, err := o.SuspendTenant(ctx, who, "x", true); return err },
		"DeleteTenant":    func() error { _, err := o.DeleteTenant(ctx, who, "x"); return err },
		"FinalizeUpgrade": func() error { _, err := o.FinalizeUpgrade(ctx, who); return err },
		"EndAlarm":        func() error { return o.EndAlarm(ctx, who, 1) },
		"SetAlarmTarget": func() error {
			return o.SetAlarmTarget(ctx, who, kernel.AlarmTarget{Name: "x", Kind: "slack", URL: "https://hooks.example/2"}, true)
		},
		"DropAlarmTarget": func() error { return o.DropAlarmTarget(ctx, who, "chat") },
		"TestAlarmTarget": func() error { _, err := o.TestAlarmTarget(ctx, who, "chat"); return err },
		"SetAlarmRule": func() error {
			return o.SetAlarmRule(ctx, who, kernel.AlarmRule{Name: "x", Kind: kernel.AlarmMissed, Targets: []string{"chat"}})
		},
		"CheckIn": func() error { _, err := o.CheckIn(ctx, who, kernel.CheckIn{Key: "app.work"}); return err },
		"OpenBatch": func() error {
			_, err := o.OpenBatch(ctx, who, kernel.OpenBatch{Then: "app.work"})
			return err
		},
		"CloseBatch":    func() error { _, err := o.CloseBatch(ctx, who, batch); return err },
		"DropAlarmRule": func() error { return o.DropAlarmRule(ctx, who, "slow") },
	}
	before := d.digest()
	for name, act := range acts {
		err := act()
		if !errors.Is(err, jobs.Forbidden) || !strings.Contains(err.Error(), "your scope (jobs billing.*)") && !strings.Contains(err.Error(), "person:bob may not send") {
			t.Errorf("%s outside the scope: %v", name, err)
		}
	}
	if after := d.digest(); after != before {
		t.Errorf("refused functions changed rows:\n%s\n%s", before, after)
	}
	for m := range reflect.TypeFor[*ops.Ops]().Methods() {
		if acts[m.Name] == nil && !slices.Contains(reads, m.Name) && m.Name != "EndSession" {
			t.Errorf("%s is neither in the table of what acts, nor among the reads", m.Name)
		}
	}
	// A client may start runs, and nothing else.
	who = ops.Who{Actor: "person:ci", Role: ops.ClientRole}
	delete(acts, "Trigger")
	delete(acts, "TriggerAll")
	delete(acts, "Backfill") // nothing to fill
	for name, act := range acts {
		if err := act(); !errors.Is(err, jobs.Forbidden) || !strings.Contains(err.Error(), "may only start runs") {
			t.Errorf("%s by a client: %v", name, err)
		}
	}
}

func (d *fixture) definition(key jobs.Key) *kernel.Definition {
	d.t.Helper()
	row, err := d.store.Definition(d.t.Context(), jobs.DefaultTenant, key)
	if err != nil {
		d.t.Fatal(err)
	}
	return row
}

// digest is all jobs and runs, and the number of audits.
func (d *fixture) digest() string {
	d.t.Helper()
	var b strings.Builder
	list, err := d.store.Definitions(d.t.Context(), metastore.DefinitionQuery{Tenant: jobs.DefaultTenant})
	runs, err2 := d.store.Runs(d.t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: metastore.MaxPage})
	g, err3 := d.store.Global(d.t.Context(), jobs.DefaultTenant)
	if err := errors.Join(err, err2, err3); err != nil {
		d.t.Fatal(err)
	}
	for _, job := range list {
		b.WriteString(string(job.Key) + " " + job.Edited.String() + "\n")
	}
	for _, run := range runs.Runs {
		b.WriteString(run.ID.String() + " " + run.State.String() + "\n")
	}
	b.WriteString(strings.Repeat("audit ", int(g.Audits)))
	return b.String()
}

// A scope has jobs by key, by app or by tag, of a token and of a session alike.
func TestScopeHasJobs(t *testing.T) {
	d := newFixture(t)
	for _, c := range []struct {
		scope kernel.Scope
		may   string // of app.nightly, tagged Money, and app.work
	}{
		{kernel.Scope{}, "nightly work"}, {kernel.Scope{Keys: []string{"app.n*"}}, "nightly"}, {kernel.Scope{Keys: []string{"app.work", "x"}}, "work"},
		{kernel.Scope{Tags: []string{"Money"}}, "nightly"}, {kernel.Scope{Tags: []string{"money"}}, ""}, {kernel.Scope{Apps: []string{"app"}}, "nightly work"},
		{kernel.Scope{Apps: []string{"other"}, Keys: []string{"app.work"}}, "work"}, {kernel.Scope{Keys: []string{"app"}}, ""},
	} {
		_, text, err := d.Grant(context.Background(), root, ops.NewToken{Name: "t" + c.scope.String() + c.may, Role: "operator", Scope: c.scope})
		if err != nil {
			t.Fatal(err)
		}
		who, err := d.Authenticate(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		cookie, _, err := d.SignInAs(t.Context(), ops.Identity{Person: annLee.Person, Rights: []kernel.Rights{{Tenant: "default", Role: "operator", Scope: c.scope}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, as := range []ops.Who{who, d.in(cookie, false)} {
			var may []string
			for _, name := range []string{"nightly", "work"} {
				switch made, err := d.Trigger(t.Context(), as, kernel.Create{Key: jobs.Key("app." + name)}); {
				case err == nil:
					may = append(may, name)
					if _, err := d.Cancel(t.Context(), as, made.Run.ID); err != nil {
						t.Errorf("%s: %v", &c.scope, err)
					}
				case !errors.Is(err, jobs.Forbidden):
					t.Fatal(err)
				}
			}
			if got := strings.Join(may, " "); got != c.may {
				t.Errorf("%s: %q, want %q", &c.scope, got, c.may)
			}
		}
	}
	// A bulk with one job outside the scope starts nothing.
	before := d.count()
	as := ops.Who{Actor: "person:bob", Role: ops.Operator, Scope: &kernel.Scope{Keys: []string{"app.work"}}}
	if _, err := d.TriggerAll(t.Context(), as, []kernel.Create{{Key: "app.work"}, {Key: "app.nightly"}}); !errors.Is(err, jobs.Forbidden) || d.count() != before {
		t.Errorf("%v, %d new runs", err, d.count()-before)
	}
}
