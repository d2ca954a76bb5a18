package controlplane_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// A worker's token must not be able to fill a server's memory: what is kept of a worker's description is bounded.
func TestWorkerDescriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		billing := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "billing"})
		heartbeat := func(b bus.Bus, k bus.Heartbeat) error {
			_, err := b.Call(h.ctx, bus.ServiceHeartbeat, bus.Encode(k))
			return err
		}
		long := strings.Repeat("x", 1<<17) // all of it is one message
		loud := bus.WorkerInfo{App: "billing", Label: long, Host: long, Version: long, Slots: math.MaxInt, Tags: make([]string, 400), Keys: map[jobs.Key]int{"k": 1}}
		for i := range loud.Tags {
			loud.Tags[i] = long[:1000]
		}
		if err := heartbeat(billing, bus.Heartbeat{Worker: "billing-0", Info: &loud}); err != nil {
			t.Fatal(err)
		}
		kept := h.cp.Workers(jobs.DefaultTenant)
		if len(kept) != 1 || len(kept[0].Label) > 200 || len(kept[0].Host) > 200 || len(kept[0].Version) > 200 || len(kept[0].Tags) > kernel.MaxTags || len(kept[0].Tags[0]) > 200 || kept[0].Slots > 1_000_000 {
			t.Errorf("the kept description is as large as the sent one")
		}
		many := map[jobs.Key]int{}
		for i := range 10_001 {
			many[jobs.Key(fmt.Sprint("k", i))] = 1
		}
		for what, k := range map[string]bus.Heartbeat{
			"too many jobs":     {Worker: "billing-0", Info: &bus.WorkerInfo{App: "billing", Keys: many}},
			"a key that is not": {Worker: "billing-0", Info: &bus.WorkerInfo{App: "billing", Keys: map[jobs.Key]int{jobs.Key(long): 1}}},
			"too many attempts": {Worker: "billing-0", Running: make([]bus.Held, 10_001)},
		} {
			if err := heartbeat(billing, k); !errors.Is(err, jobs.BadInput) {
				t.Errorf("%s: %v", what, err)
			}
		}

		// A name has many workers, but not any number of them.
		start := func(b bus.Bus, name string, n int) (err error) {
			for i := range n {
				if err = heartbeat(b, bus.Heartbeat{Worker: fmt.Sprintf("%s-%d", name, i), Info: &bus.WorkerInfo{App: "billing"}}); err != nil {
					return err
				}
			}
			return nil
		}
		if err := start(billing, "billing", 256); err != nil {
			t.Errorf("256 workers: %v", err)
		}
		if err := start(billing, "billing", 257); !errors.Is(err, jobs.Exhausted) {
			t.Errorf("one more: %v", err)
		}
		if err := start(h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "other"}), "other", 1); err != nil {
			t.Errorf("another name: %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(h.cp.Workers(jobs.DefaultTenant)); n != 0 {
			t.Errorf("%d workers are left of those that have gone", n)
		}
		if err := start(billing, "billing", 1); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// With authentication, lines go into the logs of the sender's own attempts only, and as one of our workers would have
// written them.
func TestLogLinesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		logs := memstore.NewLogs(0)
		cp, err := controlplane.New(controlplane.Config{Node: "n1", Store: h.full, Clock: h.clock, Logs: logs, Logger: slog.New(slog.NewTextHandler(&h.logged, nil)),
			Bus:  h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}),
			Kept: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		h.use(cp)
		h.stop = h.spawn(cp.Run)
		synctest.Wait()
		h.must(kernel.Register{App: "billing", Worker: "b-1", Start: true, Job: kernel.Declaration{Key: "charge", Kind: kernel.Triggered, Code: kernel.Settings{Retries: new(3), RetryDelay: new(time.Millisecond)}}})
		run := jobs.NewID(time.Now())
		h.must(kernel.Create{ID: run, Key: "charge"})
		h.must(kernel.Start{ID: run, Worker: "b-1", Attempt: 1})
		h.must(kernel.Finish{ID: run, Worker: "b-1", Attempt: 1, Outcome: kernel.OutcomeError, Error: "x"})
		time.Sleep(time.Second)
		h.must(kernel.Start{ID: run, Worker: "c-1", Attempt: 2})
		send := func(name string, l metastore.LogLine) {
			t.Helper()
			worker := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name, App: "billing"})
			if err := worker.Signal(h.ctx, bus.Signal{Topic: bus.TopicLog, Data: metastore.EncodeLogLines([]metastore.LogLine{l})}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		at := func(attempt uint32, n uint64) metastore.LogPosition {
			return metastore.LogPosition{Attempt: attempt, Sequence: n}
		}
		send("b", metastore.LogLine{Run: run, LogPosition: at(1, 1), Level: "INFO", Text: "its own, late"})
		send("c", metastore.LogLine{Run: run, LogPosition: at(2, 1), Level: strings.Repeat("L", 1<<18), Text: strings.Repeat("x", 1<<18), At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
		send("c", metastore.LogLine{Run: run, LogPosition: at(1, 2), Text: "of another's attempt"})
		send("b", metastore.LogLine{Run: run, LogPosition: at(2, 2), Text: "of another's attempt"})
		send("b", metastore.LogLine{Run: run, LogPosition: at(99, 1), Text: "of an attempt that never was"})
		send("b", metastore.LogLine{Run: run, LogPosition: at(0, 1), Text: "of no attempt"})
		none := jobs.NewID(time.Now())
		send("b", metastore.LogLine{Run: none, LogPosition: at(1, 1), Text: "of a run that never was"})
		for range 100 {
			nonsense := bus.Signal{Topic: bus.TopicLog, Data: []byte("nonsense")}
			if err := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "b"}).Signal(h.ctx, nonsense); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := h.logged.count("log lines were dropped"); n != 1 {
			t.Errorf("%d lines about nonsense", n)
		}
		lines, err := logs.Read(h.ctx, "default", run, metastore.LogPosition{}, 10)
		if err != nil || len(lines) != 2 || lines[0].Text != "its own, late" {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		if l := lines[1]; len(l.Text) > 8<<10 || l.Level != "INFO" || l.At.Year() == 9999 {
			t.Errorf("a line of %d bytes, level %.20q, at %v", len(l.Text), l.Level, l.At)
		}
		if lines, err := logs.Read(h.ctx, "default", none, metastore.LogPosition{}, 10); err != nil || len(lines) != 0 {
			t.Errorf("a run that never was has %d lines, %v", len(lines), err)
		}
	})
}
