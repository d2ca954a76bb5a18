package controlplane_test

import (
	"errors"
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

// Heartbeats, lease renewals and log lines of a worker are accepted only from that worker, of that tenant, in its own
// app.
func TestNoWorkerSpeaksForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		logs := memstore.NewLogs(0)
		cp, err := controlplane.New(controlplane.Config{Node: "n1", Store: h.full, Logs: logs,
			Bus:  h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}),
			Kept: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		h.use(cp)
		h.stop = h.spawn(cp.Run)
		synctest.Wait()

		h.must(kernel.Register{App: "billing", Worker: "billing-1", Start: true, Job: kernel.Declaration{Key: "charge", Kind: kernel.Triggered}})
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		run := jobs.NewID(time.Now())
		h.must(kernel.Create{ID: run, Key: "charge"})
		h.must(kernel.Start{ID: run, Worker: "billing-1", Attempt: 1})

		as := func(tenant jobs.Tenant, role bus.Role, name string) bus.Bus {
			p := bus.Principal{Tenant: tenant, Role: role, Name: name}
			if role == bus.Worker && name != "unknown" {
				p.App = name
			}
			return h.hub.As(p)
		}
		heartbeat := func(b bus.Bus, worker, app string) error {
			k := bus.Heartbeat{Worker: worker, Running: []bus.Held{{ID: run, Attempt: 1}}}
			if app != "" {
				k.Info = &bus.WorkerInfo{App: app}
			}
			_, err := b.Call(h.ctx, bus.ServiceHeartbeat, bus.Encode(k))
			return err
		}
		line := func(n uint64) []byte {
			return metastore.EncodeLogLines([]metastore.LogLine{{Run: run, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: n}, Text: "x"}})
		}
		billing := as("default", bus.Worker, "billing")
		if err := heartbeat(billing, "billing-1", "billing"); err != nil {
			t.Errorf("its own heartbeat: %v", err)
		}
		for what, err := range map[string]error{
			"another worker":     heartbeat(as("default", bus.Worker, "shipping"), "billing-1", "shipping"),
			"another app":        heartbeat(billing, "billing-1", "shipping"),
			"a client":           heartbeat(as("default", bus.Client, "billing"), "billing-1", ""),
			"a worker of no app": heartbeat(as("default", bus.Worker, "unknown"), "unknown-1", "billing"),
		} {
			if !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%s sends a heartbeat: %v", what, err)
			}
		}
		namesake := h.hub.As(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "billing", App: "shipping"})
		if err := as("default", bus.Client, "billing").Signal(h.ctx, bus.Signal{Topic: bus.TopicLog, Data: line(1)}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a client writes into the log: %v", err)
		}
		for n, b := range []bus.Bus{billing, namesake, as("default", bus.Worker, "shipping"), as("acme", bus.Worker, "billing")} {
			if err := b.Signal(h.ctx, bus.Signal{Topic: bus.TopicLog, Data: line(uint64(n + 1))}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if lines, err := logs.Read(h.ctx, "default", run, metastore.LogPosition{}, 10); err != nil || len(lines) != 1 {
			t.Errorf("%d lines in the log, %v", len(lines), err)
		}

		// Neither another tenant's worker of the same name nor another app's keeps the lease; its own heartbeats do.
		acme := as("acme", bus.Worker, "billing")
		for range 20 {
			time.Sleep(time.Second)
			if err := errors.Join(heartbeat(acme, "billing-1", "billing"), heartbeat(namesake, "billing-1", "shipping")); err != nil {
				t.Fatal(err)
			}
		}
		if r := h.run(run); r.State == jobs.Processing {
			t.Error("another tenant's heartbeats keep a run")
		}
	})
}
