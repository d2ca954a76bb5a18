package replica

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

// A node that took a snapshot applies later entries as the node that wrote it does.
func TestRestoreThenApply(t *testing.T) {
	storetest.RestoreThenApply(t, func(t *testing.T, from *memstore.Engine) *memstore.Engine {
		var file bytes.Buffer
		if _, err := WriteSnapshot(&file, Head{Rules: kernel.FirstApplyVersion}, from.Capture().Stored()); err != nil {
			t.Fatal(err)
		}
		restored := memstore.New(memstore.Config{})
		_, rows := ReadSnapshot(&file, kernel.ApplyVersion)
		if err := restored.Restore(rows); err != nil {
			t.Fatal(err)
		}
		return restored
	})
}

// A snapshot of runs with the longest arguments is read back: what is written at once stays small.
func TestSnapshotOfLargeRuns(t *testing.T) {
	engine := memstore.New(memstore.Config{})
	one := kernel.Run{Tenant: jobs.DefaultTenant, Key: "k", State: jobs.Enqueued, Args: []byte(`"` + strings.Repeat("x", kernel.MaxArgs-2) + `"`)}
	rows := func(yield func(kernel.Row, error) bool) {
		for i := range 300 {
			run := one
			run.ID = kernel.DerivedID(fmt.Sprint(i))
			if !yield(&run, nil) {
				return
			}
		}
	}
	if err := engine.Restore(rows); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	head := Head{Rules: kernel.FirstApplyVersion}
	if _, err := WriteSnapshot(&file, head, engine.Capture().Stored()); err != nil {
		t.Fatal(err)
	}
	if file.Len() < 300*kernel.MaxArgs {
		t.Fatalf("a file of %d bytes", file.Len())
	}
	if is, err := VerifySnapshot(&file, head.Rules); err != nil || is != head {
		t.Errorf("%+v is read, %v", is, err)
	}
}
