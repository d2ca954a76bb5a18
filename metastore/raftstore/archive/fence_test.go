package archive

import (
	"math/rand/v2"
	"path/filepath"
	"sort"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// counting counts reads of a file.
type counting struct {
	reads int
	column
}

func (c *counting) ReadAt(b []byte, at int64) (int, error) {
	c.reads++
	return c.column.file.ReadAt(b, at)
}

// A list of a large segment is found with few reads, and is the one that a search of all entries finds.
func TestAListIsFoundWithFewReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive")
	rng := rand.New(rand.NewPCG(1, 8))
	a := open(t, path, Config{Buffer: 1 << 20, SealAt: 1 << 30})
	defer a.Close()
	const n = 5_000
	for i := range n {
		a.Begin(uint64(i + 1))
		a.Append([]*kernel.Run{run(i, rng)})
	}
	if err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	a.filing.Lock()
	err := a.seal()
	a.filing.Unlock()
	if err != nil || len(a.sealed) != 1 {
		t.Fatalf("%d segments, %v", len(a.sealed), err)
	}
	s := a.sealed[0]
	whole := s.view()
	hashes := make([]uint64, s.entries)
	for i := range hashes {
		hashes[i] = whole.entries.at(i) >> 32
	}
	if want := (s.entries + 511) / 512; len(s.fences) != want || want < 10 {
		t.Fatalf("%d fences of %d entries, want %d", len(s.fences), s.entries, want)
	}
	search := func(h uint64) {
		t.Helper()
		v := s.view()
		file := &counting{column: v.entries}
		v.entries.file = file
		if got, want := v.least(h), sort.Search(len(hashes), func(i int) bool { return hashes[i] >= h }); got != want || v.failed != nil {
			t.Errorf("hash %x: entry %d, %v; want %d", h, got, v.failed, want)
		}
		if file.reads > 1 {
			t.Errorf("hash %x: %d reads", h, file.reads)
		}
	}
	for i := 0; i < len(hashes); i += 7 {
		search(hashes[i])
		search(hashes[i] + 1)
	}
	for _, i := range []int{511, 512, 513, 1023, 1024, len(hashes) - 1} {
		search(hashes[i])
		search(hashes[i] + 1)
	}
	search(0)
	search(1 << 32)
	v := s.view()
	file := &counting{column: v.entries}
	v.entries.file = file
	if places := v.newest(&metastore.RunQuery{Tenant: "t0", Parent: jobs.ID{8}}, 0, 10); len(places) > 0 || file.reads > 1 {
		t.Errorf("runs of no parent: %v, with %d reads", places, file.reads)
	}
}
