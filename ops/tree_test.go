package ops_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// lists counts the lists of runs that are read.
type lists struct {
	metastore.Store
	runs int
}

func (l *lists) Runs(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	l.runs++
	return l.Store.Runs(ctx, q)
}

// A family that is wider than its tree is read with one list, not with one for each child; a small one is whole.
func TestAWideFamilyIsReadAtOnce(t *testing.T) {
	d := newFixture(t)
	made := func(parent jobs.ID) jobs.ID {
		d.now = d.now.Add(time.Second)
		id := jobs.NewID(d.now)
		d.apply(kernel.Create{ID: id, Key: "app.work", Parent: parent})
		return id
	}
	root := made(jobs.ID{})
	first := made(root)
	below := made(first)
	for range 29 {
		made(root)
	}
	counted := &lists{Store: d.store}
	o := ops.New(ops.Config{Store: counted})
	tree, cut, err := o.Tree(t.Context(), ann, below, 10)
	if err != nil || len(tree) != 10 || !cut || tree[0].ID != root || tree[1].Depth != 1 || counted.runs != 1 {
		t.Errorf("a wide one: %d runs, %t, %v, with %d lists", len(tree), cut, err, counted.runs)
	}
	tree, cut, err = o.Tree(t.Context(), ann, below, 100)
	if err != nil || len(tree) != 32 || cut || tree[1].ID != first || tree[2].ID != below || tree[2].Depth != 2 {
		t.Errorf("the whole: %d runs, %t, %v", len(tree), cut, err)
	}
}
