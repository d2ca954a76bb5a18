package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A server continues with the directory of a program that embeds Carillon, with jobs, runs and logs, and the program
// continues with that of the server.
func TestServerAndEmbedShareALayout(t *testing.T) {
	data := t.TempDir()
	pack := jobs.Trigger[struct{}]("shop.pack")
	job := func() jobs.Job {
		return jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
			jobs.Log(ctx).Info("packing")
			return nil
		}), jobs.Options{Key: jobs.Key(pack)})
	}
	embedded := func(use func(s *embed.Scheduler)) {
		t.Helper()
		s, err := embed.Start(t.Context(), embed.Config{Dir: data, Worker: worker.Config{App: "shop"}}, job())
		if err != nil {
			t.Fatal(err)
		}
		use(s)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	var first jobs.Receipt
	embedded(func(s *embed.Scheduler) {
		var err error
		if first, err = pack.Enqueue(t.Context(), s.Client(), struct{}{}); err != nil {
			t.Fatal(err)
		}
		if run, err := s.Client().Wait(t.Context(), first.ID); err != nil || run.State != jobs.Succeeded {
			t.Fatalf("%+v, %v", run, err)
		}
		// Log lines arrive after the run's end, and those under way are lost when the scheduler stops.
		for last := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			answer := httptest.NewRecorder()
			s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/api/v1/runs/"+first.ID.String()+"/log", http.NoBody))
			if strings.Contains(answer.Body.String(), "packing") {
				break
			}
			if time.Now().After(last) {
				t.Fatalf("the run has no log: %s", answer.Body)
			}
		}
	})

	p := start(t, "server", "--data", data, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	p.get("/readyz", ok)
	p.get("/api/v1/jobs/shop.pack", ok)
	p.get("/api/v1/runs/"+first.ID.String(), contains(`"Succeeded"`))
	p.get("/api/v1/runs/"+first.ID.String()+"/log", contains("packing"))
	c, err := carillon.Dial(p.bus)
	if err != nil {
		t.Fatal(err)
	}
	second, err := pack.Enqueue(t.Context(), c, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	p.end()

	embedded(func(s *embed.Scheduler) {
		for _, id := range []jobs.ID{first.ID, second.ID} {
			if run, err := s.Client().Wait(t.Context(), id); err != nil || run.State != jobs.Succeeded {
				t.Errorf("%s: %+v, %v", id, run, err)
			}
		}
	})

	// The folder of the rows is not a data directory. Nothing is written to it.
	rows := filepath.Join(data, "rows")
	before, err := os.ReadDir(rows)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embed.Open(t.Context(), embed.Config{Dir: rows}); err == nil || !strings.Contains(err.Error(), "use "+data) {
		t.Errorf("embed opened the folder of the rows: %v", err)
	}
	for _, args := range [][]string{{"server", "--data", rows, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, {"store", "copy", "--from", rows, "--to", t.TempDir()},
		{"cluster", "repair", "--data", rows}, {"cluster", "recover", "--data", rows, "--yes"}} {
		out := newOutput()
		if code := execute(t.Context(), args, out, out); code == 0 || !strings.Contains(out.String(), "is the folder rows of a data directory: use "+data) {
			t.Errorf("%v ended with %d: %s", args, code, out)
		}
	}
	if after, err := os.ReadDir(rows); err != nil || len(after) != len(before) {
		t.Errorf("%d files in the folder of the rows, %d before (%v)", len(after), len(before), err)
	}
}
