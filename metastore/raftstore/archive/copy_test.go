package archive

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A copy that is made while runs end has every run up to its last number.
func TestCopyWhileRunsEnd(t *testing.T) {
	dir := t.TempDir()
	from := open(t, filepath.Join(dir, "from"), Config{Buffer: 3000})
	defer from.Close()
	to := open(t, filepath.Join(dir, "to"), Config{})
	defer to.Close()
	const runs = 400
	done := make(chan struct{})
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(1, 10))
		from.Begin(1)
		for i := range runs / 10 {
			var some []*kernel.Run
			for j := range 10 {
				some = append(some, run(10*i+j, rng))
			}
			from.Append(some)
		}
	}()
	got := 0
	for got < runs {
		last := from.Last()
		err := from.Copy(ctx, to.Last(), last, func(part []Record) error {
			got += len(part)
			return to.Fill(ctx, part, part[len(part)-1].Number)
		})
		if err != nil {
			t.Fatal(err)
		}
		if last > 0 && got != int(last&(1<<positionBits-1)) {
			t.Fatalf("up to number %x there are %d runs", last, got)
		}
	}
	<-done
	if !bytes.Equal(all(t, from), all(t, to)) {
		t.Error("the copy is another")
	}
	if n, size, err := to.Len(ctx); n != runs || size != from.bytes || err != nil {
		t.Errorf("the copy has %d runs and %d bytes, %v", n, size, err)
	}
}

func all(t *testing.T, a *Archive) (b []byte) {
	t.Helper()
	err := a.Copy(ctx, 0, a.Last(), func(part []Record) error {
		for _, r := range part {
			b = append(binary.BigEndian.AppendUint64(b, r.Number), r.Body...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Records that are out of order, or damaged, are refused; known ones are skipped; and the last number outlives the
// runs.
func TestFill(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 11))
	path := filepath.Join(t.TempDir(), "archive")
	a := open(t, path, Config{})
	var records []Record
	for i := range uint64(9) {
		records = append(records, Record{Number: i + 1, Body: appendRecord(nil, i+1, run(int(i), rng))})
	}
	hurt := slices.Clone(records)
	hurt[4].Body = bytes.Clone(hurt[4].Body)
	hurt[4].Body[40] ^= 1
	for what, bad := range map[string][]Record{"damage": hurt, "order": {records[1], records[0]}, "too far": {records[8]}} {
		if err := a.Fill(ctx, bad, 8); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if err := a.Fill(ctx, records[:5], 5); err != nil {
		t.Fatal(err)
	}
	if err := a.Fill(ctx, records, 20); err != nil {
		t.Fatal(err)
	}
	if n, _, err := a.Len(ctx); n != 9 || err != nil || a.Last() != 20 {
		t.Errorf("%d runs, %v, up to %d", n, err, a.Last())
	}
	all := func(jobs.Tenant, jobs.Key) (kernel.Kept, error) {
		return kernel.Kept{Since: noon.AddDate(1, 0, 0)}, nil
	}
	if n, err := a.Retain(ctx, metastore.Retention{Of: all}); n.Dropped != 9 || err != nil {
		t.Errorf("%d are forgotten, %v", n.Dropped, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, path, Config{})
	defer a.Close()
	if a.Last() != 20 {
		t.Errorf("it counts on from %d", a.Last())
	}
}
