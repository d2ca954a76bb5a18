package busstore

import (
	"iter"
	"testing"

	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

// A store behind a bus passes the same suite: stories, crowds and lives.
func TestStoreBehindMembus(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		clock, engine, hub := storetest.NewClock(), memstore.New(memstore.Config{}), membus.New()
		local := &metastore.Local{Engine: engine, Now: clock.Now}
		if err := Serve(t.Context(), hub.As(node), local, Config{}); err != nil {
			t.Fatal(err)
		}
		return storetest.Harness{
			Store:  Patient(New(hub.As(node), node)),
			Agenda: local,
			Clock:  clock,
			Rows:   func() iter.Seq[kernel.Row] { return engine.Capture().Rows() },
		}
	})
}
