package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

var (
	ctx  = context.Background()
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func open(t testing.TB, path string, c Config) *Archive {
	t.Helper()
	if c.Failed == nil {
		c.Failed = func(err error) { t.Errorf("the archive failed: %v", err) }
	}
	a, err := Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func run(n int, rng *rand.Rand) *kernel.Run {
	r := &kernel.Run{
		Tenant: jobs.Tenant(fmt.Sprint("t", rng.IntN(2))), ID: jobs.ID{byte(n >> 16), byte(n >> 8), byte(n), 1},
		Key: jobs.Key(fmt.Sprint("k", rng.IntN(3))), Args: []byte(`{"n":1}`),
		State:   []jobs.State{jobs.Succeeded, jobs.Succeeded, jobs.Terminated, jobs.Cancelled}[rng.IntN(4)],
		Origin:  []kernel.Origin{kernel.FromCode, kernel.FromPerson}[rng.IntN(2)],
		Created: noon.Add(time.Duration(n) * time.Second), Ended: noon.Add(time.Duration(n+1) * time.Second),
	}
	if rng.IntN(3) > 0 {
		r.Worker = fmt.Sprint("w", rng.IntN(2))
	}
	if rng.IntN(4) == 0 {
		r.Parent = jobs.ID{9}
	}
	r.Cause = map[jobs.State]kernel.Cause{jobs.Terminated: []kernel.Cause{kernel.ByError, kernel.ByTimeout}[rng.IntN(2)], jobs.Cancelled: kernel.ByPerson}[r.State]
	return r
}

func same(a, b *kernel.Run) bool {
	return bytes.Equal(kernel.AppendRow(nil, a), kernel.AppendRow(nil, b))
}

func TestAgainstModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive")
	rng := rand.New(rand.NewPCG(1, 7))
	conf := Config{Buffer: 50_000, SealAt: 4_000}
	a := open(t, path, conf)
	type commit struct {
		entry uint64
		runs  []*kernel.Run
	}
	var commits []commit
	var model, gone []*kernel.Run
	made := 0
	for step := range 400 {
		c := commit{entry: uint64(10 + 2*step)}
		for range rng.IntN(8) {
			c.runs = append(c.runs, run(made, rng))
			made++
		}
		model = append(model, c.runs...)
		commits = append(commits, c)
		a.Begin(c.entry)
		a.Append(c.runs)
		switch rng.IntN(10) {
		case 2, 3:
			r := retention{}
			for i := range 3 {
				r[jobs.Key(fmt.Sprint("k", i))] = kernel.Kept{Succeeded: rng.IntN(60), Others: rng.IntN(60), Since: noon.Add(time.Duration(rng.IntN(1+len(model)/2)) * time.Second)}
				if k := jobs.Key(fmt.Sprint("k", i)); rng.IntN(2) == 0 {
					young := r[k]
					young.Young = noon.Add(time.Duration(made-rng.IntN(80)) * time.Second)
					r[k] = young
				}
			}
			left := r.model(model)
			dropped, err := a.Retain(ctx, metastore.Retention{Of: r.of})
			if want := len(model) - len(left); err != nil || dropped.Dropped != want {
				t.Fatalf("step %d: %d runs were forgotten, %v, want %d", step, dropped.Dropped, err, want)
			}
			for _, in := range model {
				if !slices.Contains(left, in) {
					gone = append(gone, in)
				}
			}
			model = left
		case 0:
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		case 1: // a restart, after which the log is replayed from somewhere
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a = open(t, path, conf)
			for _, c := range commits[rng.IntN(len(commits)):] {
				a.Begin(c.entry)
				a.Append(c.runs)
			}
		}
		for range 3 {
			q := metastore.RunQuery{Tenant: "t1", Limit: 1 + rng.IntN(9)}
			if rng.IntN(2) == 0 {
				q.State = []jobs.State{jobs.Succeeded, jobs.Terminated, jobs.Cancelled, jobs.Skipped}[rng.IntN(4)]
			}
			if rng.IntN(3) == 0 {
				q.Job = "k1"
			}
			if rng.IntN(3) == 0 {
				q.Worker = "w1"
			}
			if rng.IntN(3) == 0 {
				q.Parent = jobs.ID{9}
			}
			if rng.IntN(3) == 0 {
				q.Origin = kernel.FromPerson
			}
			if rng.IntN(4) == 0 {
				q.Cause = kernel.ByError
			}
			if rng.IntN(3) == 0 {
				q.From = noon.Add(time.Duration(rng.IntN(400)) * time.Second)
			}
			check(t, a, q, model)
		}
	}
	for _, in := range model {
		got, err := a.Get(ctx, in.Tenant, in.ID)
		if err != nil || got == nil || !same(got, in) {
			t.Errorf("Get is %v, %v, want %v", got, err, in)
		}
	}
	for _, in := range gone {
		if got, err := a.Get(ctx, in.Tenant, in.ID); err != nil || got != nil {
			t.Errorf("a run that was forgotten is there: %v, %v", got, err)
		}
	}
	if len(gone) == 0 || len(model) == 0 {
		t.Errorf("%d runs were forgotten, %d are left", len(gone), len(model))
	}
	if got, err := a.Get(ctx, "other", model[0].ID); got != nil || err != nil {
		t.Errorf("another tenant gets %v, %v", got, err)
	}
	if err := a.Sync(); err != nil {
		t.Fatal(err)
	}

	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, path, conf)
	check(t, a, metastore.RunQuery{Tenant: "t0", Worker: "w0"}, model)
	if n, _, err := a.Len(ctx); err != nil || n != len(model) {
		t.Errorf("%d runs are left, %v, want %d", n, err, len(model))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// retention is what is kept by key.
type retention map[jobs.Key]kernel.Kept

func (r retention) of(_ jobs.Tenant, key jobs.Key) (kernel.Kept, error) { return r[key], nil }

// model is the remaining runs, oldest first.
func (r retention) model(runs []*kernel.Run) (left []*kernel.Run) {
	type class struct {
		tenant    jobs.Tenant
		key       jobs.Key
		succeeded bool
	}
	seen := map[class]int{}
	for _, run := range slices.Backward(runs) {
		k, c := r[run.Key], class{run.Tenant, run.Key, run.State == jobs.Succeeded}
		most := k.Others
		if c.succeeded {
			most = k.Succeeded
		}
		young := !k.Young.IsZero() && !run.Ended.Before(k.Young)
		if seen[c]++; (most == 0 || seen[c] <= most || young) && !run.Ended.Before(k.Since) {
			left = append(left, run)
		}
	}
	slices.Reverse(left)
	return left
}

func check(t *testing.T, a *Archive, q metastore.RunQuery, model []*kernel.Run) {
	t.Helper()
	var got, want []*kernel.Run
	for _, run := range slices.Backward(model) {
		if run.Tenant == q.Tenant && q.Matches(run) {
			want = append(want, run)
		}
	}
	for {
		page, err := a.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page.Runs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("List(%+v) has %d runs, want %d", q, len(got), len(want))
	}
}

func TestForgedCursor(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "archive"), Config{})
	defer a.Close()
	for _, cursor := range []string{"0", "-1", "zzzzzzzzzzzzzzzzzzzzz", "é", "1 "} {
		if _, err := a.List(ctx, metastore.RunQuery{Tenant: "t0", Cursor: cursor}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	path := filepath.Join(t.TempDir(), "archive")
	a := open(t, path, Config{})
	for i := range 2000 {
		a.Begin(uint64(i + 1))
		a.Append([]*kernel.Run{run(i, rng)})
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(path, "open"))
	if err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func([]byte) []byte{
		"cut":      func(b []byte) []byte { return b[:len(b)/3] },
		"zeros":    func(b []byte) []byte { clear(b[3*4096 : len(b)/2]); return b },
		"a record": func(b []byte) []byte { b[bytes.LastIndex(b, []byte(`{"n":1}`))] ^= 1; return b },
		"no file":  func([]byte) []byte { return []byte(strings.Repeat("carillon", 10_000)) },
		"empty":    func([]byte) []byte { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			hurt := filepath.Join(t.TempDir(), "archive")
			err := errors.Join(os.CopyFS(hurt, os.DirFS(path)), os.WriteFile(filepath.Join(hurt, "open"), damage(slices.Clone(whole)), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			a, err := Open(hurt, Config{})
			if err == nil {
				_ = a.Close()
				t.Fatal("a damaged archive opens")
			}
			if _, damaged := errors.AsType[*disk.Damaged](err); !damaged || !strings.Contains(err.Error(), hurt) {
				t.Errorf("the error is no damage, or does not name the file: %v", err)
			}
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive")
	a := open(t, path, Config{})
	defer a.Close()
	began := time.Now()
	if _, err := Open(path, Config{}); !errors.Is(err, disk.ErrInUse) {
		t.Errorf("a second Open: %v", err)
	}
	if d := time.Since(began); d > 20*lockTimeout {
		t.Errorf("it took %v", d)
	}
}

// BenchmarkOpen shows how long the indexes of a million runs take to build.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "archive")
	rng := rand.New(rand.NewPCG(1, 9))
	a := open(b, path, Config{})
	began := time.Now()
	for i := range 1000 {
		a.Begin(uint64(i + 1))
		var rows []*kernel.Run
		for j := range 1000 {
			r := run(1000*i+j, rng)
			r.Args = bytes.Repeat([]byte("x"), 100)
			r.Moves = make([]kernel.Move, 3)
			rows = append(rows, r)
		}
		a.Append(rows)
	}
	if err := a.Close(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%.0f rows/s written", 1e6/time.Since(began).Seconds())
	for b.Loop() {
		a := open(b, path, Config{})
		b.StopTimer()
		_ = a.Close()
		b.StartTimer()
	}
}
