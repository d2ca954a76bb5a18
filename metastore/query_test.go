package metastore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Walks in parts see each job once, however many parts it takes, and one that changes meanwhile again.
func TestWalksInParts(t *testing.T) {
	const n = 2300
	ctx, st := t.Context(), memstore.Open(memstore.Config{})
	apply := func(tenant jobs.Tenant, commands ...kernel.Command) {
		t.Helper()
		batch := make([]kernel.Envelope, len(commands))
		for i, k := range commands {
			batch[i] = kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: tenant, Actor: "person:ann", Command: k}
		}
		for _, r := range st.Apply(ctx, batch) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	for _, tenant := range []jobs.Tenant{"a", "b"} {
		apply(jobs.DefaultTenant, kernel.SetTenant{Name: tenant, Create: true})
		var list []kernel.Command
		for i := range n {
			list = append(list, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("job-%d", i)), Kind: kernel.Triggered}})
		}
		apply(tenant, list...)
	}
	apply("a", kernel.Delete{Key: "job-7"})
	var keys []jobs.Key
	if err := metastore.EachDefinition(ctx, st, "a", func(part []*kernel.Definition) error {
		for _, d := range part {
			keys = append(keys, d.Key)
		}
		return nil
	}); err != nil || len(keys) != n-1 {
		t.Fatalf("%d jobs, %v: want %d", len(keys), err, n-1)
	}
	for i := range keys[1:] {
		if keys[i+1] <= keys[i] {
			t.Fatalf("%s comes after %s", keys[i+1], keys[i])
		}
	}
	seen, gone, last := map[kernel.Ref]int{}, 0, uint64(0)
	if err := metastore.EachChange(ctx, st, 0, func(part []*kernel.Definition) error {
		if len(seen) == 0 {
			apply("a", kernel.Pause{Key: "job-0"})
		}
		for _, d := range part {
			seen[d.Ref()]++
			if d.Gone() {
				gone++
			}
			if d.Change <= last {
				t.Fatalf("change %d comes after change %d", d.Change, last)
			}
			last = d.Change
		}
		return nil
	}); err != nil || len(seen) != 2*n || gone != 1 {
		t.Fatalf("%d jobs, %d deleted, %v: want %d", len(seen), gone, err, 2*n)
	}
	for ref, times := range seen {
		want := 1
		if ref == kernel.DefinitionRef("a", "job-0") {
			want = 2
		}
		if times != want {
			t.Errorf("%v was seen %d times, want %d", ref, times, want)
		}
	}
	if c, err := st.Counts(ctx, metastore.CountQuery{Tenant: "a", App: "app", Jobs: true}); err != nil || c.Jobs != n-1 {
		t.Errorf("%d jobs are counted, %v", c.Jobs, err)
	}
}

// A search by an argument finds the value however it is written.
func TestMatchesArguments(t *testing.T) {
	for _, c := range []struct {
		args, value string
		want        bool
	}{
		{`{"a":"c7"}`, "c7", true}, {`{"a": "c7"}`, "c8", false}, {`{"a":"\u00637"}`, "c7", true}, {`{"a":"x\/y"}`, "x/y", true}, {`{"a":7}`, "7", true},
		{`{"a":1.50}`, "1.50", true}, {`{"b":"c7"}`, "c7", false}, {`{"a":true}`, "true", true}, {`{"a":"é"}`, "é", true}, {"{\"a\":\"\xff\"}", "\uFFFD", true}, {``, "c7", false},
	} {
		q := metastore.RunQuery{Args: []metastore.Arg{{Path: "a", Value: c.value}}}
		if got := q.Matches(&kernel.Run{Args: []byte(c.args)}); got != c.want {
			t.Errorf("%s with %q: %v", c.args, c.value, got)
		}
	}
}
