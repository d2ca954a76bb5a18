package archive

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// replay appends n runs, each by an entry of its own, and writes after every 10th, but does not sync.
func replay(a *Archive, n int) {
	rng := rand.New(rand.NewPCG(1, 8))
	for i := range n {
		a.Begin(uint64(i + 1))
		a.Append([]*kernel.Run{run(i, rng)})
		if i%10 == 9 {
			a.flush()
		}
	}
}

// image is the files of an archive as a crash leaves them, changed by how.
func image(t *testing.T, a *Archive, how func(dir string)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "archive")
	a.filing.Lock()
	defer a.filing.Unlock()
	if err := os.CopyFS(dir, os.DirFS(a.dir)); err != nil {
		t.Fatal(err)
	}
	how(dir)
	return dir
}

func rewrite(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, how(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a crash leaves of the last writes is dropped, and the replayed log writes it again. Damage of what a caller of
// Sync relies on is no torn end.
func TestATornEnd(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "archive"), Config{})
	defer a.Close()
	replay(a, 50)
	if err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	synced := int(a.length)
	replay(a, 60)
	before := int(a.length)
	replay(a, 70)
	end := int(a.length)
	if synced == before || before == end {
		t.Fatalf("writes end at %d, %d, %d", synced, before, end)
	}
	left := image(t, a, func(string) {}) // before a copy syncs
	want := all(t, a)
	attempt := func(what string, damaged bool, how func([]byte) []byte) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "archive")
		if err := os.CopyFS(dir, os.DirFS(left)); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(dir, "open"), how)
		got, err := Open(dir, Config{SealAt: 10_000}) // more runs make a segment
		if damaged {
			if _, ok := errors.AsType[*disk.Damaged](err); !ok {
				t.Errorf("%s: it opens with %v", what, err)
			}
		}
		if err != nil {
			if !damaged {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		defer got.Close()
		replay(got, 70)
		if !bytes.Equal(all(t, got), want) {
			t.Errorf("%s: the runs are others", what)
		}
		replay(got, 80)
		if err := got.Sync(); err != nil || len(got.sealed) == 0 {
			t.Errorf("%s: %d segments, %v", what, len(got.sealed), err)
		}
	}
	for range tests.Size(8, 100, 1000) {
		at := synced + rand.IntN(end-synced)
		attempt(fmt.Sprintf("cut at %d", at), false, func(b []byte) []byte { return b[:at] })
		in := before + rand.IntN(end-before)
		attempt(fmt.Sprintf("a bit of the last write, at %d", in), false, func(b []byte) []byte { b[in] ^= 8; return b })
		attempt(fmt.Sprintf("zeros from %d", in), false, func(b []byte) []byte { clear(b[in:]); return b })
		early := synced + rand.IntN(before-synced)
		attempt(fmt.Sprintf("a bit of an earlier write, at %d", early), false, func(b []byte) []byte { b[early] ^= 8; return b })
		at = rand.IntN(synced)
		attempt(fmt.Sprintf("a bit at %d, which was synced", at), true, func(b []byte) []byte { b[at] ^= 8; return b })
		attempt(fmt.Sprintf("cut at %d, which was synced", at), true, func(b []byte) []byte { return b[:at] })
	}
	attempt("no file", true, func([]byte) []byte { return nil })
	attempt("garbage behind it", false, func(b []byte) []byte { return append(b, bytes.Repeat([]byte("no"), 50_000)...) })
	attempt("a block twice", false, func(b []byte) []byte { return append(b, b[before:end]...) })
	attempt("a block missing", false, func(b []byte) []byte { return slices.Delete(b, synced, before) })
}

// A crash at any step of sealing leaves all runs, once.
func TestCrashWhileSealing(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "archive"), Config{})
	defer a.Close()
	replay(a, 100)
	if _, err := a.Retain(ctx, metastore.Retention{Of: retention{"k0": {Succeeded: 3}}.of}); err != nil {
		t.Fatal(err)
	}
	want, index := all(t, a), &blocks.Writer{At: a.length, Last: a.filed}
	endSegment(index, a.index, a.after, a.filed)
	rename := func(dir string) string {
		path := filepath.Join(dir, nameOf(0))
		if err := errors.Join(writeGone(path, a.index.salt, a.index.hidden), os.Rename(filepath.Join(dir, "open"), path)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	with := func(dir string, n int) {
		rewrite(t, filepath.Join(dir, "open"), func(b []byte) []byte { return append(b, index.B[:n]...) })
	}
	for what, how := range map[string]func(dir string){
		"an index that is torn":     func(dir string) { with(dir, len(index.B)/2) },
		"an index without its end":  func(dir string) { with(dir, len(index.B)-3) },
		"an index":                  func(dir string) { with(dir, len(index.B)) },
		"a segment and no open one": func(dir string) { with(dir, len(index.B)); rename(dir) },
	} {
		dir := image(t, a, how)
		for range 2 {
			got := open(t, dir, Config{})
			if !bytes.Equal(all(t, got), want) {
				t.Errorf("%s: the runs are others", what)
			}
			if err := got.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := image(t, a, func(dir string) { // runs that are in two files
		with(dir, len(index.B))
		b, err := os.ReadFile(filepath.Join(dir, "open"))
		if rename(dir); err == nil {
			err = os.WriteFile(filepath.Join(dir, "open"), b[:len(b)-len(index.B)], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if _, err := Open(dir, Config{}); err == nil {
		t.Error("runs that are in two files are read")
	}
	dir = image(t, a, func(dir string) { // a segment that lost its runs' end is not taken for one without a name
		with(dir, len(index.B))
		rewrite(t, rename(dir), func(b []byte) []byte { return b[:len(b)-1] })
	})
	if _, err := Open(dir, Config{}); err == nil {
		t.Error("a segment that is cut opens")
	}
}

// A crash before the sources of a merged segment are deleted leaves each run once; they stay while the merged one is
// damaged.
func TestCrashWhileMerging(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "archive"), Config{SealAt: 4 << 10})
	defer a.Close()
	replay(a, 100)
	if _, err := a.Retain(ctx, metastore.Retention{Of: retention{"k0": {Succeeded: 3}}.of}); err != nil {
		t.Fatal(err)
	}
	want := all(t, a)
	if len(a.sealed) < 3 {
		t.Fatalf("%d segments", len(a.sealed))
	}
	sources := image(t, a, func(string) {})
	a.filing.Lock()
	if err := a.merge(0, 2); err != nil {
		t.Fatal(err)
	}
	a.filing.Unlock()
	if !bytes.Equal(all(t, a), want) {
		t.Error("merging changes runs")
	}
	both := func(dir string) { // the merged one, and all files that were there before
		files, err := os.ReadDir(sources)
		for _, f := range files {
			if _, exists := os.Stat(filepath.Join(dir, f.Name())); exists != nil && err == nil {
				var b []byte
				if b, err = os.ReadFile(filepath.Join(sources, f.Name())); err == nil {
					err = os.WriteFile(filepath.Join(dir, f.Name()), b, 0o600)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := open(t, image(t, a, both), Config{SealAt: 4 << 10})
	if !bytes.Equal(all(t, got), want) || len(got.sealed) != len(a.sealed) {
		t.Errorf("after a crash the runs are others, in %d segments", len(got.sealed))
	}
	if err := got.Close(); err != nil {
		t.Fatal(err)
	}
	dir := image(t, a, func(dir string) {
		both(dir)
		rewrite(t, filepath.Join(dir, nameOf(0)), func(b []byte) []byte { b[500] ^= 1; return b })
	})
	_, err := Open(dir, Config{})
	if _, ok := errors.AsType[*disk.Damaged](err); !ok {
		t.Errorf("a damaged merged segment opens: %v", err)
	}
	for _, f := range []string{nameOf(0), filepath.Base(segments(t, sources)[1])} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// errCut is the error of a connection that breaks.
var errCut = errors.New("the connection broke")

// transfer sends what an archive lacks over connections, each of which breaks after some bytes of a segment.
func transfer(t *testing.T, from, to *Archive, budget int64) (whole, breaks int) {
	t.Helper()
	for to.Last() < from.Last() {
		arrived := to.Arrived()
		err := from.Send(ctx, to.Last(), from.Last(), func(part []Record) error {
			part = slices.DeleteFunc(part, func(r Record) bool { return r.Damaged != nil })
			if len(part) == 0 {
				return nil
			}
			return to.Fill(ctx, part, part[len(part)-1].Number)
		}, func(w *Whole) error {
			at := arrived[w.ID]
			rest := make([]byte, w.Size-at)
			if _, err := w.ReadAt(rest, at); err != nil {
				return err
			}
			err := to.Receive(w.Head, at, w.Size, bytes.NewReader(rest[:min(budget, int64(len(rest)))]))
			if int64(len(rest)) > budget {
				if err == nil {
					t.Error("a part is taken for a segment")
				}
				return errCut
			}
			whole++
			return err
		})
		if err == nil {
			if err := to.Fill(ctx, nil, from.Last()); err != nil {
				t.Fatal(err)
			}
		} else if breaks++; !errors.Is(err, errCut) || breaks > 1000 {
			t.Fatal(err)
		}
	}
	return whole, breaks
}

// A node gets segments as they are, in parts if the connection breaks, and all other runs as records; purged runs are
// purged there, too.
func TestSegmentsAreSent(t *testing.T) {
	from := open(t, filepath.Join(sample(t), "archive"), Config{SealAt: 8 << 10})
	defer from.Close()
	for _, have := range []int{0, 3, 40} { // of the runs, before
		path := filepath.Join(t.TempDir(), "archive")
		to := open(t, path, Config{SealAt: 8 << 10})
		if have > 0 {
			var first []Record
			if err := from.Copy(ctx, 0, uint64(have)<<positionBits, func(part []Record) error {
				first = append(first, part...)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := to.Fill(ctx, first, first[len(first)-1].Number); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(path, "of-another-node"+partSuffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		whole, breaks := transfer(t, from, to, 3000)
		if whole == 0 || breaks == 0 || whole == len(from.sealed) && have > 0 {
			t.Errorf("%d of %d segments were sent, and the connection broke %d times", whole, len(from.sealed), breaks)
		}
		for range 2 {
			if !bytes.Equal(all(t, to), all(t, from)) {
				t.Errorf("with %d runs before, the copy is another", have)
			}
			is, _, _ := to.Len(ctx)
			if want, _, _ := from.Len(ctx); is != want {
				t.Errorf("with %d runs before, the copy has %d runs, want %d", have, is, want)
			}
			if len(to.Arrived()) > 0 {
				t.Errorf("parts stay: %v", to.Arrived())
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			to = open(t, path, Config{SealAt: 8 << 10})
		}
		again(t, to)
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// again sends an archive one of its own segments, which it refuses.
func again(t *testing.T, a *Archive) {
	t.Helper()
	want := all(t, a)
	err := a.Send(ctx, 0, a.Last(), func([]Record) error { return nil }, func(w *Whole) error {
		b := make([]byte, w.Size)
		if _, err := w.ReadAt(b, 0); err != nil {
			return err
		}
		if err := a.Receive(w.Head, 0, w.Size, bytes.NewReader(b)); err == nil {
			t.Error("runs that are here are taken again")
		}
		return nil
	})
	if err != nil || !bytes.Equal(all(t, a), want) || len(a.Arrived()) > 0 {
		t.Errorf("the runs are others, %v", err)
	}
}

// A segment that was changed on its way is refused, and one that is damaged where it lies goes as records, without
// what is damaged.
func TestADamagedSegmentIsNotTaken(t *testing.T) {
	dir := filepath.Join(sample(t), "archive")
	files := segments(t, dir)
	var number uint64
	damage(t, files[0], &number)
	flipByte(t, files[1], blocks.HeadSize/2) // only a head: each of its runs is intact
	from := open(t, dir, Config{SealAt: 8 << 10})
	defer from.Close()
	to := open(t, filepath.Join(t.TempDir(), "archive"), Config{SealAt: 8 << 10})
	defer to.Close()
	whole, _ := transfer(t, from, to, 1<<30)
	if want := len(from.sealed) - 2; whole != want {
		t.Errorf("%d segments were sent as they are, want %d", whole, want)
	}
	sent, got, lost := 0, 0, 0
	for _, err := range from.Ended(ctx, from.Last()) {
		if sent++; err != nil {
			lost++
		}
	}
	for _, err := range to.Ended(ctx, to.Last()) {
		if got++; err != nil {
			t.Error(err)
		}
	}
	if lost != 1 || got != sent-1 {
		t.Errorf("of %d runs, %d of them damaged, %d arrived", sent, lost, got)
	}

	fresh := open(t, filepath.Join(t.TempDir(), "archive"), Config{})
	defer fresh.Close()
	err := to.Send(ctx, 0, to.Last(), func([]Record) error { return nil }, func(w *Whole) error {
		b := make([]byte, w.Size)
		if _, err := w.ReadAt(b, 0); err != nil {
			return err
		}
		for range 100 {
			hurt := slices.Clone(b)
			hurt[rand.IntN(len(b))] ^= 1 << rand.IntN(8)
			if err := fresh.Receive(w.Head, 0, w.Size, bytes.NewReader(hurt)); err == nil {
				t.Fatal("a segment that has changed is taken")
			}
			if len(fresh.Arrived()) > 0 || fresh.Last() != 0 {
				t.Fatal("a part of it stays")
			}
		}
		return errCut
	})
	if !errors.Is(err, errCut) {
		t.Errorf("no segment was sent: %v", err)
	}
}

// Reading a damaged run is reported as damage, by the file's name; other runs of its block are read.
func TestGetOfADamagedRun(t *testing.T) {
	dir := filepath.Join(sample(t), "archive")
	var number uint64
	path := segments(t, dir)[0]
	damage(t, path, &number)
	a := open(t, dir, Config{SealAt: 8 << 10})
	defer a.Close()
	hurt, read := 0, 0
	rng := rand.New(rand.NewPCG(1, 8))
	for i := range 130 {
		r := run(i, rng)
		got, err := a.Get(ctx, r.Tenant, r.ID)
		switch _, damaged := errors.AsType[*disk.Damaged](err); {
		case damaged && strings.Contains(err.Error(), path) && number == uint64(i+1)<<positionBits|1:
			hurt++
		case err != nil:
			t.Errorf("run %d: %v", i, err)
		case got != nil:
			read++
		}
	}
	if n, _, _ := a.Len(ctx); hurt != 1 || read != n-1 {
		t.Errorf("%d runs are damaged, %d of %d are read", hurt, read, n)
	}
}
