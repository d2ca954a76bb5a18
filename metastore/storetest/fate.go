package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// fate makes up commands. It reads the rows, so that most of its commands make sense; the rest is late, early, forged
// or repeated.
type fate struct {
	*rand.Rand
	made int
	// whole includes commands about access, deletion and history.
	whole bool
	said  []kernel.Envelope // some that were sent before, to be sent again
}

func newFate(seed uint64) *fate { return &fate{Rand: rand.New(rand.NewPCG(seed, 20261121))} }

var (
	tenants   = []jobs.Tenant{"default", "other"}
	workers   = []string{"w1", "w2", "w3"}
	triggers  = []jobs.Key{"free", "single", "pair", "shared", "shared2", "skipping"}
	recurring = []jobs.Key{"report", "backup"}
)

func pick[T any](f *fate, list []T) T { return list[f.IntN(len(list))] }

// once in n.
func (f *fate) rarely(n int) bool { return f.IntN(n) == 0 }

// pause is how long nothing happens.
func (f *fate) pause() time.Duration {
	switch f.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
		return 0
	case 7, 8:
		return f.span(2 * time.Minute)
	case 9:
		if f.rarely(5) {
			if f.whole && f.rarely(3) {
				return kernel.KeepHistory
			}
			return 25 * time.Hour
		}
	}
	return f.span(3 * time.Second)
}

// span is up to d, in whole milliseconds.
func (f *fate) span(d time.Duration) time.Duration {
	return time.Duration(f.Int64N(d.Milliseconds())+1) * time.Millisecond
}

// scene is the rows that fate reads.
type scene struct {
	now   time.Time
	runs  []*kernel.Run
	defs  []*kernel.Definition
	gates []*kernel.Gate
	keys  []*kernel.UniqueKey
	store kernel.StoreRow
	old   []kernel.Row           // rows that may become history
	debug map[jobs.Tenant]uint64 // revision of the tenant's Global
}

func look(all rows, now time.Time) scene {
	s := scene{now: now, debug: map[jobs.Tenant]uint64{}}
	for _, row := range all {
		if _, ok := doneAt(row); ok {
			s.old = append(s.old, row)
		}
		switch row := row.(type) {
		case *kernel.Run:
			s.runs = append(s.runs, row)
		case *kernel.Definition:
			s.defs = append(s.defs, row)
		case *kernel.Gate:
			s.gates = append(s.gates, row)
		case *kernel.UniqueKey:
			s.keys = append(s.keys, row)
		case *kernel.StoreRow:
			s.store = *row
		case *kernel.Global:
			s.debug[row.Tenant] = row.Revision
		}
	}
	// Rows come in any order, and a life must be the same each time.
	slices.SortFunc(s.runs, func(a, b *kernel.Run) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	slices.SortFunc(s.defs, func(a, b *kernel.Definition) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key))
	})
	slices.SortFunc(s.gates, func(a, b *kernel.Gate) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.keys, func(a, b *kernel.UniqueKey) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.old, func(a, b kernel.Row) int {
		return strings.Compare(fmt.Sprint(a.Ref()), fmt.Sprint(b.Ref()))
	})
	return s
}

func (f *fate) batch(all rows, now time.Time) []kernel.Envelope {
	s := look(all, now)
	batch := make([]kernel.Envelope, 1+f.IntN(8))
	unserved := slices.DeleteFunc(slices.Clone(s.gates), func(g *kernel.Gate) bool { return !g.Free(now) || waitersAt(all, g.Ref()) == 0 })
	for i := range batch {
		if i < len(unserved) && f.rarely(2) { // as the leader's sweep does
			g := unserved[i]
			f.made++
			batch[i] = kernel.Envelope{ID: kernel.DerivedID("fate", fmt.Sprint(f.made)), Tenant: g.Tenant, Actor: "leader", Command: kernel.Hand{Gate: g.Name}}
			continue
		}
		if len(f.said) > 0 && f.rarely(25) {
			batch[i] = pick(f, f.said)
			continue
		}
		f.made++
		e := kernel.Envelope{ID: kernel.DerivedID("fate", fmt.Sprint(f.made)), Tenant: "default", Actor: pick(f, []string{"person:ann", "worker:w1", "leader"})}
		if f.rarely(12) {
			e.Tenant = "other"
		}
		e.Command = f.command(&e, &s)
		batch[i] = e
		if f.said = append(f.said, e); len(f.said) > 40 {
			f.said = f.said[1:]
		}
	}
	return batch
}

func (f *fate) command(e *kernel.Envelope, s *scene) kernel.Command {
	if len(s.defs) < 5 {
		return f.register()
	}
	n := f.IntN(100)
	if n < 22 {
		return f.create(s)
	}
	if n < 80 && len(s.runs) > 0 {
		run := pick(f, s.runs)
		if run.Settled() && !f.rarely(4) {
			run = pick(f, s.runs)
		}
		e.Tenant = run.Tenant
		return f.toRun(run)
	}
	if n < 88 {
		d := pick(f, s.defs)
		e.Tenant = d.Tenant
		if d.Kind == kernel.Recurring && f.rarely(5) {
			return f.backfill(d, s)
		}
		return f.fire(d, s)
	}
	return f.rare(e, s)
}

// toRun is a command of a worker, the leader or a person about a run.
func (f *fate) toRun(run *kernel.Run) kernel.Command {
	worker, attempt := run.Worker, run.Attempt
	if worker == "" || f.rarely(12) {
		worker = pick(f, workers)
	}
	if f.rarely(12) || attempt == 0 {
		attempt = uint32(1 + f.IntN(3))
	}
	n := f.IntN(100)
	switch {
	case run.State == jobs.Scheduled && n < 60:
		return kernel.Release{ID: run.ID, Force: f.rarely(6)}
	case run.Ready() && n < 75:
		next := run.Next()
		if f.rarely(12) {
			next += uint32(f.IntN(3)) - 1
		}
		k := kernel.Start{ID: run.ID, Worker: pick(f, workers), Attempt: max(1, next)}
		if f.rarely(4) {
			skills, _ := run.Skills()
			if f.rarely(6) {
				skills.Work = "other"
			}
			k.Skills = &skills
		}
		return k
	case run.State == jobs.Failed && n < 75:
		if run.Lingering {
			return kernel.Returned{ID: run.ID, Worker: worker, Attempt: attempt}
		}
		return kernel.Release{ID: run.ID, Force: f.rarely(4)}
	case run.Lingering && n < 75:
		return kernel.Returned{ID: run.ID, Worker: worker, Attempt: attempt}
	case n < 60:
		k := kernel.Finish{ID: run.ID, Worker: worker, Attempt: attempt, Outcome: kernel.Outcome(1 + f.IntN(6)), Running: f.rarely(4)}
		if f.rarely(2) {
			k.Outcome = kernel.OutcomeSuccess
		}
		if k.Outcome == kernel.OutcomeSuccess {
			k.Result, k.Running = []byte(`{"ok":true}`), false
		} else {
			k.Error, k.Code = "it went wrong", pick(f, []string{"", "a", "b"})
		}
		if k.Outcome == kernel.OutcomeSnooze || f.rarely(6) {
			k.Delay = f.span(5 * time.Second)
		}
		return k
	case n < 64:
		return kernel.Unstart{ID: run.ID, Attempt: attempt}
	case n < 68:
		return kernel.Returned{ID: run.ID, Worker: worker, Attempt: attempt}
	case n < 78:
		k := kernel.Expire{ID: run.ID, Attempt: attempt, Cause: pick(f, []kernel.Cause{kernel.ByLoss, kernel.ByTimeout})}
		k.Unbegun = k.Cause == kernel.ByLoss && f.rarely(2)
		return k
	case n < 88:
		return kernel.Cancel{ID: run.ID}
	case n < 90:
		return kernel.Expect{ID: run.ID, Worker: worker, Attempt: attempt, Key: feedbackKey("k"), Lasts: f.rarely(2)}
	case n < 92:
		k := kernel.Report{ID: run.ID, Attempt: attempt, Report: []byte(fmt.Sprint(n)), Final: f.rarely(3)}
		k.Signature = (&kernel.Feedback{Key: feedbackKey(pick(f, []string{"k", "k", "wrong"}))}).Sign(k.ID, k.Attempt, k.Nonce)
		return k
	case n < 93:
		return kernel.Notify{Run: run.ID, App: run.App, Worker: worker, Attempt: attempt, N: uint32(f.IntN(2)), Body: []byte(`{"n":1}`)}
	case n < 94:
		return kernel.Checkpoint{ID: run.ID, Worker: worker, Attempt: attempt, Data: []byte(fmt.Sprint(n))}
	}
	return kernel.Release{ID: run.ID, Force: f.rarely(2)}
}

func (f *fate) create(s *scene) kernel.Command {
	f.made++
	k := kernel.Create{ID: runID(fmt.Sprint(f.made)), Key: pick(f, triggers), Args: pick(f, [][]byte{[]byte(`{"n":1}`), []byte(`{"c":"x"}`), []byte(`{"c":"y"}`), []byte(`{"c":"z"}`), nil})}
	if f.rarely(20) && len(s.runs) > 0 {
		k.ID = pick(f, s.runs).ID
	}
	if f.rarely(20) {
		k.Key = pick(f, []jobs.Key{"none", "report", "a b"})
	}
	if f.rarely(3) {
		k.Delay = f.span(10 * time.Second)
	} else if f.rarely(6) {
		k.Due = s.now.Add(f.span(time.Minute) - 20*time.Second)
	}
	if f.rarely(5) {
		k.Unique = pick(f, []string{"u1", "u2"})
		if f.rarely(3) {
			k.UniqueFor = f.span(time.Minute)
		}
	}
	if f.rarely(8) {
		k.Idempotency = pick(f, []string{"i1", "i2"})
	}
	if f.rarely(6) {
		k.Origin = pick(f, []kernel.Origin{kernel.FromPerson, kernel.FromRetry, kernel.FromParent})
		k.Parent = runID("0")
	}
	if f.rarely(5) {
		k.Priority = new(f.IntN(5) - 2)
	}
	if f.rarely(5) {
		k.Retries = new(f.IntN(3))
	}
	if f.rarely(6) {
		k.StartWithin = new(f.span(5 * time.Second))
	}
	return k
}

// fire decides a stretch of a recurring job, mostly as a leader would.
func (f *fate) fire(d *kernel.Definition, s *scene) kernel.Command {
	k := kernel.Fire{Key: d.Key, Job: d.UID, Revision: d.Revision, Global: s.debug[d.Tenant], Term: s.store.Term, From: d.Cursor}
	at := k.From
	if !f.rarely(5) {
		at = d.Since() // after the rest of earlier schedules
	}
	if f.rarely(3) {
		m := kernel.Missed{From: at.Add(time.Second), To: at.Add(3 * time.Second), Count: 3, Reason: pick(f, []kernel.Reason{kernel.MissedLate, kernel.MissedPaused})}
		k.Missed, at = append(k.Missed, m), m.To
	}
	for range f.IntN(3) {
		at = at.Add(time.Second)
		k.Due = append(k.Due, at)
	}
	if f.rarely(3) {
		k.Late = f.IntN(len(k.Due) + 1)
	}
	if f.rarely(4) {
		m := kernel.Missed{From: at.Add(time.Second), To: at.Add(2 * time.Second), Count: 2, Reason: kernel.MissedPaused}
		k.Missed, at = append(k.Missed, m), m.To
	}
	k.To = at
	switch f.IntN(20) {
	case 0:
		k.Revision++
	case 1:
		k.Global++
	case 2:
		k.Term++
	case 3:
		k.From = k.From.Add(-time.Second)
	case 4:
		k.To = s.now.Add(time.Hour)
	}
	return k
}

func (f *fate) settings() kernel.Settings {
	var s kernel.Settings
	for range 1 + f.IntN(3) {
		switch f.IntN(16) {
		case 15:
			s.After, s.AfterSpan = new([]string{"free", "single:ended", "report", "backup:failed"}[f.IntN(4):]), new(f.span(time.Minute))
			if f.rarely(2) {
				*s.AfterSpan = 0
			}
		case 14:
			s.OnSuccess, s.OnFailure = new([]string{"single", "none", "tick"}[:f.IntN(4)]), new([]string{string(pick(f, triggers))})
		case 9:
			s.Overlap = new(pick(f, []jobs.Overlap{jobs.OverlapQueueOne, jobs.OverlapReplace}))
		case 10:
			s.Rate = new(jobs.Rate{Max: 1 + f.IntN(3), Per: f.span(4 * time.Second)})
		case 11:
			s.Limits = new([]jobs.Limit{{Name: "customer", By: "args.c", Max: 1 + f.IntN(2)}, {Name: "region", By: "args.c", Max: 2, Rate: jobs.Rate{Max: 2, Per: f.span(2 * time.Second)}}, {Name: "printer", Max: 2}}[:1+f.IntN(3)])
		case 12:
			s.RetryRules = new([]jobs.RetryRule{{Codes: []string{"a"}, Attempts: f.IntN(3), Delay: f.span(time.Second)}, {Codes: []string{"*"}, Attempts: 2}}[f.IntN(2):])
		case 13:
			s.PauseAfter, s.RetryBudget = new(f.IntN(3)), new(jobs.Rate{Max: f.IntN(3), Per: f.span(3 * time.Second)})
			if s.RetryBudget.Max == 0 {
				s.RetryBudget = new(jobs.Rate)
			}
		case 0:
			s.MaxConcurrency = new(f.IntN(4))
		case 1:
			s.Limits = new([]jobs.Limit{{Name: "printer", Max: 1 + f.IntN(2)}, {Name: "tape", Max: 1 + f.IntN(3)}}[f.IntN(2):])
		case 2:
			s.Overlap = new(pick(f, []jobs.Overlap{jobs.OverlapSkip, jobs.OverlapQueue, jobs.OverlapQueue}))
		case 3:
			s.Retries = new(f.IntN(4))
		case 4:
			s.RetryDelay = new(f.span(4 * time.Second))
		case 5:
			s.Timeout = new(f.span(20 * time.Second))
		case 6:
			s.StartWithin = new(f.span(20 * time.Second))
		case 7:
			s.Priority = new(f.IntN(7) - 3)
		case 8:
			s.Disabled = new(f.rarely(3))
		}
	}
	return s
}

func (f *fate) register() kernel.Command {
	k := kernel.Register{App: "app", Worker: pick(f, workers), Start: !f.rarely(4)}
	k.Job = kernel.Declaration{Key: pick(f, triggers), Kind: kernel.Triggered, Version: f.IntN(3), Code: f.settings()}
	switch k.Job.Key {
	case "single", "skipping":
		k.Job.Code.MaxConcurrency = new(1)
	case "pair":
		k.Job.Code.MaxConcurrency = new(2)
	case "shared", "shared2":
		k.Job.Code.MaxConcurrency, k.Job.Code.Limits = new(2), new([]jobs.Limit{{Name: "printer", Max: 2}, {Name: "tape", Max: 2}})
	}
	if k.Job.Key == "skipping" {
		k.Job.Code.Overlap = new(jobs.OverlapSkip)
	}
	if f.rarely(4) {
		k.Job.Key, k.Job.Kind = pick(f, recurring), kernel.Recurring
	}
	if f.rarely(20) {
		k.Job.Key, k.Job.Kind = kernel.NotifyKey(k.App), kernel.Triggered
	}
	if f.rarely(30) {
		k.App = "moved"
	}
	return k
}

// keeper makes commands about access, purging and retention.
func (f *fate) keeper(e *kernel.Envelope, d *kernel.Definition, s *scene) kernel.Command {
	id := fmt.Sprintf("token00%d", f.IntN(6))
	switch f.IntN(10) {
	case 0, 1:
		k := kernel.Delete{Key: d.Key}
		if f.rarely(3) {
			k.IfRevision = d.Revision
		}
		return k
	case 2, 3:
		k := kernel.Grant{Token: kernel.Token{ID: id, Name: pick(f, []string{"ann", "bob", "host"}), Role: pick(f, kernel.Roles()), Hash: secretOf(id)}}
		if f.rarely(3) {
			k.Token.Until = s.now.Add(f.span(time.Hour) - time.Minute)
		}
		return k
	case 4:
		return kernel.Revoke{ID: id}
	case 5:
		session := kernel.Session{ID: sessionID(fmt.Sprint(f.IntN(3))), Token: id, Until: s.now.Add(f.span(10 * time.Minute)), Idle: f.span(5 * time.Minute)}
		if f.rarely(2) {
			session.Token, session.Person, session.Rights = "", kernel.Person{Subject: id}, []kernel.Rights{{Tenant: e.Tenant, Role: kernel.RoleViewer}}
		}
		return kernel.SignIn{Session: session}
	case 6:
		if f.rarely(2) {
			return kernel.Touch{ID: sessionID(fmt.Sprint(f.IntN(3)))}
		}
		return kernel.SignOut{ID: sessionID(fmt.Sprint(f.IntN(3)))}
	case 7:
		return kernel.Configure{MaxJobs: new(f.IntN(10))}
	case 8:
		return f.host(s)
	}
	k := kernel.PurgeAudit{Before: s.now.Add(-kernel.KeepHistory).Add(f.span(2*time.Hour) - time.Hour)}
	for range 1 + f.IntN(20) {
		if len(s.old) > 0 {
			row := pick(f, s.old)
			e.Tenant = row.Ref().Tenant
			k.Refs = append(k.Refs, row.Ref())
		}
	}
	return k
}

// host makes commands about nodes.
func (f *fate) host(s *scene) kernel.Command {
	name, secret := fmt.Sprintf("INVITED%d", f.IntN(3)), kernel.SecretID(fmt.Sprint(f.IntN(2)))
	switch f.IntN(3) {
	case 0:
		return kernel.Invite{Name: name, Secret: secret, Until: s.now.Add(f.span(20*time.Minute) - time.Minute)}
	case 1:
		node := pick(f, []string{"n1", "n2"})
		return kernel.Join{Name: name, Secret: secret, Node: kernel.DerivedID(node), Called: node, Address: "10.0.0.1:7946"}
	}
	return kernel.Members{ID: kernel.DerivedID(fmt.Sprint(f.IntN(5))), Did: pick(f, kernel.MembersDid()), Node: "n1", Secrets: secrets(pick(f, []string{"", "old", "new"}))}
}

// rare makes the occasional commands of people, files and duties.
func (f *fate) rare(e *kernel.Envelope, s *scene) kernel.Command {
	d := pick(f, s.defs)
	e.Tenant = d.Tenant
	if f.whole && f.rarely(3) {
		return f.keeper(e, d, s)
	}
	switch f.IntN(12) {
	case 0, 1:
		return f.register()
	case 2, 3:
		k := kernel.Edit{Key: d.Key, Set: f.settings()}
		if f.rarely(3) {
			k.Set, k.Clear = kernel.Settings{}, []string{pick(f, kernel.Fields()), "maxConcurrency", "limits"}
		}
		if f.rarely(4) {
			k.IfRevision = d.Revision - uint64(f.IntN(2))
		}
		if k.Restart = f.rarely(4); f.rarely(4) {
			k.Set.HTTP = new(json.RawMessage(`{"request":[{"url":"http://x/"}]}`))
		}
		return k
	case 4:
		if i := slices.IndexFunc(s.defs, func(d *kernel.Definition) bool { return d.Kind == kernel.Recurring }); i >= 0 && !f.rarely(4) {
			d = s.defs[i]
			e.Tenant = d.Tenant
		}
		if d.Kind == kernel.Recurring && f.rarely(2) {
			return f.backfill(d, s)
		}
		k := kernel.Pause{Key: d.Key, Reason: "a rest"}
		if f.rarely(2) {
			k.Until = s.now.Add(f.span(time.Minute) - 10*time.Second)
		}
		return k
	case 5:
		k := kernel.Resume{Key: d.Key, Discard: f.rarely(3)}
		if f.rarely(2) {
			k.From = s.now.Add(-f.span(time.Minute))
		}
		return k
	case 6:
		switch f.IntN(4) {
		case 0:
			return kernel.Configure{RecurringDebug: new(f.rarely(2)), Discard: f.rarely(3)}
		case 1:
			return kernel.Configure{TriggeredDebug: new(f.rarely(3)), Discard: f.rarely(3)}
		case 2:
			return kernel.Configure{AppLimits: new([]jobs.Limit{{Name: "app", Max: 3 + f.IntN(4), Rate: jobs.Rate{Max: 5, Per: time.Second}}}[f.IntN(2):]), RetryBudget: new(jobs.Rate{Max: 3, Per: time.Second})}
		}
		defaults := f.settings()
		defaults.Limits, defaults.Rate, defaults.Disabled, defaults.OnSuccess, defaults.OnFailure, defaults.After, defaults.AfterSpan = nil, nil, nil, nil, nil, nil, nil // these have no default
		k := kernel.Configure{Defaults: &defaults, App: pick(f, []string{"", "app"})}
		if f.rarely(3) {
			k.Defaults, k.Reset = nil, []string{"defaults.retries", "defaults.maxConcurrency", "defaults.overlap"}
		}
		if f.rarely(4) {
			k = kernel.Configure{File: &kernel.File{TriggeredDebug: new(f.rarely(3)), Defaults: defaults}, Reset: []string{kernel.FieldTriggeredDebug, kernel.FieldAppLimits}}
		}
		return k
	case 7, 8:
		return kernel.Refresh{Key: d.Key}
	case 9:
		if len(s.keys) > 0 {
			u := pick(f, s.keys)
			e.Tenant = u.Tenant
			return kernel.Forget{Name: u.Name}
		}
	case 10:
		if len(s.gates) > 0 {
			g := pick(f, s.gates)
			e.Tenant = g.Tenant
			return kernel.Hand{Gate: g.Name}
		}
	}
	return kernel.Lead{Term: s.store.Term + uint64(f.IntN(2)), Node: pick(f, []string{"n1", "n2"})}
}
