package memstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// manyJobs yields rows of n jobs, whose names and change numbers are in no order, as a snapshot has them.
func manyJobs(n int) func(func(kernel.Row, error) bool) {
	return func(yield func(kernel.Row, error) bool) {
		random := rand.New(rand.NewPCG(1, 2))
		names, changes := random.Perm(n), random.Perm(n)
		for i := range n {
			key := jobs.Key(fmt.Sprintf("job-%07d", names[i]))
			if !yield(&kernel.Definition{Tenant: "t", Key: key, UID: kernel.DerivedID("t", string(key)), Change: uint64(changes[i] + 1)}, nil) {
				return
			}
		}
	}
}

// A restored node has all its jobs, in their order. Sorting each one in as it came took minutes for a million; bench
// has the figure.
func TestRestoreOfManyJobs(t *testing.T) {
	n := tests.Size(10_000, 250_000, 250_000)
	var rows []kernel.Row
	for row := range manyJobs(n) {
		rows = append(rows, row)
	}
	e := New(Config{})
	if err := e.Restore(func(yield func(kernel.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		metastore.DefinitionQuery
		want int
	}{
		{metastore.DefinitionQuery{Tenant: "t"}, n},
		{metastore.DefinitionQuery{Tenant: "t", After: "job-0000099"}, n - 100},
		{metastore.DefinitionQuery{Tenant: "*", Since: uint64(n - 10)}, 10},
	} {
		list, err := e.Definitions(t.Context(), q.DefinitionQuery)
		if err != nil || len(list) != q.want {
			t.Fatalf("%+v: %d jobs, want %d: %v", q.DefinitionQuery, len(list), q.want, err)
		}
		for i, d := range list[1:] {
			if q.Since == 0 && d.Key <= list[i].Key {
				t.Fatalf("%+v: %s comes after %s", q.DefinitionQuery, d.Key, list[i].Key)
			}
		}
	}
	twice := func(yield func(kernel.Row, error) bool) {
		for range 2 {
			if !yield(&kernel.Definition{Key: "k"}, nil) {
				return
			}
		}
	}
	if err := New(Config{}).Restore(twice); err == nil {
		t.Error("a snapshot may hold a job twice")
	}
}
