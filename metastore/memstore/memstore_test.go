package memstore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func id(n int) jobs.ID { return jobs.ID{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 7} }

// filled is an engine with delayed runs as the commands make them.
func filled(t testing.TB, definitions, runs int) *metastore.Local {
	t.Helper()
	s := &metastore.Local{Engine: New(Config{})}
	apply := func(batch []kernel.Envelope) {
		for _, r := range s.Apply(ctx, batch) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	var batch []kernel.Envelope
	add := func(n int, k kernel.Command) {
		batch = append(batch, kernel.Envelope{ID: id(n), Tenant: "t", Actor: "test", Command: k})
		if len(batch) == 1000 {
			apply(batch)
			batch = batch[:0]
		}
	}
	apply([]kernel.Envelope{{ID: id(0), Tenant: jobs.DefaultTenant, Actor: "test", Command: kernel.SetTenant{Name: "t", Create: true}}})
	for i := range definitions {
		add(i, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprint("billing.some-job-", i)), Kind: kernel.Triggered}})
	}
	for i := range runs {
		add(i, kernel.Create{ID: id(i), Key: jobs.Key(fmt.Sprint("billing.some-job-", i%definitions)), Delay: time.Hour,
			Args: []byte(`{"customer":"c-1234567890","amount":1200,"currency":"EUR","note":"a hundred bytes or so of arguments"}`)})
	}
	apply(batch)
	return s
}

func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A whole process with 100,000 delayed runs is promised to stay below 300 MiB; the rows may take two thirds of it.
func TestHeap100kDelayed(t *testing.T) {
	const promised, most = 100_000, 200 << 20
	runs := tests.Size(promised/10, promised, promised)
	before := heapNow()
	s := filled(t, runs/10, runs)
	took := heapNow() - before
	t.Logf("%d delayed runs and %d definitions take %d KiB", runs, runs/10, took>>10)
	if took > most/promised*uint64(runs) {
		t.Errorf("that is too much")
	}
	runtime.KeepAlive(s)
}

func TestForgedCursors(t *testing.T) {
	s := filled(t, 3, 100)
	q := metastore.RunQuery{Tenant: "t", Limit: 10}
	page, err := s.Runs(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, cursor := range []string{"x", "l", "a-1", "l!!!", page.Next + "A", page.Next[:20], strings.ToUpper(page.Next) + "=", "a0", "\x00", "lé"} {
		q.Cursor = cursor
		if _, err := s.Runs(ctx, q); !errors.Is(err, jobs.BadInput) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	s := filled(f, 3, 100)
	page, err := s.Runs(ctx, metastore.RunQuery{Tenant: "t", Limit: 10})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page.Next)
	f.Add("a1")
	f.Fuzz(func(t *testing.T, cursor string) {
		if _, err := s.Runs(ctx, metastore.RunQuery{Tenant: "t", Limit: 10, Cursor: cursor}); err != nil && !errors.Is(err, jobs.BadInput) {
			t.Error(err)
		}
	})
}

// A filter that finds little among much gives up in time, reports how far it came, and continues from there.
func TestLongWalk(t *testing.T) {
	e := New(Config{})
	const runs = 60_000
	e.Update(func(tx metastore.Tx) {
		for i := range runs {
			run := &kernel.Run{Tenant: "t", ID: id(i), Key: "k", State: jobs.Scheduled, Created: noon.Add(time.Duration(i) * time.Second), Origin: kernel.FromCode}
			if i == 10 {
				run.Origin = kernel.FromPerson
			}
			tx.Put(run)
		}
	})
	q := metastore.RunQuery{Tenant: "t", Origin: kernel.FromPerson}
	for pages := 1; ; pages++ {
		page, err := e.Runs(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Runs) == 1 && page.Next == "" {
			if pages < 3 {
				t.Errorf("found on page %d", pages)
			}
			return
		}
		if page.Next == "" || page.Searched.IsZero() || pages > 100 {
			t.Fatalf("page %d: %d runs, next %q, searched to %v", pages, len(page.Runs), page.Next, page.Searched)
		}
		q.Cursor = page.Next
	}
}

// Rows that are read page by page while runs come and go are each seen once.
func TestWalkWhileRunsEnd(t *testing.T) {
	e := New(Config{})
	put := func(n int, state jobs.State) {
		e.Update(func(tx metastore.Tx) {
			tx.Put(&kernel.Run{Tenant: "t", ID: id(n), Key: "k", State: state, Created: noon.Add(time.Duration(n) * time.Second)})
		})
	}
	for n := range 3000 {
		put(n, jobs.Enqueued)
	}
	// The writer ends by itself: a walk that gets no time would otherwise have ever more rows before it.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 3000; n < 6000; n++ {
			put(n, jobs.Enqueued)
			put(n-1500, jobs.Succeeded)
		}
	}()
	seen := map[jobs.ID]int{}
	q := metastore.RunQuery{Tenant: "t", Limit: 100}
	for pages := 1; ; pages++ {
		page, err := e.Runs(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Runs {
			seen[run.ID]++
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
		if pages == 1000 {
			t.Fatal("the walk over 6,000 rows has no end")
		}
	}
	<-done
	for n := range 3000 {
		if seen[id(n)] == 0 {
			t.Fatalf("run %d was there all the time and was not seen", n)
		}
	}
}

func TestArchiveDropsTheOldest(t *testing.T) {
	a := NewArchive(100)
	for n := range 1000 {
		a.Append([]*kernel.Run{{Tenant: "t", ID: id(n), Key: "k", State: jobs.Succeeded, Ended: noon.Add(time.Duration(n) * time.Second)}})
	}
	page, err := a.List(ctx, metastore.RunQuery{Tenant: "t", Limit: 200})
	if err != nil || len(page.Runs) != 100 || page.Next != "" || page.Runs[0].ID != id(999) || page.Runs[99].ID != id(900) {
		t.Errorf("%d runs, next %q, %v", len(page.Runs), page.Next, err)
	}
	if run, _ := a.Get(ctx, "t", id(950)); run == nil {
		t.Error("a run that is there is not found")
	}
	if run, _ := a.Get(ctx, "t", id(899)); run != nil || len(a.ids) != 100 {
		t.Errorf("a dropped run is %v, %d ids are known", run, len(a.ids))
	}
}

func TestLogs(t *testing.T) {
	l := NewLogs(4 << 20)
	line := func(run int, sequence uint64, text string) metastore.LogLine {
		return metastore.LogLine{Tenant: "t", Run: id(run), LogPosition: metastore.LogPosition{Attempt: 1, Sequence: sequence}, Text: text}
	}
	if err := l.Append(ctx, []metastore.LogLine{line(1, 2, "two"), line(1, 1, "one"), line(1, 2, "again")}); err != nil {
		t.Fatal(err)
	}
	lines, _ := l.Read(ctx, "t", id(1), metastore.LogPosition{}, 0)
	if len(lines) != 2 || lines[0].Text != "one" || lines[1].Text != "two" {
		t.Errorf("lines are %v", lines)
	}
	for n := range uint64(300) {
		_ = l.Append(ctx, []metastore.LogLine{line(2, n, strings.Repeat("x", 8<<10))})
	}
	lines, _ = l.Read(ctx, "t", id(2), metastore.LogPosition{}, 0)
	if n := len(lines); n < 126 || n > 130 || !strings.Contains(lines[n-1].Text, "limit") {
		t.Errorf("%d lines of an attempt that wrote too much", n)
	}
	for run := 3; run < 10; run++ {
		for n := range uint64(100) {
			_ = l.Append(ctx, []metastore.LogLine{line(run, n, strings.Repeat("x", 8<<10))})
		}
	}
	if lines, _ := l.Read(ctx, "t", id(1), metastore.LogPosition{}, 0); lines != nil || l.bytes > 4<<20 {
		t.Errorf("the oldest lines are %d, %d bytes are kept", len(lines), l.bytes)
	}
}

func BenchmarkCapture1M(b *testing.B) {
	e := filled(b, 1000, 1_000_000).Engine.(*Engine)
	for b.Loop() {
		e.Capture()
	}
}
