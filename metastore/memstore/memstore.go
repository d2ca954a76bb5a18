// Package memstore stores rows in memory, with the indexes that make every read cheap.
//
// It is not promised to programs outside this module.
//
// [Open] is a store whose rows last as long as the process: for tests, and for programs that can lose them. [Engine]
// is the rows alone: other stores use it, log each commit before they apply it here, and take snapshots with
// [Engine.Capture].
//
// Where to start: space.go defines what is stored of a tenant, and files a row in its indexes; everything else reads
// those. Every index follows from the rows alone, never from the command that wrote them.
package memstore

import (
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config defines where an engine's settled runs go.
type Config struct {
	// Archive takes the finished runs. Default: NewArchive(0).
	Archive metastore.Archive
}

// Engine stores rows in memory. All methods may be called at the same time.
type Engine struct {
	archive metastore.Archive

	mu   sync.RWMutex
	rows *rows
}

var _ metastore.Engine = (*Engine)(nil)

// New makes an engine without rows.
func New(c Config) *Engine {
	if c.Archive == nil {
		c.Archive = NewArchive(0)
	}
	return &Engine{archive: c.Archive, rows: newRows()}
}

// Open makes a store that lasts as long as the process.
func Open(c Config) metastore.Full { return &metastore.Local{Engine: New(c)} }

// Update calls fn alone, with the rows. Runs that fn settles are in the archive when Update returns.
func (e *Engine) Update(fn func(metastore.Tx)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fn(tx{e.rows})
	if len(e.rows.ended) > 0 {
		e.archive.Append(e.rows.ended)
		clear(e.rows.ended)
		e.rows.ended = e.rows.ended[:0]
	}
}

// tx is the rows as a commit sees them.
type tx struct{ rows *rows }

func (t tx) Get(ref kernel.Ref) kernel.Row {
	if ref.Kind == kernel.RowStore {
		if t.rows.store == nil {
			return nil
		}
		return t.rows.store
	}
	s := t.rows.spaces[ref.Tenant]
	if s == nil {
		return nil
	}
	switch ref.Kind {
	case kernel.RowRun:
		if n := t.rows.node(s, ref.ID); n != nil {
			return t.rows.run(n)
		}
		if run := t.rows.settled.get(s.tenant, s.number, ref.ID); run != nil {
			return run
		}
	case kernel.RowDefinition:
		if d := s.definitions[jobs.Key(ref.Name)]; d != nil {
			return t.rows.definition(d)
		}
	case kernel.RowGate:
		if g := s.gates[ref.Name]; g != nil && g.row != nil {
			return g.row
		}
	case kernel.RowUnique:
		if u := s.uniques[ref.Name]; u != nil {
			return u.row
		}
	case kernel.RowMissed:
		if of := s.missed[ref.ID]; of != nil {
			if i, found := findMissed(of.list, time.Unix(0, ref.At)); found {
				return of.list[i]
			}
		}
	case kernel.RowTally:
		if of := s.tallies[ref.ID]; of != nil {
			if t, found := of.find(timed(ref.Span, ref.At)); found {
				return t.row(s.tenant, ref.ID)
			}
		}
	case kernel.RowGlobal:
		if s.global != nil {
			return s.global
		}
	case kernel.RowToken:
		if t := s.tokens[ref.Name]; t != nil {
			return t.row
		}
	case kernel.RowSession:
		if found := s.sessions[ref.Name]; found != nil {
			return found.row
		}
	case kernel.RowCalendar:
		if c := s.calendars[ref.Name]; c != nil {
			return c
		}
	case kernel.RowFollowers:
		if f := s.followers[jobs.Key(ref.Name)]; f != nil {
			return f
		}
	case kernel.RowOccasion:
		if o := s.occasions[ref.ID][ref.Name]; o != nil {
			return o
		}
	case kernel.RowBatch:
		if b := s.batches[ref.ID]; b != nil {
			return b
		}
	case kernel.RowAudit:
		if i, found := findAudit(s.audits, uint64(ref.At)); found {
			return s.audits[i]
		}
	case kernel.RowAlarm:
		if a := s.alarms.all[ref]; a != nil {
			return a
		}
	default:
		return s.plain[ref]
	}
	return nil
}

func (t tx) First(ref kernel.Ref) *kernel.Run {
	if s := t.rows.spaces[ref.Tenant]; s != nil {
		if g := s.gates[ref.Name]; g != nil && g.waiters.len() > 0 {
			return g.waiters.first().row
		}
	}
	return nil
}

func (t tx) Live(tenant jobs.Tenant, state jobs.State) int {
	s := t.rows.spaces[tenant]
	if s == nil {
		return 0
	}
	return s.states[state].n
}

func (t tx) Put(row kernel.Row) {
	r := t.rows
	switch row := row.(type) {
	case *kernel.Run:
		r.put(row)
	case *kernel.Definition:
		r.putDefinition(row)
	case *kernel.Gate:
		r.putGate(row)
	case *kernel.UniqueKey:
		r.putUnique(row)
	case *kernel.Missed:
		r.putMissed(row)
	case *kernel.Tally:
		r.putTally(row)
	case *kernel.Global:
		s := r.space(row.Tenant)
		s.global = row
		r.changed(s, "")
	case *kernel.Token:
		r.putToken(row)
	case *kernel.Session:
		r.putSession(row)
	case *kernel.Calendar:
		r.space(row.Tenant).calendars[row.Name] = row
	case *kernel.Followers:
		r.space(row.Tenant).followers[row.Key] = row
	case *kernel.Occasion:
		r.space(row.Tenant).putOccasion(row)
	case *kernel.Batch:
		r.space(row.Tenant).batches[row.ID] = row
	case *kernel.Audit:
		r.putAudit(row)
	case *kernel.Alarm:
		r.space(row.Tenant).alarms.put(row)
	case *kernel.StoreRow:
		r.store = row
		r.tick(row.At)
	default:
		ref := row.Ref()
		r.space(ref.Tenant).plain[ref] = row
	}
}

func (t tx) Delete(ref kernel.Ref) {
	r := t.rows
	if ref.Kind == kernel.RowStore {
		r.store = nil
		return
	}
	s := r.spaces[ref.Tenant]
	if s == nil {
		return
	}
	switch ref.Kind {
	case kernel.RowRun:
		if n := s.nodes[ref.ID]; n != nil {
			r.drop(n)
		}
	case kernel.RowDefinition:
		r.dropDefinition(s, jobs.Key(ref.Name))
	case kernel.RowGate:
		if g := s.gates[ref.Name]; g != nil {
			g.row = nil
			r.served(g)
		}
	case kernel.RowUnique:
		r.dropUnique(s, ref.Name)
	case kernel.RowMissed:
		r.dropMissed(s, ref)
	case kernel.RowTally:
		r.dropTally(s, ref)
	case kernel.RowGlobal:
		s.global = nil
		r.changed(s, "")
	case kernel.RowToken:
		r.dropToken(s, ref.Name)
	case kernel.RowSession:
		r.dropSession(s, ref.Name)
	case kernel.RowCalendar:
		delete(s.calendars, ref.Name)
	case kernel.RowFollowers:
		delete(s.followers, jobs.Key(ref.Name))
	case kernel.RowOccasion:
		s.dropOccasion(ref)
	case kernel.RowBatch:
		delete(s.batches, ref.ID)
	case kernel.RowAudit:
		s.dropAudit(uint64(ref.At))
	case kernel.RowAlarm:
		s.alarms.drop(ref)
	default:
		delete(s.plain, ref)
	}
}
