// Package storetest tests every store: by stories, with the expected effect of each command; by crowds that compete
// for the same run or slot; and by long random lives, compared with the store in memory.
//
// It is not promised to programs outside this module.
//
// Each store has one test that calls [Run]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			clock := storetest.NewClock()
//			return storetest.Harness{Store: mystore.Open(t.TempDir(), clock.Now), Clock: clock}
//		})
//	}
//
// Where to start: the stories in testdata, which show what the commands mean. script.go has the syntax.
package storetest

import (
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Harness is a store of its own for one case, and the means to control and inspect it. A store may lack some; the
// cases that need them are skipped.
type Harness struct {
	// Store is the tested store.
	Store metastore.Store
	// Agenda is a leader's reads; nil: Store itself if it has them, else none.
	Agenda metastore.Agenda
	// Clock is the clock that the store stamps its commits by; nil: it uses another, and no story is played.
	Clock *Clock
	// Rows are all rows as an engine in memory would capture them, in any order; nil: they cannot be seen.
	Rows func() iter.Seq[kernel.Row]
	// Retain purges; nil: Store does, or nothing can.
	Retain metastore.Retainer
	// Crash ends the store without warning and opens it again from what it left behind. It goes by the same clock.
	// The old harness is not used afterwards. Nil: nothing survives.
	Crash func(t *testing.T) Harness
	// Slow means that opening the store, or a commit, takes long: fewer lives and fewer crashes are tested.
	Slow bool
}

// agenda is what a leader reads of the store, or nil.
func (h *Harness) agenda() metastore.Agenda {
	if h.Agenda != nil {
		return h.Agenda
	}
	a, _ := h.Store.(metastore.Agenda)
	return a
}

// retainer purges runs, or is nil.
func (h *Harness) retainer() metastore.Retainer {
	if h.Retain != nil {
		return h.Retain
	}
	r, _ := h.Store.(metastore.Retainer)
	return r
}

// Start is the time at which a Clock begins.
var Start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Clock is a clock that changes only by Advance.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock makes a clock that shows Start.
func NewClock() *Clock { return &Clock{at: Start} }

// Now is the time it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance moves it on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Run tests a store; open makes a new one for each case. By default it plays one story in eight, as Sample does: the
// store in memory, which defines the meaning of the stories, gets all of them in any case.
func Run(t *testing.T, open func(t *testing.T) Harness) { Sample(t, tests.Size(8, 1, 1), open) }

// Sample tests a store, with only one story in so many, and one crowd in an eighth of that.
func Sample(t *testing.T, every int, open func(t *testing.T) Harness) {
	t.Run("stories", func(t *testing.T) {
		for i, s := range stories(t) {
			if i%every == 0 {
				t.Run(s.name, func(t *testing.T) { tellAll(t, s, open) })
			}
		}
	})
	t.Run("crowds", func(t *testing.T) { crowds(t, max(1, every/8), open) })
	t.Run("clients' clocks", func(t *testing.T) { skewed(t, open(t)) })
	t.Run("lives", func(t *testing.T) { lives(t, open) })
	t.Run("record", func(t *testing.T) {
		if every > 1 { // ten thousand commands
			tests.Long(t)
		}
		record(t, open)
	})
	t.Run("refusals", func(t *testing.T) { refusals(t, open) })
}
