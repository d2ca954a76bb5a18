package daylogs

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
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

var ctx = context.Background()

func line(run byte, attempt uint32, sequence uint64, text string) metastore.LogLine {
	return metastore.LogLine{Tenant: "t", Run: jobs.ID{run}, LogPosition: metastore.LogPosition{Attempt: attempt, Sequence: sequence},
		At: time.Date(2026, 11, 21, 12, 0, int(sequence%60), 0, time.UTC), Level: "INFO", Text: text}
}

func open(t *testing.T, dir string) *Logs {
	t.Helper()
	return openAt(t, dir, time.Now)
}

func openAt(t *testing.T, dir string, now func() time.Time) *Logs {
	t.Helper()
	l, err := Open(dir, now, func(err error) { t.Log(err) })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func read(t *testing.T, l *Logs, run byte, after metastore.LogPosition, limit int) []metastore.LogLine {
	t.Helper()
	lines, err := l.Read(ctx, "t", jobs.ID{run}, after, limit)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func add(t *testing.T, l *Logs, lines ...metastore.LogLine) {
	t.Helper()
	if err := l.Append(ctx, lines); err != nil {
		t.Fatal(err)
	}
}

// Lines arrive in any order, twice, over days and restarts; each is stored once, and in its place.
func TestLinesInOrder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		l := open(t, dir)
		want := map[byte]map[metastore.LogPosition]metastore.LogLine{1: {}, 2: {}, 3: {}}
		for step := range 300 {
			var batch []metastore.LogLine
			for range rng.IntN(12) {
				run := byte(1 + rng.IntN(3))
				x := line(run, uint32(1+rng.IntN(2)), uint64(1+rng.IntN(30+step/2)), "")
				x.Text = fmt.Sprint("line ", x.LogPosition)
				want[run][x.LogPosition] = x
				batch = append(batch, x)
			}
			add(t, l, batch...)
			time.Sleep(time.Duration(rng.IntN(40)) * time.Minute)
			if rng.IntN(20) == 0 {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = open(t, dir)
			}
		}
		for run, lines := range want {
			var all []metastore.LogLine
			for _, x := range lines {
				all = append(all, x)
			}
			slices.SortFunc(all, func(a, b metastore.LogLine) int { return a.Compare(b.LogPosition) })
			var got []metastore.LogLine
			for after := (metastore.LogPosition{}); ; {
				page := read(t, l, run, after, 7)
				got = append(got, page...)
				if len(page) < 7 {
					break
				}
				after = page[6].LogPosition
			}
			if !reflect.DeepEqual(got, all) {
				t.Errorf("run %d: %d lines, want %d", run, len(got), len(all))
			}
		}
		if n := len(l.days); n < 3 {
			t.Errorf("%d days", n)
		}
		before := time.Now().Add(-24 * time.Hour)
		if err := l.Prune(before); err != nil {
			t.Fatal(err)
		}
		if l.days[0].date < before.UTC().Format(dateForm) {
			t.Errorf("%s is still there", l.days[0].date)
		}
		files, _ := os.ReadDir(dir)
		if len(files) != len(l.days) {
			t.Errorf("%d files for %d days", len(files), len(l.days))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLimitOfAnAttempt(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		text := strings.Repeat("x", 8<<10)
		for i := range uint64(100) {
			add(t, l, line(1, 1, i+1, text))
		}
		time.Sleep(24 * time.Hour)
		for i := range uint64(100) {
			add(t, l, line(1, 1, 101+i, text), line(1, 2, i+1, "another attempt"))
		}
		check := func() {
			t.Helper()
			lines := read(t, l, 1, metastore.LogPosition{}, 0)
			size, last := 0, metastore.LogLine{}
			for _, x := range lines {
				if x.Attempt == 1 {
					size, last = size+x.Size(), x
				}
			}
			if size > metastore.MaxLog || size < metastore.MaxLog-10<<10 || !strings.Contains(last.Text, "limit") {
				t.Errorf("%d bytes are kept, the last line is %.40q", size, last.Text)
			}
			if lines[len(lines)-1].Sequence != 100 || lines[len(lines)-1].Attempt != 2 {
				t.Errorf("the last line is %v", lines[len(lines)-1].LogPosition)
			}
		}
		check()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir)
		add(t, l, line(1, 1, 500, "too late"))
		check()
		_ = l.Close()
	})
}

func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	add(t, l, line(1, 1, 1, "one"), line(2, 1, 1, "other"))
	add(t, l, line(1, 1, 2, "two"))
	path := l.days[0].path
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := len(appendFrame(nil, []metastore.LogLine{line(1, 1, 2, "two")}, 1))
	zeros := append(slices.Clone(whole), make([]byte, 300)...)
	flipped := slices.Clone(whole)
	flipped[len(flipped)-2] ^= 1
	for what, b := range map[string][]byte{"head": whole[:len(whole)-last+5], "body": whole[:len(whole)-1], "zeros": zeros, "flipped": flipped} {
		t.Run(what, func(t *testing.T) {
			torn := filepath.Join(t.TempDir(), filepath.Base(path))
			if err := os.WriteFile(torn, b, 0o600); err != nil {
				t.Fatal(err)
			}
			l := open(t, filepath.Dir(torn))
			if lines := read(t, l, 1, metastore.LogPosition{}, 0); len(lines) < 1 || lines[0].Text != "one" {
				t.Errorf("lines are %v", lines)
			}
			add(t, l, line(1, 1, 2, "two"), line(1, 1, 3, "three"))
			_ = l.Close()
			l = open(t, filepath.Dir(torn))
			lines := read(t, l, 1, metastore.LogPosition{}, 0)
			if len(lines) != 3 || lines[1].Text != "two" || lines[2].Text != "three" {
				t.Errorf("after the repair lines are %v", lines)
			}
			_ = l.Close()
		})
	}
}

// A clock that was a year ahead for a moment leaves a day behind that takes no lines of the days until then; its
// lines are read in their place, and once.
func TestClockThatWasAhead(t *testing.T) {
	dir := t.TempDir()
	real := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := real
	l := openAt(t, dir, func() time.Time { return now })
	add(t, l, line(1, 1, 1, "before"))
	now = real.AddDate(1, 0, 0)
	add(t, l, line(1, 1, 2, "ahead"))
	now = real.Add(time.Minute)
	files := func(want ...string) {
		t.Helper()
		got, err := filepath.Glob(filepath.Join(dir, "*"))
		for i := range got {
			got[i] = strings.TrimSuffix(filepath.Base(got[i]), suffix)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("there are %v, want %v", got, want)
		}
	}
	const texts = "before ahead after later"
	for range 2 { // at once, and after opening it again
		add(t, l, line(1, 1, 1, "before"), line(1, 1, 2, "ahead"), line(1, 1, 3, "after"))
		now = now.AddDate(0, 0, 1)
		add(t, l, line(1, 1, 2, "ahead"), line(1, 1, 3, "after"), line(1, 1, 4, "later"))
		files("2026-11-22", "2026-11-23", "2027-11-22")
		var got []string
		for _, x := range read(t, l, 1, metastore.LogPosition{}, 0) {
			got = append(got, x.Text)
		}
		if strings.Join(got, " ") != texts {
			t.Errorf("the lines are %q", got)
		}
		now = now.AddDate(0, 0, -1)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openAt(t, dir, func() time.Time { return now })
	}
	now = now.AddDate(0, 0, 10)
	add(t, l, line(2, 1, 1, "ten days on"))
	if err := l.Prune(now); err != nil {
		t.Fatal(err)
	}
	files("2026-12-02", "2027-11-22")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A day whose file cannot be made does not block reads of the others, and begins when it can.
func TestDayThatCannotBegin(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	l := openAt(t, dir, func() time.Time { return now })
	add(t, l, line(1, 1, 1, "before"))
	now = now.AddDate(0, 0, 1)
	inTheWay := filepath.Join(dir, "2026-11-23"+suffix)
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(ctx, []metastore.LogLine{line(1, 1, 2, "after")}); err == nil {
		t.Error("a line is written into a folder")
	}
	if n := len(read(t, l, 1, metastore.LogPosition{}, 0)); n != 1 {
		t.Errorf("%d lines are read, want 1", n)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	add(t, l, line(1, 1, 2, "after"))
	if n := len(read(t, l, 1, metastore.LogPosition{}, 0)); n != 2 {
		t.Errorf("%d lines are read, want 2", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
