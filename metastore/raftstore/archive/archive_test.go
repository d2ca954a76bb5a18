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

	berrors "go.etcd.io/bbolt/errors"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
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

func run(n int, rng *rand.Rand) *jobs.Instance {
	in := &jobs.Instance{
		Tenant: jobs.Tenant(fmt.Sprint("t", rng.IntN(2))), ID: jobs.ID{byte(n >> 16), byte(n >> 8), byte(n), 1},
		Key: jobs.Key(fmt.Sprint("k", rng.IntN(3))), Args: []byte(`{"n":1}`),
		State:   []jobs.State{jobs.Succeeded, jobs.Succeeded, jobs.Terminated, jobs.Cancelled}[rng.IntN(4)],
		Origin:  []jobs.Origin{jobs.FromCode, jobs.FromPerson}[rng.IntN(2)],
		Created: noon.Add(time.Duration(n) * time.Second), Ended: noon.Add(time.Duration(n+1) * time.Second),
	}
	if rng.IntN(3) > 0 {
		in.Worker = fmt.Sprint("w", rng.IntN(2))
	}
	if rng.IntN(4) == 0 {
		in.Parent = jobs.ID{9}
	}
	return in
}

func same(a, b *jobs.Instance) bool {
	return bytes.Equal(jobs.AppendRow(nil, a), jobs.AppendRow(nil, b))
}

func TestAgainstModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive.db")
	rng := rand.New(rand.NewPCG(1, 7))
	a := open(t, path, Config{Buffer: 50_000})
	type commit struct {
		entry uint64
		runs  []*jobs.Instance
	}
	var commits []commit
	var model []*jobs.Instance
	for step := range 120 {
		c := commit{entry: uint64(10 + 2*step)}
		for range rng.IntN(8) {
			c.runs = append(c.runs, run(len(model)+len(c.runs), rng))
		}
		model = append(model, c.runs...)
		commits = append(commits, c)
		a.Begin(c.entry)
		a.Append(c.runs)
		switch rng.IntN(10) {
		case 0:
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		case 1: // a restart, after which the log is replayed from somewhere
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a = open(t, path, Config{Buffer: 50_000})
			for _, c := range commits[rng.IntN(len(commits)):] {
				a.Begin(c.entry)
				a.Append(c.runs)
			}
		}
		for range 3 {
			q := metastore.InstanceQuery{Tenant: "t1", Limit: 1 + rng.IntN(9)}
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
				q.Origin = jobs.FromPerson
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
	if got, err := a.Get(ctx, "other", model[0].ID); got != nil || err != nil {
		t.Errorf("another tenant gets %v, %v", got, err)
	}
	if err := a.Sync(); err != nil {
		t.Fatal(err)
	}

	before := model[len(model)/2].Ended
	dropped, err := a.Prune(ctx, before, 0)
	if err != nil || dropped != len(model)/2 {
		t.Errorf("pruned %d, %v, want %d", dropped, err, len(model)/2)
	}
	model = model[dropped:]
	check(t, a, metastore.InstanceQuery{Tenant: "t1"}, model)
	check(t, a, metastore.InstanceQuery{Tenant: "t1", Job: "k1", State: jobs.Cancelled}, model)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, path, Config{})
	check(t, a, metastore.InstanceQuery{Tenant: "t0", Worker: "w0"}, model)
	_, size, err := a.Len(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Prune(ctx, time.Unix(0, 0), size/2); err != nil {
		t.Fatal(err)
	}
	if n, left, _ := a.Len(ctx); left > size/2 || n < len(model)/3 {
		t.Errorf("%d of %d runs and %d of %d bytes are left", n, len(model), left, size)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, a *Archive, q metastore.InstanceQuery, model []*jobs.Instance) {
	t.Helper()
	var got, want []*jobs.Instance
	for _, in := range slices.Backward(model) {
		if in.Tenant == q.Tenant && q.Matches(in) {
			want = append(want, in)
		}
	}
	for {
		page, err := a.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page.Instances...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("List(%+v) has %d runs, want %d", q, len(got), len(want))
	}
}

func TestForgedCursor(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "a.db"), Config{})
	defer a.Close()
	for _, cursor := range []string{"0", "-1", "zzzzzzzzzzzzzzzzzzzzz", "é", "1 "} {
		if _, err := a.List(ctx, metastore.InstanceQuery{Tenant: "t0", Cursor: cursor}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	path := filepath.Join(t.TempDir(), "archive.db")
	a := open(t, path, Config{})
	for i := range 2000 {
		a.Begin(uint64(i + 1))
		a.Append([]*jobs.Instance{run(i, rng)})
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole = bytes.TrimRight(whole, "\x00") // the file grows by large steps
	for what, damage := range map[string]func([]byte) []byte{
		"cut":      func(b []byte) []byte { return b[:len(b)/3] },
		"zeros":    func(b []byte) []byte { clear(b[3*4096 : len(b)/2]); return b },
		"a record": func(b []byte) []byte { b[bytes.LastIndex(b, []byte(`{"n":1}`))] ^= 1; return b },
		"no file":  func([]byte) []byte { return []byte(strings.Repeat("carillon", 10_000)) },
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hurt.db")
			if err := os.WriteFile(path, damage(slices.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			var told error
			a, err := Open(path, Config{Failed: func(err error) { told = err }})
			if err == nil {
				_, err = a.Get(ctx, "t0", jobs.ID{1})
				_ = a.Close()
				if err == nil || told == nil {
					t.Fatalf("a damaged archive answers, with %v; told was %v", err, told)
				}
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive.db")
	a := open(t, path, Config{})
	defer a.Close()
	began := time.Now()
	if _, err := Open(path, Config{}); !errors.Is(err, berrors.ErrTimeout) {
		t.Errorf("a second Open: %v", err)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("it took %v", d)
	}
}

// BenchmarkOpen shows how long the indexes of a million runs take to build.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "archive.db")
	rng := rand.New(rand.NewPCG(1, 9))
	a := open(b, path, Config{})
	began := time.Now()
	for i := range 1000 {
		a.Begin(uint64(i + 1))
		var rows []*jobs.Instance
		for j := range 1000 {
			in := run(1000*i+j, rng)
			in.Args = bytes.Repeat([]byte("x"), 100)
			in.Moves = make([]jobs.Move, 3)
			rows = append(rows, in)
		}
		a.Append(rows)
	}
	if err := a.Close(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%.0f rows/s written", 1e6/time.Since(began).Seconds())
	info, _ := os.Stat(path)
	b.Logf("%d bytes", info.Size())
	for b.Loop() {
		a := open(b, path, Config{})
		if err := a.ready(ctx); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = a.Close()
		b.StartTimer()
	}
}
