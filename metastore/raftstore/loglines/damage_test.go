package loglines

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

const (
	runs   = 7  // of a sample
	writes = 30 // of lines of each, in a block each time
)

// sample is a folder with sealed files and one that grows. Each line's text names the write that it came with.
func sample(t *testing.T) (dir string) {
	t.Helper()
	l := open(t, t.TempDir(), Config{SealAt: 4_000})
	for i := range uint64(writes) {
		var batch []metastore.LogLine
		for run := range byte(runs) {
			batch = append(batch, line(run, 1, 2*i+1, fmt.Sprint("write ", i)), line(run, 1, 2*i+2, fmt.Sprint("write ", i)))
		}
		add(t, l, batch...)
	}
	if len(l.files) < 3 || l.open == nil {
		t.Fatalf("%d files", len(l.files))
	}
	closeLogs(t, l)
	return l.dir
}

// damagedCopy is a copy of a folder with other bytes in a file.
func damagedCopy(t *testing.T, dir, file string, b []byte) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "logs")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// missing reads all runs of a sample and returns the writes of which lines are missing. A line that differs is an
// error.
func missing(t *testing.T, l *Logs, what string) (lost []uint64) {
	t.Helper()
	there := map[string]bool{}
	for run := range byte(runs) {
		for _, x := range inPages(t, l, run, 8) {
			if want := fmt.Sprint("write ", (x.Sequence-1)/2); x.Text != want || x.Attempt != 1 {
				t.Fatalf("%s: line %v is %q, want %q", what, x.LogPosition, x.Text, want)
			}
			there[fmt.Sprint(run, " ", x.Sequence)] = true
		}
	}
	for i := range uint64(writes) {
		for run := range byte(runs) {
			if (!there[fmt.Sprint(run, " ", 2*i+1)] || !there[fmt.Sprint(run, " ", 2*i+2)]) && !slices.Contains(lost, i) {
				lost = append(lost, i)
			}
		}
	}
	return lost
}

// One wrong bit anywhere costs the lines of one block at most, and is reported with its place; all others are read,
// later lines are stored, and the file keeps its bytes. So it is in a file that is open already.
func TestABitOfALog(t *testing.T) {
	dir := sample(t)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range []string{files[0], files[len(files)-1]} {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(whole); at += tests.Size(97, 7, 3) {
			for _, running := range []bool{false, true} {
				what := fmt.Sprintf("%s, byte %d of %d, running %v", filepath.Base(file), at, len(whole), running)
				flipped := slices.Clone(whole)
				flipped[at] ^= 1 << (at % 8)
				first := flipped
				if running {
					first = whole
				}
				var reports []string
				c := Config{SealAt: 4_000, Damaged: func(err error) { reports = append(reports, err.Error()) }}
				l := open(t, damagedCopy(t, dir, file, first), c)
				path := filepath.Join(l.dir, filepath.Base(file))
				if err := os.WriteFile(path, flipped, 0o600); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					lost := missing(t, l, what)
					if len(lost) > 1 || len(lost) == 1 && len(reports) == 0 {
						t.Fatalf("%s: lines of writes %v are missing, reported %q", what, lost, reports)
					}
					for _, r := range reports {
						if !strings.Contains(r, path) || !strings.Contains(r, "offset") {
							t.Fatalf("%s: reported %q", what, r)
						}
					}
					add(t, l, line(200, 1, 1, "one more"))
					if n := len(read(t, l, 200, metastore.LogPosition{}, 0)); n != 1 {
						t.Fatalf("%s: %d later lines are read", what, n)
					}
					closeLogs(t, l)
					l = open(t, l.dir, c)
				}
				closeLogs(t, l)
				if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, flipped) {
					t.Fatalf("%s: the file has other bytes, %v", what, err)
				}
			}
		}
	}
}

// A file that ends anywhere, with zeros or garbage behind it, has all lines before that place, and takes more.
func TestATornEnd(t *testing.T) {
	dir := sample(t)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	file := files[len(files)-1]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64 // of blocks
	for scan := (blocks.Scanner{File: bytes.NewReader(whole), Size: int64(len(whole))}); scan.At < scan.Size; ends = append(ends, scan.At) {
		if _, _, err := scan.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; at <= len(whole); at += tests.Size(61, 7, 3) {
		intact := 0
		for intact < len(ends) && ends[intact] <= int64(at) {
			intact++
		}
		for kind, tail := range map[string][]byte{"cut": nil, "zeros": make([]byte, 300), "garbage": bytes.Repeat([]byte("no"+blocks.Title), 100)} {
			what := fmt.Sprintf("%s at %d of %d", kind, at, len(whole))
			l := open(t, damagedCopy(t, dir, file, append(slices.Clip(whole[:at]), tail...)), Config{SealAt: 4_000, Damaged: func(error) {}})
			for range 2 {
				if lost := missing(t, l, what); len(lost) != len(ends)-intact {
					t.Fatalf("%s: %d writes are missing, want %d", what, len(lost), len(ends)-intact)
				}
				add(t, l, line(200, 1, 1, "one more"), line(200, 1, 2, "another"))
				if n := len(read(t, l, 200, metastore.LogPosition{}, 0)); n != 2 {
					t.Fatalf("%s: %d later lines are read", what, n)
				}
				closeLogs(t, l)
				l = open(t, l.dir, l.cfg)
			}
			var again []metastore.LogLine
			for i := range uint64(2 * writes) {
				for run := range byte(runs) {
					again = append(again, line(run, 1, i+1, fmt.Sprint("write ", i/2)))
				}
			}
			add(t, l, again...)
			if lost := missing(t, l, what); len(lost) > 0 {
				t.Fatalf("%s: writes %v are missing though they were sent again", what, lost)
			}
			closeLogs(t, l)
		}
	}
}

// A crash at any step of sealing loses nothing: the file has no index, a part of it, all of it, or a next file.
func TestCrashWhileSealing(t *testing.T) {
	l := open(t, sample(t), Config{SealAt: 4_000})
	file := l.open.path
	before := l.open.length
	if err := l.seal(); err != nil {
		t.Fatal(err)
	}
	closeLogs(t, l)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := int(before); at <= len(whole); at += tests.Size(23, 3, 1) {
		what := fmt.Sprintf("sealed up to byte %d of %d", at, len(whole))
		c := Config{SealAt: 4_000, Damaged: func(err error) {
			if at == len(whole) || at == int(before) {
				t.Errorf("%s: %v", what, err)
			}
		}}
		l := open(t, damagedCopy(t, l.dir, file, whole[:at]), c)
		if (l.open == nil) != (at == len(whole)) {
			t.Errorf("%s: the file that grows is %v", what, l.open)
		}
		for i := range 3 {
			if lost := missing(t, l, what); len(lost) > 0 {
				t.Fatalf("%s: writes %v are missing", what, lost)
			}
			add(t, l, line(200, 1, uint64(i+1), strings.Repeat("x", 4_000)))
			closeLogs(t, l)
			l = open(t, l.dir, c)
			if n := len(read(t, l, 200, metastore.LogPosition{}, 0)); n != i+1 {
				t.Fatalf("%s: %d later lines are read", what, n)
			}
		}
		closeLogs(t, l)
	}
}

// The text of a line is not read as a block, even if the block that it is in is damaged.
func TestATextThatIsABlock(t *testing.T) {
	l := open(t, t.TempDir(), Config{})
	add(t, l, line(1, 1, 1, "victim"))
	salt := blocks.NewSalt() // that of the file is not known to who writes lines
	forged := blocks.Writer{Last: 1000}
	text := line(1, 1, 2, "forged")
	forged.Record(blocks.Lines, 1001, func(b []byte) []byte {
		return appendRecord(b, &salt, &label{attempt: attempt{name{"t", jobs.ID{1}}, 1}, first: 2, count: 1}, []metastore.LogLine{text})
	})
	forged.End(0)
	forged.Begin(blocks.Index)
	forged.End(1 << 60)
	at := l.open.length
	add(t, l, line(2, 1, 1, string(forged.B)))
	add(t, l, line(3, 1, 1, "after"))
	path := l.open.path
	closeLogs(t, l)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, l.dir, Config{Damaged: func(error) {}})
	if got := read(t, l, 1, metastore.LogPosition{}, 0); len(got) != 1 || got[0].Text != "victim" {
		t.Errorf("the lines are %v", got)
	}
	if got := read(t, l, 3, metastore.LogPosition{}, 0); len(got) != 1 {
		t.Errorf("%d lines behind the damage are read, want 1", len(got))
	}
	if l.last > 10 {
		t.Errorf("the last record has number %d", l.last)
	}
	x := index{}
	foot := blocks.Writer{At: l.open.length}
	x.seal(&foot, &salt, 0)
	add(t, l, line(3, 1, 2, string(foot.B)))
	closeLogs(t, l)
	l = open(t, l.dir, Config{Damaged: func(error) {}})
	if l.open == nil || len(read(t, l, 3, metastore.LogPosition{}, 0)) != 2 {
		t.Error("the text of the last line is taken for a foot")
	}
	closeLogs(t, l)
}

// A file whose lines are unreadable is not taken for an old one.
func TestDamageIsNotPruned(t *testing.T) {
	dir := sample(t)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := range b {
			b[at] ^= 1
		}
		l := open(t, damagedCopy(t, dir, file, b), Config{Damaged: func(error) {}})
		if err := l.Prune(time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if n := len(names(t, l)); n != len(files) {
			t.Errorf("of %d files %d are left", len(files), n)
		}
		closeLogs(t, l)
	}
}

// Two runs whose names have the same hash have their own lines, on pages of any length.
func TestRunsWithOneHash(t *testing.T) {
	l := open(t, t.TempDir(), Config{})
	add(t, l, line(1, 1, 1, "first"))
	f, seen := l.open, map[uint32]jobs.ID{}
	var pair [2]jobs.ID
	for i := uint32(0); pair[0].IsZero(); i++ {
		id := jobs.ID{9, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		h := f.hash(name{"t", id})
		if other, known := seen[h]; known {
			pair = [2]jobs.ID{other, id}
		}
		seen[h] = id
	}
	of := func(run jobs.ID, first, last uint64) (lines []metastore.LogLine) {
		for i := first; i <= last; i++ {
			x := line(0, 1, i, fmt.Sprint(run, i))
			x.Run = run
			lines = append(lines, x)
		}
		return lines
	}
	add(t, l, of(pair[0], 1, 40)...)
	add(t, l, of(pair[1], 2, 3)...)
	add(t, l, of(pair[1], 5, 6)...)
	add(t, l, of(pair[1], 1, 1)...)
	add(t, l, of(pair[0], 41, 42)...)
	for _, sealed := range []bool{false, true} {
		if sealed {
			if err := l.seal(); err != nil {
				t.Fatal(err)
			}
		}
		for i, n := range []int{42, 5} {
			for limit := 1; limit < 45; limit++ {
				var got []metastore.LogLine
				for after := (metastore.LogPosition{}); ; after = got[len(got)-1].LogPosition {
					page, err := l.Read(ctx, "t", pair[i], after, limit)
					if err != nil {
						t.Fatal(err)
					}
					if got = append(got, page...); len(page) < limit {
						break
					}
				}
				if len(got) != n {
					t.Fatalf("sealed %v: run %d in pages of %d: %d lines, want %d", sealed, i, limit, len(got), n)
				}
				for _, x := range got {
					if x.Text != fmt.Sprint(pair[i], x.Sequence) {
						t.Fatalf("sealed %v: run %d has %q as line %d", sealed, i, x.Text, x.Sequence)
					}
				}
			}
		}
	}
	closeLogs(t, l)
}
