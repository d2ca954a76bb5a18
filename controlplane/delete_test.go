package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// A deletion whose signal got lost is caught by the look at what changed, and so is what comes after it under the key.
func TestTheCatalogLearnsOfADeletion(t *testing.T) {
	ctx, st := t.Context(), memstore.Open(memstore.Config{})
	n := 0
	send := func(k kernel.Command) {
		t.Helper()
		n++
		if r := st.Apply(ctx, []kernel.Envelope{{ID: kernel.DerivedID(fmt.Sprint(n)), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	register := func(kind kernel.Kind) {
		t.Helper()
		k := kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: "report", Kind: kind}}
		if kind == kernel.Recurring {
			k.Job.Code.Schedule = new("@every 1m")
		}
		send(k)
	}
	var c catalog
	c.init()
	look := func(want int) *kernel.Definition {
		t.Helper()
		if err := c.look(ctx, st); err != nil {
			t.Fatal(err)
		}
		if due, _ := c.dueBy(time.Now().Add(2*time.Minute), 10); len(due) != want || len(c.entries) != want {
			t.Fatalf("%d jobs are due, %d are known, want %d", len(due), len(c.entries), want)
		} else if want > 0 {
			c.back(due[0], due[0].def)
			return due[0].def
		}
		return nil
	}
	register(kernel.Recurring)
	if err := c.load(ctx, st); err != nil {
		t.Fatal(err)
	}
	first := look(1)
	send(kernel.Delete{Key: "report"})
	look(0)
	register(kernel.Recurring)
	second := look(1)
	if second.UID == first.UID {
		t.Error("a job that was deleted and made again is the same")
	}
	// Two changes are seen as one.
	send(kernel.Delete{Key: "report"})
	gone, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*", Since: second.Change})
	if err != nil || len(gone) != 1 {
		t.Fatalf("what changed is %v, %v", gone, err)
	}
	register(kernel.Recurring)
	third := look(1)
	if third.UID == second.UID {
		t.Error("the catalog has missed a life of the job")
	}
	// The older row comes late.
	c.put(gone[0], nil)
	c.put(second, nil)
	if now := look(1); now.UID != third.UID {
		t.Error("the catalog went back to an earlier life of the job")
	}
	send(kernel.Delete{Key: "report"})
	register(kernel.Triggered)
	look(0)
	send(kernel.Delete{Key: "report"})
	register(kernel.Recurring)
	look(1)
	c.mark(jobs.DefaultTenant, "report")
	send(kernel.Delete{Key: "report"})
	if err := c.reload(ctx, st); err != nil {
		t.Fatal(err)
	}
	look(0)
}
