package loglines

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
)

// While lines are stored, and files are sealed and deleted, readers find lines in order, without a gap, and all those
// of files that are there.
func TestReadersWhileFilesChange(t *testing.T) {
	l := open(t, t.TempDir(), Config{SealAt: 3_000})
	last := tests.Size(500, 2_000, 10_000)
	// deletions is odd while files may be deleted.
	var stored, deletions atomic.Int64
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
	check := func() {
		before, deleted := uint64(stored.Load()), deletions.Load()
		lines := inPages(t, l, byte(rand.IntN(3)), 1+rand.IntN(50))
		whole := deleted%2 == 0 && deleted == deletions.Load()
		for i := range lines[min(1, len(lines)):] {
			if lines[i+1].Sequence != lines[i].Sequence+1 && whole {
				t.Errorf("line %d follows line %d", lines[i+1].Sequence, lines[i].Sequence)
			}
		}
		if n := len(lines); before > 0 && (n == 0 || lines[n-1].Sequence < before) {
			t.Errorf("%d lines up to number %d were stored and are not read: %d lines", before, before, n)
		} else if n > 0 && lines[0].Sequence > 1 && whole && deleted == 0 {
			t.Errorf("the first line is %d, and nothing was deleted", lines[0].Sequence)
		}
	}
	repeat(check)
	repeat(check)
	repeat(func() {
		for _, err := range l.All(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	repeat(func() {
		time.Sleep(10 * time.Millisecond)
		if stored.Load() > int64(last/2) {
			deletions.Add(1)
			if err := l.Bound(200_000); err != nil {
				t.Error(err)
			}
			deletions.Add(1)
		}
	})
	for i := range uint64(last) {
		for run := range byte(3) {
			add(t, l, line(run, 1, i+1, fmt.Sprint("line ", i)))
		}
		stored.Store(int64(i + 1))
	}
	close(done)
	others.Wait()
	if len(l.files) < 2 {
		t.Errorf("%d files: nothing would be tried", len(l.files))
	}
	closeLogs(t, l)
	if _, err := l.Read(ctx, "t", line(1, 1, 1, "").Run, metastore.LogPosition{}, 0); err == nil {
		t.Error("lines are read from closed logs")
	}
	if err := l.Append(ctx, []metastore.LogLine{line(1, 1, 1, "")}); err == nil {
		t.Error("lines are stored in closed logs")
	}
}
