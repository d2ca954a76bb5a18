package controlplane

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// meanwhile is a store in which something happens just after the definitions were read.
type meanwhile struct {
	metastore.Full
	do func()
}

func (m *meanwhile) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	list, err := m.Full.Definitions(ctx, q)
	if m.do != nil {
		m.do()
		m.do = nil
	}
	return list, err
}

// A change that is signalled while the catalog is filled is not forgotten with what it held before.
func TestCatalogHeedsChangesWhileItIsFilled(t *testing.T) {
	full := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: time.Now}
	apply := func(k kernel.Command) {
		t.Helper()
		if r := full.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: "t", Actor: "person:ann", Command: k}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	apply(kernel.Register{App: "bells", Worker: "w", Start: true, Job: kernel.Declaration{Key: "ring", Kind: kernel.Recurring, Code: kernel.Settings{Schedule: new("0 * * * * *")}}})
	var c catalog
	c.init()
	if err := c.load(t.Context(), &meanwhile{full, func() { apply(kernel.Pause{Key: "ring"}); c.mark("t", "ring") }}); err != nil {
		t.Fatal(err)
	}
	if e := c.entries[kernel.DefinitionRef("t", "ring")]; e == nil || e.def.Paused == nil {
		t.Errorf("the catalog has %+v, and the job is paused", e)
	}
}
