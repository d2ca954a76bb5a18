package loglines

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

var ctx = context.Background()

func line(run byte, attempt uint32, sequence uint64, text string) metastore.LogLine {
	return metastore.LogLine{Tenant: "t", Run: jobs.ID{run}, LogPosition: metastore.LogPosition{Attempt: attempt, Sequence: sequence},
		At: time.Date(2026, 11, 21, 12, 0, int(sequence%60), 0, time.UTC), Level: "INFO", Text: text}
}

func open(t testing.TB, dir string, c Config) *Logs {
	t.Helper()
	if c.Damaged == nil {
		c.Damaged = func(err error) { t.Error(err) }
	}
	l, err := Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLogs(t testing.TB, l *Logs) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, l *Logs, run byte, after metastore.LogPosition, limit int) []metastore.LogLine {
	t.Helper()
	lines, err := l.Read(ctx, "t", jobs.ID{run}, after, limit)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func add(t testing.TB, l *Logs, lines ...metastore.LogLine) {
	t.Helper()
	if err := l.Append(ctx, lines); err != nil {
		t.Fatal(err)
	}
}

// inPages reads a run in pages.
func inPages(t testing.TB, l *Logs, run byte, limit int) (all []metastore.LogLine) {
	t.Helper()
	for after := (metastore.LogPosition{}); ; {
		page := read(t, l, run, after, limit)
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = page[limit-1].LogPosition
	}
}

func names(t testing.TB, l *Logs) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Lines arrive in any order, twice, over files and restarts; each is stored once, and is in its place on a page of any
// length.
func TestAgainstAModel(t *testing.T) {
	for seed := range uint64(tests.Size(5, 30, 300)) {
		rng := rand.New(rand.NewPCG(3, seed))
		c := Config{SealAt: []int64{1, 3_000, 20_000, 1 << 20}[rng.IntN(4)]}
		l := open(t, t.TempDir(), c)
		model := map[byte]map[metastore.LogPosition]metastore.LogLine{1: {}, 2: {}, 3: {}}
		for step := range 200 {
			var batch []metastore.LogLine
			for range rng.IntN(12) {
				run := byte(1 + rng.IntN(3))
				x := line(run, uint32(1+rng.IntN(3)), uint64(1+rng.IntN(30+step/2)), "")
				if _, known := model[run][x.LogPosition]; !known {
					x.Text = fmt.Sprint("line ", x.LogPosition, step)
					model[run][x.LogPosition] = x
				}
				batch = append(batch, x)
			}
			add(t, l, batch...)
			switch rng.IntN(20) {
			case 0:
				closeLogs(t, l)
				l = open(t, l.dir, c)
			case 1:
				l.lately.forget()
				for _, f := range l.files {
					f.old = true
				}
			case 2, 3:
				run, after, limit := byte(1+rng.IntN(3)), line(1, uint32(1+rng.IntN(3)), uint64(rng.IntN(100)), "").LogPosition, rng.IntN(20)
				want := ordered(model[run], after)
				if limit > 0 {
					want = want[:min(limit, len(want))]
				}
				if got := read(t, l, run, after, limit); !slices.Equal(got, want) {
					t.Fatalf("seed %d: run %d after %v: %d lines, want %d", seed, run, after, len(got), len(want))
				}
			}
		}
		for run, lines := range model {
			if got, want := inPages(t, l, run, 7), ordered(lines, metastore.LogPosition{}); !slices.Equal(got, want) {
				t.Errorf("seed %d: run %d: %d lines, want %d", seed, run, len(got), len(want))
			}
		}
		copied := open(t, t.TempDir(), c)
		if err := copied.Fill(l.All(ctx)); err != nil {
			t.Fatal(err)
		}
		if got, want := all(t, copied), all(t, l); !reflect.DeepEqual(got, want) || len(got) != 3 {
			t.Errorf("seed %d: a copy has %d runs, want %d", seed, len(got), len(want))
		}
		closeLogs(t, copied)
		closeLogs(t, l)
	}
}

func ordered(lines map[metastore.LogPosition]metastore.LogLine, after metastore.LogPosition) (all []metastore.LogLine) {
	for _, x := range lines {
		if x.Compare(after) > 0 {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b metastore.LogLine) int { return a.Compare(b.LogPosition) })
	return all
}

func all(t testing.TB, l *Logs) map[jobs.ID][]metastore.LogLine {
	t.Helper()
	by := map[jobs.ID][]metastore.LogLine{}
	for x, err := range l.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		by[x.Run] = append(by[x.Run], x)
	}
	return by
}

// An attempt's limit holds over files, restarts and copies, and one line notes it.
func TestLimitOfAnAttempt(t *testing.T) {
	c := Config{SealAt: 300_000}
	l := open(t, t.TempDir(), c)
	text := strings.Repeat("x", 8<<10)
	for i := range uint64(100) {
		add(t, l, line(1, 1, i+1, text))
	}
	closeLogs(t, l)
	l = open(t, l.dir, c)
	for i := range uint64(100) {
		add(t, l, line(1, 1, 101+i, text), line(1, 2, i+1, "another attempt"))
	}
	check := func(l *Logs) {
		t.Helper()
		lines := read(t, l, 1, metastore.LogPosition{}, 0)
		size, cuts, last := 0, 0, metastore.LogLine{}
		for _, x := range lines {
			if x.Attempt == 1 {
				size, last = size+x.Size(), x
			}
			if x.IsCut() {
				cuts++
			}
		}
		if size > metastore.MaxLog || size < metastore.MaxLog-10<<10 || !last.IsCut() || cuts != 1 {
			t.Errorf("%d bytes are kept, the last line is %.40q, %d say that lines are missing", size, last.Text, cuts)
		}
		if lines[len(lines)-1].Sequence != 100 || lines[len(lines)-1].Attempt != 2 {
			t.Errorf("the last line is %v", lines[len(lines)-1].LogPosition)
		}
	}
	check(l)
	copied := open(t, t.TempDir(), c)
	if err := copied.Fill(l.All(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Logs{l, copied} {
		closeLogs(t, l)
		l = open(t, l.dir, c)
		add(t, l, line(1, 1, 500, "too late"))
		check(l)
		closeLogs(t, l)
	}
}

// A file goes when its last line is old, also the one that grows; those of a wrong clock stay longer, and lines are in
// their places.
func TestPrune(t *testing.T) {
	real := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := real
	c := Config{SealAt: 1, Now: func() time.Time { return now }}
	l := open(t, t.TempDir(), c)
	add(t, l, line(1, 1, 1, "before"))
	now = real.AddDate(1, 0, 0)
	add(t, l, line(1, 1, 2, "ahead"))
	now = real.Add(time.Minute)
	for range 2 {
		add(t, l, line(1, 1, 1, "before"), line(1, 1, 2, "ahead"), line(1, 1, 3, "after"))
		closeLogs(t, l)
		l = open(t, l.dir, c)
	}
	texts := func(want string) {
		t.Helper()
		var got []string
		for _, x := range read(t, l, 1, metastore.LogPosition{}, 0) {
			got = append(got, x.Text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the lines are %q, want %q", got, want)
		}
		if n := len(names(t, l)); n != len(l.files) {
			t.Errorf("%d files are on disk, want %d", n, len(l.files))
		}
	}
	prune := func(before time.Time) {
		t.Helper()
		if err := l.Prune(before); err != nil {
			t.Fatal(err)
		}
	}
	texts("before ahead after")
	prune(real)
	texts("before ahead after")
	prune(real.Add(time.Second))
	texts("ahead after")
	prune(real.Add(time.Hour))
	texts("ahead")
	prune(real.AddDate(1, 0, 1))
	texts("")
	add(t, l, line(1, 1, 4, "later"))
	texts("later")
	closeLogs(t, l)
}

// The oldest files go while all of them take more bytes than they may.
func TestTheOldestLinesGoBeyondTheBytes(t *testing.T) {
	const most = 1 << 20
	l := open(t, t.TempDir(), Config{})
	for i := range 100 {
		for j := range uint64(4) {
			add(t, l, line(byte(i), 1, j+1, strings.Repeat("x", 8<<10)))
		}
		if err := l.Bound(most); err != nil {
			t.Fatal(err)
		}
		if size := l.Size(); size > most {
			t.Fatalf("after run %d: %d bytes, at most %d", i, size, most)
		}
	}
	if size := l.Size(); size < most*3/4 {
		t.Errorf("%d bytes are left of at most %d", size, most)
	}
	size, left := int64(0), 0
	for _, name := range names(t, l) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size != l.Size() {
		t.Errorf("files take %d bytes, Size is %d", size, l.Size())
	}
	for i := range 100 {
		n := len(read(t, l, byte(i), metastore.LogPosition{}, 0))
		if left += n; left > 0 && n == 0 {
			t.Errorf("run %d has no lines, and older ones have", i)
		}
	}
	if left < 80 {
		t.Errorf("%d lines are left", left)
	}
	closeLogs(t, l)
}

// A file that cannot be made blocks no reads, and is made when it can be.
func TestFileThatCannotBegin(t *testing.T) {
	l := open(t, t.TempDir(), Config{SealAt: 1})
	add(t, l, line(1, 1, 1, "before"))
	dir := l.dir
	l.dir = filepath.Join(dir, "missing")
	if err := l.Append(ctx, []metastore.LogLine{line(1, 1, 2, "after")}); err == nil {
		t.Error("a line is stored without a folder")
	}
	if n := len(read(t, l, 1, metastore.LogPosition{}, 0)); n != 1 {
		t.Errorf("%d lines are read, want 1", n)
	}
	l.dir = dir
	add(t, l, line(1, 1, 2, "after"))
	if n := len(read(t, l, 1, metastore.LogPosition{}, 0)); n != 2 {
		t.Errorf("%d lines are read, want 2", n)
	}
	closeLogs(t, l)
}

// Lines that could not be written are stored when they are sent again.
func TestWriteThatFails(t *testing.T) {
	l := open(t, t.TempDir(), Config{})
	add(t, l, line(1, 1, 1, "one"))
	sound := l.open.file
	broken, err := os.Open(l.open.path) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	l.open.file = broken
	if err := l.Append(ctx, []metastore.LogLine{line(1, 1, 2, "two")}); err == nil {
		t.Error("a line is stored in a file that cannot be written")
	}
	l.open.file = sound
	add(t, l, line(1, 1, 2, "two"), line(1, 1, 3, "three"))
	if n := len(read(t, l, 1, metastore.LogPosition{}, 0)); n != 3 {
		t.Errorf("%d lines are read, want 3", n)
	}
	_ = broken.Close()
	closeLogs(t, l)
}

// What is remembered of attempts is bounded, and continues from the files.
func TestAttemptsThatAreForgotten(t *testing.T) {
	l := open(t, t.TempDir(), Config{SealAt: 500_000})
	var batch []metastore.LogLine
	store := func(sequence uint64) {
		for i := range 3 * mostYoung {
			x := line(0, 1, sequence, "text")
			x.Run = jobs.ID{byte(i >> 16), byte(i >> 8), byte(i)}
			if batch = append(batch, x); len(batch) == 500 {
				add(t, l, batch...)
				batch = batch[:0]
			}
		}
	}
	store(1)
	store(2)
	store(2)
	if n := len(l.lately.young) + len(l.lately.old); n > 2*mostYoung {
		t.Errorf("%d attempts are remembered", n)
	}
	add(t, l, line(0, 1, 9, "a gap"), line(0, 1, 7, "a gap"))
	for i := 0; i < 3*mostYoung; i += 97 {
		id, want := jobs.ID{byte(i >> 16), byte(i >> 8), byte(i)}, 2
		if i == 0 {
			want = 4
		}
		if lines, err := l.Read(ctx, "t", id, metastore.LogPosition{}, 0); err != nil || len(lines) != want {
			t.Fatalf("run %v has %d lines, %v, want %d", id, len(lines), err, want)
		}
	}
	closeLogs(t, l)
}
