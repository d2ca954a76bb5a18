package memdb

import (
	"sync"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// Histories is the finished runs of a log, in memory. All nodes write them, each run once.
type Histories struct {
	metastore.Archive

	mu   sync.Mutex
	last number
}

// number is the place of a run: the entry that settled it, and its place among the runs of that entry.
type number struct {
	entry uint64
	place int
}

// NewHistories makes one without runs.
func NewHistories() *Histories { return &Histories{Archive: memstore.NewArchive(0)} }

// Node is the history as a node writes it.
func (h *Histories) Node() replica.History { return &history{Histories: h} }

type history struct {
	*Histories
	next number
}

func (h *history) Begin(index uint64) { h.next = number{index, 0} }

func (h *history) Append(runs []*kernel.Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range runs {
		if h.next.entry > h.last.entry || h.next.entry == h.last.entry && h.next.place > h.last.place {
			h.Archive.Append(runs[i : i+1])
			h.last = h.next
		}
		h.next.place++
	}
}
