package memstore

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// aKind makes the row number i of n, in the order of their creation. Where turns may differ from that order, turn is
// another permutation of the numbers.
type aKind struct {
	name string
	kind kernel.RowKind
	row  func(i, turn int) kernel.Row
}

// everyKind is all kinds of rows, each in the forms that indexes tell apart.
func everyKind() []aKind {
	at := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	id := func(i int) jobs.ID { return kernel.DerivedID("restore", fmt.Sprint(i)) }
	after := func(i int) time.Time { return at.Add(time.Duration(i) * time.Second) }
	run := func(change func(run *kernel.Run, i, turn int)) func(i, turn int) kernel.Row {
		return func(i, turn int) kernel.Row {
			run := &kernel.Run{Tenant: "t", ID: id(i), Job: id(0), Key: "k", App: "a", Kind: kernel.Triggered,
				State: jobs.Enqueued, Created: after(i), Due: at, Queued: at, Turn: uint64(turn + 1)}
			change(run, i, turn)
			return run
		}
	}
	return []aKind{
		{"ready", kernel.RowRun, run(func(*kernel.Run, int, int) {})},
		{"ready, created at once", kernel.RowRun, run(func(run *kernel.Run, _, _ int) { run.Created = at })},
		{"ready, of priorities", kernel.RowRun, run(func(run *kernel.Run, _, turn int) {
			run.Priority = turn % 100
		})},
		{"ready, of apps and jobs", kernel.RowRun, run(func(run *kernel.Run, i, _ int) {
			run.App, run.Key = fmt.Sprint("a", i%200), jobs.Key(fmt.Sprint("k", i))
		})},
		{"ready, of a parent", kernel.RowRun, run(func(run *kernel.Run, _, _ int) { run.Parent = id(-1) })},
		{"retried", kernel.RowRun, run(func(run *kernel.Run, _, turn int) {
			run.State, run.RetryAt, run.Turn = jobs.Failed, after(turn), 0
		})},
		{"due later", kernel.RowRun, run(func(run *kernel.Run, _, turn int) {
			run.State, run.Due, run.Turn = jobs.Scheduled, after(turn).Add(24*time.Hour), 0
		})},
		{"at a gate", kernel.RowRun, run(func(run *kernel.Run, _, turn int) {
			run.Waits, run.Due = kernel.LimitGate("l"), after(turn)
		})},
		{"running", kernel.RowRun, run(func(run *kernel.Run, i, _ int) {
			run.State, run.Worker, run.Attempt = jobs.Processing, fmt.Sprint("w", i%50), 1
		})},
		{"ended", kernel.RowRun, run(func(run *kernel.Run, i, _ int) {
			run.State, run.Ended = jobs.Succeeded, at.Add(time.Duration(i%60)*time.Second)
		})},
		{"", kernel.RowDefinition, func(i, turn int) kernel.Row {
			return &kernel.Definition{Tenant: "t", Key: jobs.Key(fmt.Sprintf("k%07d", i)), UID: id(i), App: "a",
				Change: uint64(turn + 1)}
		}},
		{"of a limit", kernel.RowGate, func(i, _ int) kernel.Row {
			return &kernel.Gate{Tenant: "t", Name: kernel.LimitGate(fmt.Sprint("l", i)), Limit: 1}
		}},
		{"of limits' keys, and limits", kernel.RowGate, func(i, _ int) kernel.Row {
			if name := fmt.Sprint("l", i/2); i%2 == 0 {
				return &kernel.Gate{Tenant: "t", Name: kernel.BoundGate(name), Limit: 1}
			}
			return &kernel.Gate{Tenant: "t", Name: kernel.KeyGate(fmt.Sprint("l", i/2), "v"), Limit: 1}
		}},
		{"", kernel.RowUnique, func(i, turn int) kernel.Row {
			return &kernel.UniqueKey{Tenant: "t", Name: fmt.Sprint(i), ID: id(i), Until: after(turn)}
		}},
		{"of a job", kernel.RowMissed, func(i, _ int) kernel.Row {
			return &kernel.Missed{Tenant: "t", Job: id(0), Key: "k", From: after(i), To: after(i), Count: 1,
				Reason: kernel.MissedParents}
		}},
		{"of jobs", kernel.RowMissed, func(i, turn int) kernel.Row {
			return &kernel.Missed{Tenant: "t", Job: id(i), Key: "k", From: after(turn), To: after(turn), Count: 1,
				Reason: kernel.MissedLate}
		}},
		{"of a job", kernel.RowTally, func(i, _ int) kernel.Row {
			return &kernel.Tally{Tenant: "t", Job: id(0), Span: kernel.Hour, At: int64(i) * int64(time.Hour)}
		}},
		{"of jobs", kernel.RowTally, func(i, turn int) kernel.Row {
			return &kernel.Tally{Tenant: "t", Job: id(i), Span: kernel.Day, At: int64(turn%1000) * int64(24*time.Hour)}
		}},
		{"", kernel.RowGlobal, func(i, _ int) kernel.Row { return &kernel.Global{Tenant: jobs.Tenant(fmt.Sprint("t", i))} }},
		{"", kernel.RowStore, func(int, int) kernel.Row { return &kernel.StoreRow{At: at} }},
		{"", kernel.RowToken, func(i, turn int) kernel.Row {
			return &kernel.Token{Tenant: "t", ID: fmt.Sprint(i), Name: fmt.Sprint(i), Until: after(turn)}
		}},
		{"", kernel.RowSession, func(i, turn int) kernel.Row {
			return &kernel.Session{Tenant: "t", ID: fmt.Sprint(i), Until: after(turn)}
		}},
		{"", kernel.RowAudit, func(i, _ int) kernel.Row {
			return &kernel.Audit{Tenant: "t", N: uint64(i + 1), At: after(i)}
		}},
		{"", kernel.RowHistory, func(i, _ int) kernel.Row { return &kernel.History{Tenant: "t", Job: id(i)} }},
		{"", kernel.RowCalendar, func(i, _ int) kernel.Row { return &kernel.Calendar{Tenant: "t", Name: fmt.Sprint(i)} }},
		{"", kernel.RowAlarmSettings, func(i, _ int) kernel.Row {
			return &kernel.AlarmSettings{Tenant: jobs.Tenant(fmt.Sprint("t", i))}
		}},
		{"", kernel.RowAlarm, func(i, _ int) kernel.Row {
			return &kernel.Alarm{Tenant: "t", N: uint64(i + 1), Rule: "r", Job: jobs.Key(fmt.Sprint("k", i)), Ended: at}
		}},
		{"", kernel.RowFollowers, func(i, _ int) kernel.Row {
			return &kernel.Followers{Tenant: "t", Key: jobs.Key(fmt.Sprint("k", i)), Jobs: []jobs.Key{"f"}}
		}},
		{"", kernel.RowOccasion, func(i, turn int) kernel.Row {
			return &kernel.Occasion{Tenant: "t", Job: id(0), Key: "k", Name: fmt.Sprint(i), Slot: fmt.Sprint(i), Opened: after(turn)}
		}},
		{"", kernel.RowBatch, func(i, _ int) kernel.Row {
			return &kernel.Batch{Tenant: "t", ID: id(i), Name: fmt.Sprint(i), Opened: after(i)}
		}},
	}
}

// orders are those in which rows may come, as permutations of their numbers, and how turns follow creation.
var orders = []struct {
	name       string
	rows, turn func(n int) []int
}{
	{"created", upwards, upwards},
	{"reversed", downwards, upwards},
	{"shuffled", mixed(1), upwards},
	{"turns reversed", upwards, downwards},
	{"turns shuffled", upwards, mixed(2)},
	{"both shuffled", mixed(3), mixed(4)},
}

func upwards(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func downwards(n int) []int {
	list := upwards(n)
	slices.Reverse(list)
	return list
}

func mixed(seed uint64) func(n int) []int {
	return func(n int) []int { return rand.New(rand.NewPCG(seed, 34)).Perm(n) }
}

// rowsOf makes rows as a snapshot has them: freshly decoded, and packed or not.
func rowsOf(t *testing.T, k aKind, rows, turn []int, packed bool) (list []kernel.Row) {
	wire := func(row kernel.Row) {
		decoded, _, err := kernel.DecodeRow(kernel.AppendRow(nil, row))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, decoded)
	}
	p := &kernel.Parcel{}
	for _, i := range rows {
		row := k.row(i, turn[i])
		run, is := row.(*kernel.Run)
		d, job := row.(*kernel.Definition)
		switch {
		case packed && job:
			p.AddDefinition(d.Pack(d.Key))
		case packed && is && run.Settled():
			p.AddStub(kernel.Stub{Tenant: run.Tenant, ID: run.ID, Key: string(run.Key), State: run.State,
				Ended: run.Ended})
		case packed && is:
			p.AddRun(run.ID, run.Pack())
		default:
			wire(row)
		}
		if p.Full() {
			wire(p)
			p = &kernel.Parcel{}
		}
	}
	if p.Len() > 0 {
		wire(p)
	}
	return list
}

// restoreCost restores rows, and returns the work: the steps that orders took, and a step for each cache line that was
// allocated, since what is copied is allocated before.
func restoreCost(t *testing.T, rows []kernel.Row) (e *Engine, work float64) {
	e = New(Config{Archive: NewArchive(1)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := e.Restore(func(yield func(kernel.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	return e, float64(e.rows.steps) + float64(after.TotalAlloc-before.TotalAlloc)/64
}

// What restoring costs grows with the number of rows and its logarithm, for every kind of row in every order, and the
// rows are in their orders then.
func TestRestoreCost(t *testing.T) {
	n := tests.Size(100, 500, 4000)
	limit := 4 * math.Log(float64(4*n)) / math.Log(float64(n)) * 1.25
	kinds := map[kernel.RowKind]bool{kernel.RowParcel: true} // of the others
	var table strings.Builder
	fmt.Fprintf(&table, "%-36s %-15s %10d %10d %10d\n", "work", "order", n, 2*n, 4*n)
	for _, k := range everyKind() {
		kinds[k.kind] = true
		for _, packed := range []bool{false, true} {
			name := strings.TrimSpace(k.kind.String() + " " + k.name)
			if packed {
				if name += ", packed"; k.kind != kernel.RowRun && k.kind != kernel.RowDefinition {
					continue
				}
			}
			hashes := map[[32]byte]bool{}
			for _, order := range orders {
				var work [3]float64
				for i, n := range []int{n, 2 * n, 4 * n} {
					rows := rowsOf(t, k, order.rows(n), order.turn(n), packed)
					var e *Engine
					e, work[i] = restoreCost(t, rows)
					e.rows.inOrders(t, name+", "+order.name)
					if i == 0 && slices.IsSorted(order.turn(n)) {
						hashes[e.Hash()] = true
					}
				}
				fmt.Fprintf(&table, "%-36s %-15s %10.0f %10.0f %10.0f\n", name, order.name, work[0], work[1], work[2])
				if work[2] > limit*work[0]+64 {
					t.Errorf("%s, %s: four times as many rows take %.1f times the work, want at most %.1f",
						name, order.name, work[2]/work[0], limit)
				}
			}
			if len(hashes) != 1 {
				t.Errorf("%s: restored in other orders, the rows are others", name)
			}
		}
	}
	t.Log("\n" + table.String())
	for k := range kernel.RowKind(255) {
		if !strings.Contains(k.String(), "unknown kind") && !kinds[k] {
			t.Errorf("nothing is known about %s", k)
		}
	}
}

// inOrders checks what has an order.
func (r *rows) inOrders(t *testing.T, what string) {
	t.Helper()
	check := func(l *list, kind int, before func(a, b *node) bool) {
		n, last := 0, (*node)(nil)
		for at := l.first; at != nil; at = at.links[kind].newer {
			if at.links[kind].list != l || at.links[kind].older != last || last != nil && !before(last, at) {
				t.Fatalf("%s: a list of kind %d is not in order at %d", what, kind, n)
			}
			n, last = n+1, at
		}
		if n != l.n || last != l.last {
			t.Fatalf("%s: a list of kind %d has %d nodes, not %d", what, kind, n, l.n)
		}
	}
	created := func(a, b *node) bool { return a.moment().before(b.moment()) }
	for _, s := range r.spaces {
		check(&s.all, inAll, created)
		for _, j := range s.jobs {
			check(&j.list, inJob, created)
		}
		for _, l := range s.parents {
			check(l, inParent, created)
		}
		for _, l := range s.apps {
			for ready := range l.each {
				check(&ready.list, inReady, func(a, b *node) bool { return a.turn < b.turn })
			}
		}
		for _, of := range s.missed {
			if of.elder.at != of.list[0].To.UnixNano() ||
				!slices.IsSortedFunc(of.list, func(a, b *kernel.Missed) int { return a.From.Compare(b.From) }) {
				t.Fatalf("%s: missed ranges are not in order", what)
			}
		}
		for _, of := range s.tallies {
			list := slices.Collect(of.all())
			if of.oldest[list[0].span] != list[0].end() ||
				!slices.IsSortedFunc(list, func(a, b tally) int { return a.compare(&b) }) {
				t.Fatalf("%s: tallies are not in order", what)
			}
		}
		if !slices.IsSortedFunc(s.audits, func(a, b *kernel.Audit) int { return cmp.Compare(a.N, b.N) }) {
			t.Fatalf("%s: audits are not in order", what)
		}
	}
}

// Ranges and audits that a snapshot has twice are refused, as runs and jobs are.
func TestRestoreRefusesRowsThatComeTwice(t *testing.T) {
	for _, k := range everyKind() {
		switch k.kind {
		case kernel.RowMissed, kernel.RowAudit, kernel.RowDefinition, kernel.RowRun:
		default:
			continue
		}
		if k.name == "ended" {
			continue
		}
		err := New(Config{}).Restore(func(yield func(kernel.Row, error) bool) {
			for _, i := range []int{1, 2, 1} {
				if !yield(k.row(i, i), nil) {
					return
				}
			}
		})
		if err == nil {
			t.Errorf("%s %s: a row comes twice", k.kind, k.name)
		}
	}
}
