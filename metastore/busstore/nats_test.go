package busstore_test

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

// A store behind a real NATS server passes the same suite.
func TestStoreBehindNATS(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		server, err := embedded.Start(embedded.Config{DontListen: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
		node := bus.Principal{Tenant: "default", Role: bus.Node, Name: "n1"}
		connect := func() *natsbus.Bus {
			b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: node, InProcess: server, Retry: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		}
		clock, engine := storetest.NewClock(), memstore.New(memstore.Config{})
		local := &metastore.Local{Engine: engine, Now: clock.Now}
		if err := busstore.Serve(t.Context(), connect(), local, busstore.Config{}); err != nil {
			t.Fatal(err)
		}
		return storetest.Harness{
			Store:  busstore.Patient(busstore.New(connect(), node)),
			Agenda: local,
			Clock:  clock,
			Rows:   func() iter.Seq[kernel.Row] { return engine.Capture().Rows() },
		}
	})
}

// Cost of a command behind a server, for callers that send one each. The store's commit takes no time here.
func BenchmarkApplyBehindNATS(b *testing.B) {
	server, err := embedded.Start(embedded.Config{DontListen: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	node := bus.Principal{Tenant: "default", Role: bus.Node, Name: "n1"}
	connect := func() *natsbus.Bus {
		c, err := natsbus.Connect(b.Context(), "", natsbus.Config{As: node, InProcess: server})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
	if err := busstore.Serve(b.Context(), connect(), memstore.Open(memstore.Config{}), busstore.Config{}); err != nil {
		b.Fatal(err)
	}
	s := busstore.New(connect(), node)
	s.Apply(b.Context(), []kernel.Envelope{{Command: kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "charge", Kind: kernel.Triggered}}}})
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			b.ReportAllocs()
			var next atomic.Int64
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					for next.Add(1) <= int64(b.N) {
						id := jobs.NewID(time.Now())
						s.Apply(b.Context(), []kernel.Envelope{{ID: id, Command: kernel.Create{ID: id, Key: "charge", Args: []byte(`{"customer":"c7"}`)}}})
					}
				})
			}
			done.Wait()
		})
	}
}
