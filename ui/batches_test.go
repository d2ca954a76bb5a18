package ui_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Batches are listed with how far they are, lead to their runs, and can be closed.
func TestBatchesPage(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/batches")
	s.has("without any", answer, body, 200, "No batches.")
	id := kernel.BatchID(jobs.DefaultTenant, hostile)
	s.apply(kernel.OpenBatch{ID: id, Name: hostile, Then: "app.work"})
	in, beside := jobs.NewID(time.Now()), jobs.NewID(time.Now())
	s.apply(kernel.Create{ID: in, Key: "app.work", Batch: id})
	s.apply(kernel.Create{ID: beside, Key: "app.work"})
	answer, body = s.get("/batches")
	s.has("open", answer, body, 200, "0 of 1 final", `<span class="tag ">open</span>`, `href="/runs?batch=`+id.String(), `href="/jobs/app.work"`, "/close")
	checkTables(t, "/batches", body)
	answer, body = s.get("/runs?batch=" + id.String())
	s.has("its runs", answer, body, 200, "/runs/"+in.String(), "!/runs/"+beside.String(), "/bulk/runs/cancel?batch="+id.String())
	answer, body = s.get("/bulk/runs/cancel?batch=" + id.String())
	s.has("all of its runs", answer, body, 200, id.String())
	answer, body = s.get("/runs?batch=" + jobs.NewID(time.Now()).String())
	s.has("another batch", answer, body, 404, "there is no batch")
	answer, body = s.post("/batches/"+id.String()+"/close", nil)
	s.has("to close it", answer, body, 303)
	s.apply(kernel.Cancel{ID: in})
	answer, body = s.get("/batches")
	s.has("ended", answer, body, 200, "1 of 1 final", "1 Cancelled", `<span class="tag warn">ended</span>`, "its last run", "!/close")
	answer, body = s.post("/batches/zzz/close", nil)
	s.has("an invalid ID", answer, body, 422)
}
