package replica

import (
	"bytes"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
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
