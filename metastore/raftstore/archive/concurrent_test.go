package archive

import (
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
)

// While runs are added, sealed, purged, merged and sent, readers find each run that is not purged, once.
func TestReadersWhileFilesChange(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "archive"), Config{SealAt: 4_000})
	all := tests.Size(600, 2_000, 10_000)
	rng := rand.New(rand.NewPCG(5, 5))
	rows, kept := make([]*kernel.Run, all), 0
	for i := range rows {
		if rows[i] = run(i, rng); rows[i].Key == "k1" && rows[i].Tenant == "t1" {
			kept++
		}
	}
	var added atomic.Int64
	var others sync.WaitGroup
	done := make(chan struct{})
	repeat := func(fn func()) {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					fn()
				}
			}
		})
	}
	repeat(func() {
		if _, err := a.Retain(ctx, metastore.Retention{Of: retention{"k0": {Succeeded: 3, Others: 3}, "k2": {Succeeded: 9}}.of}); err != nil {
			t.Error(err)
		}
	})
	repeat(func() {
		n := int(added.Load())
		if n == 0 {
			return
		}
		r := rows[rand.IntN(n)]
		if got, err := a.Get(ctx, r.Tenant, r.ID); err != nil || got == nil && r.Key == "k1" || got != nil && !same(got, r) {
			t.Errorf("Get is %v, %v", got, err)
		}
	})
	list := func() (found int) {
		seen := map[*kernel.Run]bool{}
		for q := (metastore.RunQuery{Tenant: "t1", Job: "k1", Limit: 50}); ; {
			page, err := a.List(ctx, q)
			if err != nil {
				t.Error(err)
			}
			for _, r := range page.Runs {
				at := int(r.ID[0])<<16 | int(r.ID[1])<<8 | int(r.ID[2])
				if seen[rows[at]] || !same(r, rows[at]) {
					t.Errorf("run %d is listed twice, or is another", at)
				}
				seen[rows[at]] = true
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return len(seen)
			}
		}
	}
	repeat(func() {
		want := 0
		for _, r := range rows[:added.Load()] {
			if r.Key == "k1" && r.Tenant == "t1" {
				want++
			}
		}
		if got := list(); got < want {
			t.Errorf("%d runs are listed, and %d were there", got, want)
		}
	})
	repeat(func() {
		before := uint64(0)
		records := func(part []Record) error {
			for _, r := range part {
				if r.Damaged != nil || r.Number <= before {
					t.Errorf("run %d follows %d, %v", r.Number, before, r.Damaged)
				}
				before = r.Number
			}
			return nil
		}
		if err := a.Send(ctx, 0, a.Last(), records, func(*Whole) error { return nil }); err != nil {
			t.Error(err)
		}
	})
	for i := range rows {
		a.Begin(uint64(i + 1))
		a.Append(rows[i : i+1])
		if added.Store(int64(i + 1)); i%10 == 0 {
			notify(a.hurry) // while more are added
			time.Sleep(time.Millisecond)
		}
	}
	close(done)
	others.Wait()
	if got := list(); got != kept {
		t.Errorf("%d runs are listed, want %d", got, kept)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}
