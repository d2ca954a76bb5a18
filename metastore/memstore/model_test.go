package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// model is the content that an engine should have, stored in the simplest way: every read walks all of it.
type model struct {
	rows    map[kernel.Ref]kernel.Row
	born    []kernel.Ref // live runs in the order of their creation
	settled []*kernel.Run
	stubs   map[kernel.Ref]time.Time // when a run settled
	now     time.Time
}

func newModel(now time.Time) *model {
	return &model{rows: map[kernel.Ref]kernel.Row{}, stubs: map[kernel.Ref]time.Time{}, now: now}
}

func (m *model) put(row kernel.Row) {
	ref := row.Ref()
	switch row := row.(type) {
	case *kernel.Run:
		if row.Settled() {
			m.delete(ref)
			m.settled = append(m.settled, row)
			m.stubs[ref] = m.now
			return
		}
		if m.rows[ref] == nil {
			m.born = append(m.born, ref)
		}
	case *kernel.Tally:
		if old, ok := m.rows[ref].(*kernel.Tally); ok {
			sum := *row
			sum.Add(old.Sums)
			m.rows[ref] = &sum
			return
		}
	}
	m.rows[ref] = row
}

func (m *model) delete(ref kernel.Ref) {
	if m.rows[ref] != nil && ref.Kind == kernel.RowRun {
		m.born = slices.DeleteFunc(m.born, func(r kernel.Ref) bool { return r == ref })
	}
	delete(m.rows, ref)
}

func of[T kernel.Row](m *model) []T {
	var found []T
	for _, row := range m.rows {
		if t, ok := row.(T); ok {
			found = append(found, t)
		}
	}
	return found
}

func (m *model) live() []*kernel.Run {
	var found []*kernel.Run
	for _, ref := range m.born {
		found = append(found, m.rows[ref].(*kernel.Run))
	}
	return found
}

// dice makes rows by chance, of few names, so that they meet.
type dice struct {
	*rand.Rand
	ids   []jobs.ID
	made  int
	seq   uint64
	turns uint64
}

func pick[T any](d *dice, from ...T) T { return from[d.IntN(len(from))] }

func (d *dice) id() jobs.ID {
	d.made++
	return jobs.ID{byte(d.IntN(256)), byte(d.IntN(256)), byte(d.IntN(256)), byte(d.IntN(256)), byte(d.made), byte(d.made >> 8)}
}

func (d *dice) tenant() jobs.Tenant { return pick[jobs.Tenant](d, "a", "b") }

func (d *dice) run(m *model) *kernel.Run {
	id := d.ids[d.IntN(len(d.ids))]
	tenant := jobs.Tenant(rune('a' + id[0]&1))
	run := &kernel.Run{Tenant: tenant, ID: id, Key: jobs.Key(fmt.Sprintf("k%d", id[1]%5)), App: fmt.Sprintf("app%d", id[2]%2),
		Created: m.now, Attempt: 1, Queued: m.now}
	run.Job, run.Kind = jobs.ID{id[1] % 3, 1}, pick(d, kernel.Recurring, kernel.Triggered)
	if id[3]%3 == 0 {
		run.Parent = jobs.ID{9}
	}
	if old, ok := m.rows[run.Ref()].(*kernel.Run); ok {
		run.Created = old.Created
	}
	run.State = pick(d, jobs.Scheduled, jobs.Enqueued, jobs.Enqueued, jobs.Processing, jobs.Failed, jobs.Cancelled, jobs.Succeeded)
	run.Due = m.now.Add(time.Duration(d.IntN(20)) * time.Second)
	run.Priority = d.IntN(3) - 1
	run.Worker = pick(d, "", "w1", "w2")
	run.Place = pick(d, nil, nil, &kernel.Place{Pin: "p1"}, &kernel.Place{Pin: "p2", Slots: 1})
	run.Origin = pick(d, kernel.FromCode, kernel.FromPerson)
	switch run.State {
	case jobs.Failed:
		run.Lingering = d.IntN(3) == 0
		if d.IntN(2) == 0 {
			run.RetryAt = m.now.Add(time.Duration(d.IntN(20)) * time.Second)
		}
		fallthrough
	case jobs.Enqueued:
		run.First = d.IntN(4) == 0
		run.Waits = pick(d, "", "", "g1", "g2")
	case jobs.Scheduled:
		run.Cause = pick(d, "", kernel.ByDebug, kernel.ByPause, kernel.ByPause)
		if run.Cause == kernel.ByPause && d.IntN(3) == 0 {
			run.RetryAt = m.now.Truncate(time.Minute)
		}
	case jobs.Cancelled:
		run.Lingering = d.IntN(2) == 0
		run.Ended = m.now
	case jobs.Succeeded:
		run.Ended = m.now
	}
	if run.Ready() {
		d.turns++
		run.Turn = d.turns
		if old, ok := m.rows[run.Ref()].(*kernel.Run); ok && old.Ready() && old.Priority == run.Priority {
			run.Turn = old.Turn
		}
	}
	return run
}

func (d *dice) row(m *model) kernel.Row {
	job := jobs.ID{byte(d.IntN(3)), 1}
	hour := m.now.Truncate(time.Hour).Add(time.Duration(d.IntN(3)) * time.Hour)
	switch n := d.IntN(46); {
	case n < 28:
		return d.run(m)
	case n < 30:
		return &kernel.Gate{Tenant: d.tenant(), Name: pick(d, "g1", "g2"), Limit: d.IntN(3), Taken: d.IntN(3)}
	case n < 32:
		u := &kernel.UniqueKey{Tenant: d.tenant(), Name: pick(d, "u1", "u2", "u3", "u4")}
		if d.IntN(3) > 0 {
			u.Until = m.now.Add(time.Duration(d.IntN(100)) * time.Second)
		}
		return u
	case n < 35:
		def := &kernel.Definition{Tenant: d.tenant(), UID: job, Key: jobs.Key(fmt.Sprintf("k%d", d.IntN(9))), App: pick(d, "x", "y")}
		if d.seq++; d.IntN(3) > 0 {
			def.Change = d.seq
		} else if old, ok := m.rows[def.Ref()].(*kernel.Definition); ok {
			def.Change = old.Change // a moved cursor is no change
		} else {
			def.Change = d.seq
		}
		if old, ok := m.rows[def.Ref()].(*kernel.Definition); ok && old.Change == def.Change {
			def.Deleted, def.Edited = old.Deleted, old.Edited // to delete it would be a change
		} else if d.IntN(3) == 0 {
			def.Deleted, def.Edited = m.now, m.now
		}
		def.Paused = pick(d, nil, &kernel.Held{}, &kernel.Held{}, &kernel.Held{Until: m.now.Truncate(time.Minute)})
		return def
	case n < 37:
		return &kernel.Missed{Tenant: d.tenant(), Job: job, From: hour, To: hour, Count: d.Uint64N(9)}
	case n < 39:
		t := &kernel.Tally{Tenant: d.tenant(), Job: job, Span: pick(d, kernel.Hour, kernel.Hour, kernel.Day), Sums: kernel.Sums{Took: time.Duration(d.Int64N(3))}}
		t.At, t.Runs[pick(d, jobs.Enqueued, jobs.Succeeded)] = t.Span.Start(hour.Add(time.Duration(d.IntN(50))*time.Hour)), 1+d.Int64N(3)
		return t
	}
	return d.access(m)
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(tests.Size(1, 4, 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := &dice{Rand: rand.New(rand.NewPCG(seed, 1))}
			for range 60 {
				d.ids = append(d.ids, d.id())
			}
			m := newModel(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
			e := New(Config{})
			for range 250 {
				m.now = m.now.Add(time.Duration(d.IntN(4)) * time.Second)
				e.Update(func(tx metastore.Tx) {
					for range d.IntN(30) {
						if d.IntN(12) == 0 {
							ref := d.row(m).Ref()
							m.delete(ref)
							tx.Delete(ref)
							continue
						}
						row := d.row(m)
						m.put(row)
						tx.Put(row)
						if run, ok := row.(*kernel.Run); ok && run.Settled() { // and never comes back
							d.ids[slices.Index(d.ids, run.ID)] = d.id()
						}
						if run, ok := row.(*kernel.Run); !ok || !run.Settled() {
							same(t, "Get", tx.Get(row.Ref()), m.rows[row.Ref()])
						}
					}
					state := &kernel.StoreRow{Term: 3, At: m.now}
					m.put(state)
					tx.Put(state)
				})
				m.compare(t, e, d)
				if d.IntN(40) == 0 {
					e = m.restored(t, e)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %s, want %s", what, text(got), text(want))
	}
}

func text(v any) string {
	if list, ok := v.([]*kernel.Run); ok {
		s := ""
		for _, run := range list {
			s += fmt.Sprintf("%x/%s/%s ", run.ID[4:5], run.State, run.Created.Format("05"))
		}
		return s
	}
	return fmt.Sprintf("%+v", v)
}

// restored copies the rows to another engine and continues with that one.
func (m *model) restored(t *testing.T, e *Engine) *Engine {
	t.Helper()
	var wire []byte
	for row := range e.Capture().Rows() {
		wire = kernel.AppendRow(wire, row)
	}
	fresh := New(Config{Archive: e.archive})
	if err := fresh.Restore(decoded(wire)); err != nil {
		t.Fatal(err)
	}
	if fresh.Hash() != e.Hash() {
		t.Fatal("a restored engine has another hash")
	}
	return fresh
}

func decoded(wire []byte) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		for len(wire) > 0 {
			row, rest, err := kernel.DecodeRow(wire)
			if !yield(row, err) || err != nil {
				return
			}
			wire = rest
		}
	}
}

var ctx = context.Background()

func (m *model) compare(t *testing.T, e *Engine, d *dice) {
	t.Helper()
	e.Update(func(tx metastore.Tx) {
		for ref, row := range m.rows {
			if got := tx.Get(ref); !equalRow(got, row) {
				t.Errorf("Get(%v) is %v, want %v", ref, got, row)
			}
		}
		for ref, at := range m.stubs {
			if m.rows[ref] != nil {
				continue
			}
			run, _ := tx.Get(ref).(*kernel.Run)
			if age := m.now.Sub(at); run == nil && age <= kept || run != nil && age > kept+period {
				t.Errorf("%s after it settled the stub of %x is %v", age, ref.ID, run)
			}
			if run != nil && (!run.Settled() || run.ID != ref.ID || run.Tenant != ref.Tenant || run.Key == "" || run.Attempt != 1) {
				t.Errorf("stub is %+v", run)
			}
		}
		for _, tenant := range []jobs.Tenant{"a", "b"} {
			for _, gate := range []string{"g1", "g2"} {
				same(t, "First", tx.First(kernel.GateRef(tenant, gate)), m.first(tenant, gate))
			}
		}
	})
	m.compareAgenda(t, e, d)
	m.compareDefinitions(t, e, d)
	m.compareAccess(t, e, d)
	for range 4 {
		m.compareList(t, e, d)
	}
	for _, tenant := range []jobs.Tenant{"a", "b"} {
		for _, key := range []jobs.Key{"", "k1"} {
			live := map[jobs.State]int{}
			for _, run := range m.live() {
				if run.Tenant == tenant && (key == "" || run.Key == key) {
					live[run.State]++
				}
			}
			c, _ := e.Counts(ctx, metastore.CountQuery{Tenant: tenant, Job: key})
			same(t, "Counts", c.Live, live)
		}
		c, _ := e.Counts(ctx, metastore.CountQuery{Tenant: tenant, From: time.Unix(1, 0)})
		byApp, _ := e.Counts(ctx, metastore.CountQuery{Tenant: tenant, App: "x", From: time.Unix(1, 0)})
		sums, ofApp := metastore.Tallies{}, metastore.Tallies{}
		for _, row := range of[*kernel.Tally](m) {
			if row.Tenant != tenant {
				continue
			}
			one := *row
			one.Job = jobs.ID{}
			sums.Add(one)
			for _, d := range of[*kernel.Definition](m) {
				if d.Tenant == tenant && d.App == "x" && d.UID == row.Job {
					ofApp.Add(one)
				}
			}
		}
		if !slices.Equal(c.Tallies, sums.List()) || !slices.Equal(byApp.Tallies, ofApp.List()) {
			t.Errorf("tallies of all are %v, want %v; of an app %v, want %v", c.Tallies, sums.List(), byApp.Tallies, ofApp.List())
		}
		job := jobs.ID{1, 1}
		var want []*kernel.Missed
		for _, row := range of[*kernel.Missed](m) {
			if row.Tenant == tenant && row.Job == job {
				want = append(want, row)
			}
		}
		slices.SortFunc(want, func(a, b *kernel.Missed) int { return b.From.Compare(a.From) })
		ledger, _ := e.Ledger(ctx, tenant, job, 2)
		if len(ledger) != min(2, len(want)) || len(ledger) > 0 && !equalRow(ledger[0], want[0]) {
			t.Errorf("Ledger is %v, want the first of %v", ledger, want)
		}
	}
}

// equalRow compares by wire form.
func equalRow(a, b kernel.Row) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(kernel.AppendRow(nil, a), kernel.AppendRow(nil, b))
}

func (m *model) first(tenant jobs.Tenant, gate string) *kernel.Run {
	waiters := m.waiters(tenant, gate)
	if len(waiters) == 0 {
		return nil
	}
	return slices.MinFunc(waiters, func(a, b *kernel.Run) int {
		if a.First != b.First {
			if a.First {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Due.Compare(b.Due), bytes.Compare(a.ID[:], b.ID[:]))
	})
}

func (m *model) waiters(tenant jobs.Tenant, gate string) []*kernel.Run {
	return slices.DeleteFunc(m.live(), func(run *kernel.Run) bool { return run.Tenant != tenant || run.Waits != gate })
}

// unheld reports whether a change has ended what holds a run.
func (m *model) unheld(run *kernel.Run) bool {
	if !run.Held() {
		return false
	}
	if run.Cause == kernel.ByDebug {
		g, ok := m.rows[kernel.GlobalRef(run.Tenant)].(*kernel.Global)
		return !ok || !g.DebugOf(run.Kind).On
	}
	d, ok := m.rows[kernel.DefinitionRef(run.Tenant, run.Key)].(*kernel.Definition)
	return !ok || d.Gone() || d.UID != run.Job || d.Paused == nil || !d.Paused.Until.Equal(run.RetryAt)
}

func (m *model) compareAgenda(t *testing.T, e *Engine, d *dice) {
	t.Helper()
	until, limit := m.now.Add(time.Duration(d.IntN(20)-10)*time.Second), 1+d.IntN(10)
	var wakes []time.Time
	for _, run := range m.live() {
		if at := run.Wake(); !at.IsZero() {
			wakes = append(wakes, at)
		}
	}
	slices.SortFunc(wakes, time.Time.Compare)
	n := 0
	for n < len(wakes) && n < limit && !wakes[n].After(until) {
		n++
	}
	var next time.Time
	if n < len(wakes) {
		next = wakes[n]
	}
	due, got, _ := e.Waking(ctx, until, limit)
	released := map[metastore.Named]bool{}
	for _, run := range m.live() {
		if at := run.Wake(); m.unheld(run) && (at.IsZero() || at.After(until)) {
			released[metastore.Named{Tenant: run.Tenant, ID: run.ID}] = true
		}
	}
	if got := due[n:]; len(got) != min(len(released), limit-n) || slices.ContainsFunc(got, func(r metastore.Named) bool { return !released[r] }) {
		t.Errorf("Waking until %v, %d: nothing holds %v any more, want those of %v", until, limit, got, released)
	}
	due = due[:n]
	var at []time.Time
	for _, name := range due {
		at = append(at, m.rows[kernel.RunRef(name.Tenant, name.ID)].(*kernel.Run).Wake())
	}
	if !slices.EqualFunc(at, wakes[:n], time.Time.Equal) || !got.Equal(next) {
		t.Errorf("Waking until %v, %d: %v and %v, want %v and %v", until, limit, at, got, wakes[:n], next)
	}

	ready := map[metastore.ReadyApp][]*kernel.Run{}
	for _, run := range m.live() {
		if run.Ready() {
			name := metastore.ReadyApp{Tenant: run.Tenant, App: run.App}
			ready[name] = append(ready[name], run)
		}
	}
	apps, _ := e.ReadyApps(ctx)
	if len(apps) != len(ready) {
		t.Errorf("%d apps, want %d", len(apps), len(ready))
	}
	backlog := map[metastore.ReadyApp]metastore.Backlog{}
	all, _ := e.Backlog(ctx)
	for _, b := range all {
		backlog[metastore.ReadyApp{Tenant: b.Tenant, App: b.App}] = b
	}
	for _, app := range apps {
		want := ready[metastore.ReadyApp{Tenant: app.Tenant, App: app.App}]
		slices.SortFunc(want, func(a, b *kernel.Run) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Turn, b.Turn))
		})
		if app.Ready != len(want) {
			t.Errorf("app %v, want %d", app, len(want))
		}
		oldest := slices.MinFunc(want, func(a, b *kernel.Run) int { return cmp.Compare(a.Turn, b.Turn) })
		if b := backlog[metastore.ReadyApp{Tenant: app.Tenant, App: app.App}]; b.Ready != len(want) || !b.Since.Equal(oldest.Queued) {
			t.Errorf("backlog %v since %v, want %d since %v", b.ReadyApp, b.Since, len(want), oldest.Queued)
		}
		got, _ := e.Ready(ctx, metastore.ReadyQuery{Tenant: app.Tenant, App: app.App, Limit: 5})
		m.sameRuns(t, "Ready", got, want[:min(5, len(want))])
		var some []*kernel.Run
		for _, run := range want {
			if run.Queue().Handler != "k1" && run.Queue().Place == "" {
				some = append(some, run)
			}
		}
		got, _ = e.Ready(ctx, metastore.ReadyQuery{Tenant: app.Tenant, App: app.App, Limit: 5,
			Has: func(q kernel.Queue) bool { return q.Handler != "k1" && q.Place == "" }})
		m.sameRuns(t, "Ready of some queues", got, some[:min(5, len(some))])
	}

	leased := 0
	for _, run := range m.live() {
		if run.State == jobs.Processing || run.Lingering {
			leased++
		}
	}
	under, _ := e.Leased(ctx)
	if len(under) != leased {
		t.Errorf("%d leased, want %d", len(under), leased)
	}

	unserved := 0
	for _, tenant := range []jobs.Tenant{"a", "b"} {
		for _, gate := range []string{"g1", "g2"} {
			row, _ := m.rows[kernel.GateRef(tenant, gate)].(*kernel.Gate)
			if len(m.waiters(tenant, gate)) > 0 && (row == nil || row.Limit == 0 || row.Taken < row.Limit) {
				unserved++
			}
		}
	}
	gates, _ := e.Unserved(ctx, 10)
	if len(gates) != unserved {
		t.Errorf("unserved are %v, want %d", gates, unserved)
	}

	lapsed := 0
	for _, u := range of[*kernel.UniqueKey](m) {
		if !u.Until.IsZero() && !u.Until.After(until) {
			lapsed++
		}
	}
	names, _ := e.Expired(ctx, until, 100)
	if len(names) != lapsed {
		t.Errorf("expired are %v, want %d", names, lapsed)
	}
}

func (m *model) sameRuns(t *testing.T, what string, got, want []*kernel.Run) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b *kernel.Run) bool { return equalRow(a, b) }) {
		t.Errorf("%s is %s, want %s", what, text(got), text(want))
	}
}

func (m *model) compareDefinitions(t *testing.T, e *Engine, d *dice) {
	t.Helper()
	q := metastore.DefinitionQuery{Tenant: pick[jobs.Tenant](d, "a", "b", "*"), App: pick(d, "", "x"), Limit: pick(d, 0, 0, 2)}
	order := func(a, b *kernel.Definition) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key))
	}
	switch d.IntN(4) {
	case 0:
		q.Since = 1 + d.Uint64N(d.seq+1)
		order = func(a, b *kernel.Definition) int { return cmp.Compare(a.Change, b.Change) }
	case 1:
		q.After = "k3"
	case 2:
		q.Keys = []jobs.Key{"k4", "k1", "nokey"}
	}
	want := slices.DeleteFunc(of[*kernel.Definition](m), func(def *kernel.Definition) bool {
		return q.Tenant != "*" && def.Tenant != q.Tenant || q.App != "" && def.App != q.App || def.Change <= q.Since || def.Gone() && q.Since == 0 ||
			def.Key <= q.After || q.Keys != nil && !slices.Contains(q.Keys, def.Key)
	})
	slices.SortFunc(want, order)
	if q.Limit > 0 && len(want) > q.Limit {
		want = want[:q.Limit]
	}
	got, _ := e.Definitions(ctx, q)
	if !slices.EqualFunc(got, want, func(a, b *kernel.Definition) bool { return equalRow(a, b) }) {
		t.Errorf("Definitions(%+v) is %v, want %v", q, got, want)
	}
}

func (m *model) compareList(t *testing.T, e *Engine, d *dice) {
	t.Helper()
	q := metastore.RunQuery{Tenant: d.tenant(), Limit: 1 + d.IntN(6)}
	if d.IntN(2) == 0 {
		q.State = pick(d, kernel.States()...)
	}
	if d.IntN(3) == 0 {
		q.Job = "k1"
	}
	if d.IntN(3) == 0 {
		q.Worker = pick(d, "w1", "w2", "w9")
	}
	if d.IntN(4) == 0 {
		q.Parent = jobs.ID{9}
	}
	if d.IntN(4) == 0 {
		q.From = m.now.Add(-time.Duration(d.IntN(60)) * time.Second)
	}
	if d.IntN(4) == 0 {
		q.To = m.now.Add(-time.Duration(d.IntN(60)) * time.Second)
	}
	q.Ended = d.IntN(4) == 0
	var want []*kernel.Run
	for _, run := range slices.Backward(m.live()) {
		if run.Tenant == q.Tenant && !q.Ended && q.Matches(run) {
			want = append(want, run)
		}
	}
	for _, run := range slices.Backward(m.settled) {
		if run.Tenant == q.Tenant && q.Matches(run) {
			want = append(want, run)
		}
	}
	var got []*kernel.Run
	for {
		page, err := e.Runs(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Runs) > q.Limit || len(page.Runs) == 0 && page.Next != "" && page.Searched.IsZero() {
			t.Errorf("page of %d with limit %d, next %q", len(page.Runs), q.Limit, page.Next)
		}
		got = append(got, page.Runs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if !slices.EqualFunc(got, want, func(a, b *kernel.Run) bool { return equalRow(a, b) }) {
		t.Errorf("Runs(%+v) is\n%s, want\n%s", q, text(got), text(want))
	}
}
