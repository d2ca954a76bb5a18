package busstore_test

import (
	"iter"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

// A store behind a real server is the store, too.
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
			b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: node, InProcess: server})
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
			Store:  busstore.New(connect(), node),
			Agenda: local,
			Clock:  clock,
			Rows:   func() iter.Seq[jobs.Row] { return engine.Capture().Rows() },
		}
	})
}
