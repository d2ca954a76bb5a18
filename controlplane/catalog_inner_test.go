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
		if r := full.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	apply(kernel.Register{App: "bells", Worker: "w", Start: true, Job: kernel.Declaration{Key: "ring", Kind: kernel.Recurring, Code: kernel.Settings{Schedule: new("0 * * * * *")}}})
	var c catalog
	c.init()
	if err := c.load(t.Context(), &meanwhile{full, func() { apply(kernel.Pause{Key: "ring"}); c.mark(jobs.DefaultTenant, "ring") }}); err != nil {
		t.Fatal(err)
	}
	if e := c.entries[jobName{jobs.DefaultTenant, "ring"}]; e == nil || e.near == nil || e.near.def.Paused == nil {
		t.Errorf("the catalog has %+v, and the job is paused", e)
	}
}

// A job that is due in months takes no definition's memory until then, and is due then.
func TestCatalogForgetsWhatIsFarAway(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	full := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return now }}
	apply := func(k kernel.Command) {
		t.Helper()
		if r := full.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for key, cron := range map[jobs.Key]string{"soon": "30 12 * * *", "far": "0 0 1 5 *"} {
		apply(kernel.Register{App: "bells", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Recurring, Code: kernel.Settings{Schedule: new(cron)}}})
	}
	c := catalog{now: func() time.Time { return now }}
	c.init()
	if err := c.load(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if c.entries[jobName{jobs.DefaultTenant, "soon"}].near == nil || c.entries[jobName{jobs.DefaultTenant, "far"}].near != nil {
		t.Error("the definition of the job that is due soon is not in memory, or the other one is")
	}
	may := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	if _, next := c.dueBy(now.Add(40*time.Minute), 10); !next.Equal(may) {
		t.Errorf("due next at %v", next)
	}
	now = may
	if due, next := c.dueBy(now, 10); len(due) != 0 || !next.Equal(now) {
		t.Errorf("%d jobs are due without a definition, and the next one at %v", len(due), next)
	}
	if err := c.reload(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	due, _ := c.dueBy(now, 10)
	if len(due) != 1 || due[0].def.Key != "far" || !due[0].next.Equal(may) || due[0].schedule == nil {
		t.Fatalf("due: %+v", due)
	}
	c.back(due[0], due[0].def) // it is still due: the fire was lost
	if due, _ = c.dueBy(now, 10); len(due) != 1 {
		t.Errorf("%d jobs are due after a lost fire", len(due))
	}
}
