package metastore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// senderWorld has two apps, shop and billing, each with the same things: a job app.job with the tag app, a job
// app.tick, a run that a worker has, a batch, an alarm.
type senderWorld struct {
	t      *testing.T
	engine *memstore.Engine
	store  *metastore.Local
	n      int
}

var senderNow = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func newSenderWorld(t *testing.T) *senderWorld {
	w := &senderWorld{t: t, engine: memstore.New(memstore.Config{})}
	w.store = &metastore.Local{Engine: w.engine, Now: func() time.Time { return senderNow }}
	chat := kernel.AlarmTarget{Name: "chat", Kind: "slack", URL: "https://hooks.example/1"}
	w.must(kernel.SetTenant{Name: "acme", Create: true})
	w.must(kernel.SetAlarmTarget{Target: chat})
	w.must(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "slow", Kind: kernel.AlarmSlow, Factor: 2, Targets: []string{"chat"}}})
	w.must(kernel.Grant{Token: token("rootroot", "root", kernel.RoleAdmin)})
	w.must(kernel.Grant{Token: token("evetoken", "eve", kernel.RoleViewer)})
	w.must(kernel.SignIn{Session: session("e", "evetoken")})
	w.must(kernel.SignIn{Session: session("b", "rootroot")})
	lee := session("a", "")
	lee.Person = kernel.Person{Subject: "https://id.example lee"}
	lee.Rights = []kernel.Rights{{Tenant: "default", Role: kernel.RoleViewer}, {Tenant: "acme", Role: kernel.RoleViewer}}
	w.must(kernel.SignIn{Session: lee})
	for _, app := range []string{"shop", "billing"} {
		w.must(registers(app, jobs.Key(app+".job"), kernel.Triggered))
		w.must(registers(app, jobs.Key(app+".paused"), kernel.Triggered))
		w.must(kernel.Pause{Key: jobs.Key(app + ".paused")})
		w.must(registers(app, jobs.Key(app+".tick"), kernel.Recurring))
		w.must(registers(app, kernel.NotifyKey(app), kernel.Triggered))
		w.must(kernel.Create{ID: runID(app, "fresh"), Key: jobs.Key(app + ".job")})
		for _, name := range []string{"busy", "returned"} {
			w.must(kernel.Create{ID: runID(app, name), Key: jobs.Key(app + ".job")})
			w.must(kernel.Start{ID: runID(app, name), Worker: app + "-1", Attempt: 1})
		}
		w.must(kernel.Expect{ID: runID(app, "busy"), Worker: app + "-1", Attempt: 1, Key: feedbackKey})
		w.must(kernel.Finish{ID: runID(app, "returned"), Worker: app + "-1", Attempt: 1, Outcome: kernel.OutcomeTimeout, Running: true})
		w.must(kernel.OpenBatch{ID: runID(app, "batch"), Then: jobs.Key(app + ".job")})
		w.must(kernel.RaiseAlarm{Rule: "slow", Job: jobs.Key(app + ".job"), App: app})
	}
	return w
}

var feedbackKey = []byte(strings.Repeat("k", kernel.FeedbackKey))

func registers(app string, key jobs.Key, kind kernel.Kind) kernel.Register {
	return kernel.Register{App: app, Worker: app + "-1", Start: true, Job: kernel.Declaration{Key: key, Kind: kind, Code: kernel.Settings{Tags: &[]string{app}}}}
}

func token(id, name, role string) kernel.Token {
	return kernel.Token{ID: id, Name: name, Role: role, Hash: make([]byte, 32)}
}

func session(id, token string) kernel.Session {
	return kernel.Session{ID: strings.Repeat(id, 64), Token: token, Until: senderNow.Add(time.Hour)}
}

func runID(app, name string) jobs.ID {
	id := kernel.DerivedID(app, name)
	id[6] = id[6]&0x0f | 0x40 // random, as programs may make them
	return id
}

func (w *senderWorld) must(k kernel.Command) {
	w.t.Helper()
	if err := w.send(nil, "default", k); err != nil {
		w.t.Fatalf("%s: %v", k.Verb(), err)
	}
}

func (w *senderWorld) send(as *kernel.Sender, tenant jobs.Tenant, k kernel.Command) error {
	w.n++
	actor := "person:eve"
	if as != nil && (as.As == kernel.AsOutbox || as.As == kernel.AsProgram) {
		actor = "client:eve"
	}
	return w.store.Apply(w.t.Context(), []kernel.Envelope{{ID: kernel.DerivedID(fmt.Sprint(w.n)), Tenant: tenant, Actor: actor, Sender: as, Command: k}})[0].Err
}

// senderRow says of a command who may send it.
type senderRow struct {
	may    string // the kinds of senders, beside the scheduler itself
	within string // of these, who may be limited to the jobs of an app, or of a scope
	// made returns the command, about what an app has, for a kind of sender; nil: only the scheduler sends it.
	made   func(app string, as kernel.SentAs) kernel.Command
	abroad jobs.Tenant // an admin of this tenant may send it in the default tenant
}

const people = "viewer operator admin"

// senderRows has a row for each command: the test fails for one without.
var senderRows = map[kernel.Verb]senderRow{
	kernel.VerbCreate: {may: "worker program outbox client operator admin", within: "worker client operator", made: func(app string, as kernel.SentAs) kernel.Command {
		origin := map[kernel.SentAs]kernel.Origin{kernel.AsClient: kernel.FromAPI, kernel.AsOperator: kernel.FromPerson, kernel.AsAdmin: kernel.FromPerson}[as]
		return kernel.Create{ID: runID(app, "new"), Key: jobs.Key(app + ".job"), Origin: origin}
	}},
	kernel.VerbRegister: {may: "worker admin", within: "worker", made: func(app string, as kernel.SentAs) kernel.Command {
		k := registers(app, jobs.Key(app+".new"), kernel.Triggered)
		if as == kernel.AsAdmin {
			k.Worker = kernel.NoWorker
		}
		return k
	}},
	kernel.VerbCancel:  {may: "program operator admin", within: "operator", made: of(func(app string) kernel.Command { return kernel.Cancel{ID: runID(app, "fresh")} })},
	kernel.VerbRelease: {may: "operator admin", within: "operator", made: of(func(app string) kernel.Command { return kernel.Release{ID: runID(app, "fresh"), Force: true} })},
	kernel.VerbOpenBatch: {may: "worker program operator admin", within: "worker operator", made: of(func(app string) kernel.Command {
		return kernel.OpenBatch{ID: runID(app, "b2"), Then: jobs.Key(app + ".job")}
	})},
	kernel.VerbCloseBatch: {may: "worker program operator admin", within: "worker operator", made: of(func(app string) kernel.Command { return kernel.CloseBatch{ID: runID(app, "batch")} })},
	kernel.VerbFinish: {may: "worker", within: "worker", made: of(func(app string) kernel.Command {
		return kernel.Finish{ID: runID(app, "busy"), Worker: app + "-1", Attempt: 1, Outcome: kernel.OutcomeSuccess}
	})},
	kernel.VerbReturned: {may: "worker", within: "worker", made: of(func(app string) kernel.Command {
		return kernel.Returned{ID: runID(app, "returned"), Worker: app + "-1", Attempt: 1}
	})},
	kernel.VerbCheckpoint: {may: "worker", within: "worker", made: of(func(app string) kernel.Command {
		return kernel.Checkpoint{ID: runID(app, "busy"), Worker: app + "-1", Attempt: 1, Data: []byte("1")}
	})},
	kernel.VerbExpect: {may: "worker", within: "worker", made: of(func(app string) kernel.Command {
		return kernel.Expect{ID: runID(app, "busy"), Worker: app + "-1", Attempt: 1, Key: []byte(strings.Repeat("n", kernel.FeedbackKey))}
	})},
	kernel.VerbNotify: {may: "worker", within: "worker", made: of(func(app string) kernel.Command {
		return kernel.Notify{Run: runID(app, "busy"), App: app, Worker: app + "-1", Attempt: 1, N: 1, Body: []byte(`{}`)}
	})},
	kernel.VerbReport: {may: "callback", made: of(func(app string) kernel.Command {
		id := runID(app, "busy")
		f := kernel.Feedback{Key: feedbackKey}
		return kernel.Report{ID: id, Attempt: 1, Nonce: 1, Signature: f.Sign(id, 1, 1), Report: []byte(`{}`)}
	})},
	kernel.VerbPause:  {may: "operator admin", within: "operator", made: of(func(app string) kernel.Command { return kernel.Pause{Key: jobs.Key(app + ".job"), Reason: "r"} })},
	kernel.VerbResume: {may: "operator admin", within: "operator", made: of(func(app string) kernel.Command { return kernel.Resume{Key: jobs.Key(app + ".paused")} })},
	kernel.VerbCheckIn: {may: "operator admin", within: "operator", made: of(func(app string) kernel.Command {
		return kernel.CheckIn{ID: runID(app, "over"), Key: jobs.Key(app + ".job")}
	})},
	kernel.VerbEndAlarm: {may: "operator admin", within: "operator", made: of(func(app string) kernel.Command {
		return kernel.EndAlarm{Rule: "slow", Job: jobs.Key(app + ".job"), App: app, N: map[string]uint64{"shop": 1, "billing": 2}[app], Why: "w"}
	})},
	kernel.VerbBackfill: {may: "operator admin", within: "operator", made: of(func(app string) kernel.Command {
		key := jobs.Key(app + ".tick")
		uid := kernel.DerivedID("backfill", app) // of another job: the rules are asked first
		return kernel.Backfill{ID: runID(app, "fill"), Key: key, Job: uid, Parallel: 1, Due: []kernel.BackfillDue{{At: senderNow.Add(-time.Hour)}}}
	})},
	kernel.VerbDrain:  {may: "operator admin", made: one(kernel.Drain{Worker: "shop-1", On: true})},
	kernel.VerbSignIn: {may: people, within: "operator", made: one(kernel.SignIn{Session: session("f", "evetoken")})},
	kernel.VerbTouch:  {may: people, within: "operator", made: one(kernel.Touch{ID: strings.Repeat("e", 64)})},
	kernel.VerbSignOut: {may: people, within: "operator", made: func(_ string, as kernel.SentAs) kernel.Command {
		id := "e" // its own
		if as == kernel.AsAdmin {
			id = "a"
		}
		return kernel.SignOut{ID: strings.Repeat(id, 64)}
	}, abroad: "acme"},
	kernel.VerbLedgerKey: {may: people, within: "operator", made: one(kernel.LedgerKey{Seed: make([]byte, 32)})},

	kernel.VerbEdit: {may: "admin", made: of(func(app string) kernel.Command {
		return kernel.Edit{Key: jobs.Key(app + ".job"), Set: kernel.Settings{Retries: new(3)}}
	})},
	kernel.VerbDelete:          {may: "admin", made: of(func(app string) kernel.Command { return kernel.Delete{Key: jobs.Key(app + ".job")} })},
	kernel.VerbConfigure:       {may: "admin", made: one(kernel.Configure{MaxJobs: new(7)})},
	kernel.VerbPurge:           {may: "admin", made: one(kernel.Purge{Before: senderNow})},
	kernel.VerbGrant:           {may: "admin", made: one(kernel.Grant{Token: token("newtoken", "new", kernel.RoleAdmin)})},
	kernel.VerbRevoke:          {may: "admin", made: one(kernel.Revoke{ID: "evetoken"})},
	kernel.VerbSetCalendar:     {may: "admin", made: one(kernel.SetCalendar{Name: "holidays"})},
	kernel.VerbDropCalendar:    {may: "admin", made: one(kernel.DropCalendar{Name: "holidays"})},
	kernel.VerbSetAlarmTarget:  {may: "admin", made: one(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "pager", Kind: "slack", URL: "https://hooks.example/2"}})},
	kernel.VerbDropAlarmTarget: {may: "admin", made: one(kernel.DropAlarmTarget{Name: "pager"})},
	kernel.VerbSetAlarmRule:    {may: "admin", made: one(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "missed", Kind: kernel.AlarmMissed, Targets: []string{"chat"}}})},
	kernel.VerbDropAlarmRule:   {may: "admin", made: one(kernel.DropAlarmRule{Name: "missed"})},
	kernel.VerbSetTenant:       {may: "admin", made: one(kernel.SetTenant{Name: "acme", Title: new("Acme")})},
	kernel.VerbSuspendTenant:   {may: "admin", made: one(kernel.SuspendTenant{Name: "acme", On: true})},
	kernel.VerbDeleteTenant:    {may: "admin", made: one(kernel.DeleteTenant{Name: "acme"})},
	kernel.VerbFinalizeUpgrade: {may: "admin", made: one(kernel.FinalizeUpgrade{To: kernel.ApplyVersion})},

	kernel.VerbFire: {made: one(kernel.Fire{})}, kernel.VerbStart: {made: one(kernel.Start{})}, kernel.VerbUnstart: {made: one(kernel.Unstart{})},
	kernel.VerbExpire: {made: one(kernel.Expire{})}, kernel.VerbExpand: {made: one(kernel.Expand{})}, kernel.VerbMark: {made: one(kernel.Mark{})},
	kernel.VerbLead: {made: one(kernel.Lead{})}, kernel.VerbRefresh: {made: one(kernel.Refresh{})}, kernel.VerbForget: {made: one(kernel.Forget{})},
	kernel.VerbHand: {made: one(kernel.Hand{})}, kernel.VerbInvite: {made: one(kernel.Invite{})}, kernel.VerbJoin: {made: one(kernel.Join{})},
	kernel.VerbMembers: {made: one(kernel.Members{})}, kernel.VerbDropTenant: {made: one(kernel.DropTenant{})}, kernel.VerbRaiseAlarm: {made: one(kernel.RaiseAlarm{})},
	kernel.VerbSentAlarm: {made: one(kernel.SentAlarm{})}, kernel.VerbPurgeAlarms: {made: one(kernel.PurgeAlarms{})}, kernel.VerbPurgeAudit: {made: one(kernel.PurgeAudit{})},
	kernel.VerbExported: {made: one(kernel.Exported{})}, kernel.VerbDenied: {made: one(kernel.Denied{})},
}

func of(made func(app string) kernel.Command) func(string, kernel.SentAs) kernel.Command {
	return func(app string, _ kernel.SentAs) kernel.Command { return made(app) }
}

func one(k kernel.Command) func(string, kernel.SentAs) kernel.Command {
	return func(string, kernel.SentAs) kernel.Command { return k }
}

// limits are senders of a kind that are limited to what the app shop has; of a kind that has no limits, none.
func limits(as kernel.SentAs) []*kernel.Sender {
	switch as {
	case kernel.AsWorker:
		return []*kernel.Sender{{As: as, App: "shop"}}
	case kernel.AsClient, kernel.AsOperator:
		return []*kernel.Sender{{As: as, Scope: kernel.Scope{Keys: []string{"shop.*"}}}, {As: as, Scope: kernel.Scope{Apps: []string{"shop"}}},
			{As: as, Scope: kernel.Scope{Tags: []string{"shop"}}}}
	}
	return nil
}

// All commands by all senders, whatever their door: whole, limited to an app or a scope that has the target or has not,
// and of another tenant. A refused one changes nothing.
func TestEveryCommandBySenders(t *testing.T) {
	names := func(list string, as kernel.SentAs) bool { return slices.Contains(strings.Fields(list), as.String()) }
	for verb := kernel.Verb(1); verb <= kernel.NewestVerb; verb++ {
		row, ok := senderRows[verb]
		if !ok || row.made == nil || row.made("shop", 0).Verb() != verb {
			t.Errorf("command %s has no row in senderRows: who may send it?", verb)
			continue
		}
		t.Run(verb.String(), func(t *testing.T) {
			w := newSenderWorld(t)
			before := w.engine.Hash()
			refused := func(what string, as *kernel.Sender, app string) {
				t.Helper()
				if err := w.send(as, "default", row.made(app, as.As)); !errors.Is(err, jobs.Forbidden) {
					t.Errorf("%s of %s by %s: %v", verb, app, what, err)
				}
				if w.engine.Hash() != before {
					t.Fatalf("%s of %s, refused to %s, changed rows", verb, app, what)
				}
			}
			var allowed []*kernel.Sender
			for as := kernel.AsUnknown; as <= kernel.AsCallback+1; as++ {
				whole := &kernel.Sender{As: as}
				if !names(row.may, as) {
					refused(as.String(), whole, "shop")
				} else {
					allowed = append(allowed, whole)
					w.away(row, as, refused)
				}
				for _, limited := range limits(as) {
					what := fmt.Sprintf("%s limited to %s%s", as, limited.App, &limited.Scope)
					if names(row.within, as) {
						allowed = append(allowed, limited)
					} else {
						refused(what, limited, "shop")
					}
					if strings.Contains(fmt.Sprint(row.made("billing", as)), "billing") {
						refused(what, limited, "billing")
					}
				}
			}
			for _, as := range append(allowed, nil) {
				kind := kernel.AsUnknown
				if as != nil {
					kind = as.As
				}
				if err := newSenderWorld(t).send(as, "default", row.made("shop", kind)); errors.Is(err, jobs.Forbidden) || err != nil && verb != kernel.VerbBackfill && verb != kernel.VerbDeleteTenant && row.may != "" {
					t.Errorf("%s by %+v: %v", verb, as, err)
				}
			}
		})
	}
}

// away is the senders of another tenant.
func (w *senderWorld) away(row senderRow, as kernel.SentAs, refused func(string, *kernel.Sender, string)) {
	for _, sender := range []*kernel.Sender{{As: as, Home: "acme"}, {As: as, Home: "nowhere"}} {
		if as == kernel.AsAdmin && row.abroad == sender.Home {
			if err := newSenderWorld(w.t).send(sender, "default", row.made("shop", as)); err != nil {
				w.t.Errorf("by an admin of tenant %s: %v", sender.Home, err)
			}
			continue
		}
		refused(fmt.Sprintf("%s of tenant %s", as, sender.Home), sender, "shop")
	}
}

// An administrator of the server gives another tenant tokens, and does nothing else there; admins of other
// tenants do not even that.
func TestSendersInOtherTenants(t *testing.T) {
	for verb, row := range senderRows {
		w := newSenderWorld(t)
		k := row.made("shop", kernel.AsAdmin)
		_, grants := k.(kernel.Grant)
		for home, may := range map[jobs.Tenant]bool{"default": grants, "other": false} {
			err := w.send(&kernel.Sender{As: kernel.AsAdmin, Home: home}, "acme", k)
			if verb == kernel.VerbSignOut && err == nil { // there is no such session
				continue
			}
			if may && err != nil || !may && !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%s in tenant acme by an admin of tenant %s: %v", verb, home, err)
			}
		}
	}
}

// A person ends and keeps alive its own sessions, and an admin ends those of others.
func TestSessionsOfOthers(t *testing.T) {
	for _, k := range []kernel.Command{kernel.SignOut{ID: strings.Repeat("b", 64)}, kernel.Touch{ID: strings.Repeat("b", 64)}} {
		for as, may := range map[kernel.SentAs]bool{kernel.AsViewer: false, kernel.AsOperator: false, kernel.AsAdmin: true} {
			err := newSenderWorld(t).send(&kernel.Sender{As: as}, "default", k)
			if may && err != nil || !may && !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%s by %s: %v", k.Verb(), as, err)
			}
		}
	}
}

// A repeated request whose run has left the live rows is answered only if the sender may act on that run.
func TestFinishedRunOfOthers(t *testing.T) {
	w := newSenderWorld(t)
	finish := kernel.Finish{ID: runID("billing", "busy"), Worker: "billing-1", Attempt: 1, Outcome: kernel.OutcomeSuccess}
	w.must(finish)
	for _, app := range []string{"billing", "shop"} {
		for _, as := range []*kernel.Sender{{As: kernel.AsWorker, App: app}, {As: kernel.AsClient, Scope: kernel.Scope{Tags: []string{app}}}} {
			k := kernel.Create{ID: finish.ID, Key: "billing.job"}
			if as.As == kernel.AsClient {
				k.Origin = kernel.FromAPI
			}
			if err := w.send(as, "default", k); (err == nil) != (app == "billing") || err != nil && !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%s of %s: %v", as.As, app, err)
			}
		}
	}
}

// A worker cannot register as if it were a person: its jobs would have requests with secrets, or commands, of others.
func TestWorkerWithThePersonsName(t *testing.T) {
	w := newSenderWorld(t)
	k := registers("shop", "shop.new", kernel.Triggered)
	k.Worker, k.Set.Exec = kernel.NoWorker, new(json.RawMessage(`{"command":["id"]}`))
	if err := w.send(&kernel.Sender{As: kernel.AsWorker, App: "shop"}, "default", k); !errors.Is(err, jobs.Forbidden) {
		t.Error(err)
	}
}
