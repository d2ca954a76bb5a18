package controlplane

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// catalog caches the definitions of those that fire, and when each is due next. A definition that changes leaves its
// key in pending, and a pending key is reloaded from the store before the catalog is used again. A lost signal is
// caught by asking for all changes since the last known change number.
type catalog struct {
	mu      sync.Mutex
	entries map[kernel.Ref]*entry
	due     schedule.Agenda[*entry]
	pending map[kernel.Ref]bool
	globals map[jobs.Tenant]*kernel.Global
	closed  map[jobs.Tenant]*schedule.Calendars
	stale   map[jobs.Tenant]bool // globals to reload
	changes uint64               // the last change number seen
	changed chan struct{}        // wakes fire.go

	// For several processes that fire a share of the jobs each (share.go); see assign.
	distributed bool
	members     []string
	me          string
	leads       bool
}

// entry is one definition and its schedule.
type entry struct {
	def      *kernel.Definition
	schedule *schedule.Schedule
	next     time.Time // due next, calendars aside; zero = never
	wake     time.Time // when to decide about that; zero = never
	placed   time.Time // where the agenda has it; zero = nowhere, or only in outdated places
	foreign  bool      // another process fires it, and this one looks a while later whether it did
}

func (c *catalog) init() {
	c.changed = make(chan struct{}, 1)
	c.reset()
}

func (c *catalog) reset() {
	c.entries, c.pending = map[kernel.Ref]*entry{}, map[kernel.Ref]bool{}
	c.globals, c.stale = map[jobs.Tenant]*kernel.Global{}, map[jobs.Tenant]bool{}
	c.closed = map[jobs.Tenant]*schedule.Calendars{}
	c.due, c.changes = schedule.Agenda[*entry]{}, 0
}

// mark leaves pending-update keys.
func (c *catalog) mark(tenant jobs.Tenant, keys ...jobs.Key) {
	c.mu.Lock()
	for _, k := range keys {
		c.pending[kernel.DefinitionRef(tenant, k)] = true
	}
	c.mu.Unlock()
	poke(c.changed)
}

// markGlobal has a tenant's Global reloaded before the next use.
func (c *catalog) markGlobal(tenant jobs.Tenant) {
	c.mu.Lock()
	c.stale[tenant] = true
	c.mu.Unlock()
	poke(c.changed)
}

// load fills the catalog from the store.
func (c *catalog) load(ctx context.Context, st metastore.Full) error {
	state, err := st.State(ctx)
	if err != nil {
		return err
	}
	defs, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*"})
	if err != nil {
		return err
	}
	c.mu.Lock()
	pending, stale := c.pending, c.stale // changes signalled while the rows were read
	c.reset()
	c.pending, c.stale = pending, stale
	c.changes = state.Changes
	for _, d := range defs {
		c.put(d)
		c.stale[d.Tenant] = true
	}
	c.mu.Unlock()
	return c.reload(ctx, st)
}

// look asks the store what changed since the catalog looked last.
func (c *catalog) look(ctx context.Context, st metastore.Full) error {
	state, err := st.State(ctx)
	if err != nil {
		return err
	}
	return c.lookSince(ctx, st, state)
}

// lookSince is look with the store's row already read.
func (c *catalog) lookSince(ctx context.Context, st metastore.Full, state kernel.StoreRow) error {
	c.mu.Lock()
	since := c.changes
	c.mu.Unlock()
	if state.Changes <= since {
		return nil
	}
	defs, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*", Since: since})
	if err != nil {
		return err
	}
	c.mu.Lock()
	for _, d := range defs {
		c.put(d)
		c.stale[d.Tenant] = true
	}
	for tenant := range c.globals {
		c.stale[tenant] = true
	}
	c.changes = max(c.changes, state.Changes)
	c.mu.Unlock()
	poke(c.changed)
	return nil
}

// reloadAtOnce is how many jobs are named in one request to the store.
const reloadAtOnce = 1000

// reload reads what is pending.
func (c *catalog) reload(ctx context.Context, st metastore.Reader) error {
	c.mu.Lock()
	pending, stale := c.pending, c.stale
	c.pending, c.stale = map[kernel.Ref]bool{}, map[jobs.Tenant]bool{}
	c.mu.Unlock()
	if len(pending) == 0 && len(stale) == 0 {
		return nil
	}
	err := func() error {
		for tenant := range stale {
			g, err := st.Global(ctx, tenant)
			if err != nil {
				return err
			}
			c.mu.Lock()
			c.globals[tenant] = g
			known := c.closed[tenant]
			c.mu.Unlock()
			if known != nil && known.Revision == g.Calendars || known == nil && g.Calendars == 0 {
				continue
			}
			// They may be newer than g: then a fire that names its number is refused, and this is done again.
			rows, err := st.Calendars(ctx, tenant)
			if err != nil {
				return err
			}
			c.mu.Lock()
			c.closed[tenant] = timetable.Calendars(g.Calendars, rows)
			c.mu.Unlock()
		}
		keys := map[jobs.Tenant][]jobs.Key{}
		for ref := range pending {
			keys[ref.Tenant] = append(keys[ref.Tenant], jobs.Key(ref.Name))
		}
		for tenant, list := range keys {
			var defs []*kernel.Definition
			for some := range slices.Chunk(list, reloadAtOnce) {
				found, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: tenant, Keys: some})
				if err != nil {
					return err
				}
				defs = append(defs, found...)
			}
			c.mu.Lock()
			for _, d := range defs {
				c.put(d)
				delete(pending, d.Ref())
			}
			for ref := range pending { // gone
				if ref.Tenant == tenant {
					c.drop(ref)
				}
			}
			if c.globals[tenant] == nil {
				c.stale[tenant] = true
			}
			c.mu.Unlock()
		}
		return nil
	}()
	if err != nil {
		c.mu.Lock()
		for ref := range pending {
			c.pending[ref] = true
		}
		for tenant := range stale {
			c.stale[tenant] = true
		}
		c.mu.Unlock()
		return err
	}
	c.mu.Lock()
	again := len(c.stale) > 0
	c.mu.Unlock()
	if again {
		return c.reload(ctx, st)
	}
	return nil
}

// put caches a definition, unless a newer one is known. One that was deleted, or began a new life as a triggered job,
// is forgotten. The lock is held.
func (c *catalog) put(d *kernel.Definition) {
	ref := d.Ref()
	e := c.entries[ref]
	switch {
	case e == nil:
	case e.def.UID != d.UID && e.def.Change > d.Change:
		return // of an earlier life
	case e.def.UID == d.UID && (e.def.Revision > d.Revision || e.def.Revision == d.Revision &&
		(e.def.Cursor.After(d.Cursor) || e.def.Ended.After(d.Ended))):
		return
	}
	if d.Gone() || d.Kind != kernel.Recurring {
		c.drop(ref)
		return
	}
	if e == nil {
		e = &entry{}
		c.entries[ref] = e
	}
	if e.def == nil || e.def.Revision != d.Revision || e.def.UID != d.UID || !e.def.Ended.Equal(d.Ended) {
		// A stored definition was checked when it was written; if it cannot be read all the same, the job does not
		// fire, and its page shows why.
		e.schedule, _ = timetable.Schedule(d)
	}
	e.def = d
	c.plan(e)
	c.place(e)
}

// plan computes when an entry is due next, and when to decide about that. Another process's entries are left to it; the
// leader looks a while later. The lock is held.
func (c *catalog) plan(e *entry) {
	d := e.def
	e.next, e.wake, e.foreign = time.Time{}, time.Time{}, c.distributed && owner(c.members, d.UID) != c.me
	if len(d.Undecided) > 0 {
		e.next = d.Undecided[0].Until // at once
		e.wake = e.next
	} else if e.schedule != nil && !d.Waits() && d.Stopped.IsZero() { // what is due while it is stopped is decided afterwards
		if next, ok := e.schedule.Next(d.Since()); ok {
			e.next, e.wake = next, next.Add(-d.Policy.Early)
		}
	}
	switch {
	case !e.foreign || e.wake.IsZero():
	case !c.leads:
		e.wake = time.Time{}
	default:
		e.wake = e.wake.Add(c.rescue(d.Tenant))
	}
}

// rescue is how late the leader fires another process's due time: before that becomes a misfire. The lock is held.
func (c *catalog) rescue(tenant jobs.Tenant) time.Duration {
	g := c.globals[tenant]
	if g == nil {
		g = &kernel.Global{}
	}
	return min(rescueAfter, g.Late()/2)
}

// assign sets which processes fire a share of the jobs each, which of them this one is, and whether it leads.
func (c *catalog) assign(members []string, me string, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.distributed && c.me == me && c.leads == leads && slices.Equal(c.members, members) {
		return
	}
	c.distributed, c.members, c.me, c.leads = true, slices.Clone(members), me, leads
	for ref, e := range c.entries {
		was := e.foreign
		c.plan(e)
		if was && !e.foreign {
			c.pending[ref] = true // its cursor is where the other one has left it
		}
		c.place(e)
	}
	poke(c.changed)
}

// shares returns how many recurring jobs each member fires.
func (c *catalog) shares() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int{}
	for _, e := range c.entries {
		n[owner(c.members, e.def.UID)]++
	}
	return n
}

// again reads jobs of other processes that were due a while ago, and returns those that still are, off the agenda.
func (c *catalog) again(ctx context.Context, st metastore.Reader, late []kernel.Ref, now time.Time) (still []*entry, err error) {
	c.mu.Lock()
	for _, ref := range late {
		c.pending[ref] = true
	}
	c.mu.Unlock()
	if err := c.reload(ctx, st); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range late {
		e := c.entries[ref]
		if e == nil {
			continue
		}
		if e.wake.IsZero() || e.wake.After(now) {
			c.place(e)
			continue
		}
		e.placed = time.Time{}
		taken := *e
		still = append(still, &taken)
	}
	return still, nil
}

func (c *catalog) drop(ref kernel.Ref) {
	if e := c.entries[ref]; e != nil {
		e.next, e.wake = time.Time{}, time.Time{}
		c.place(e)
		delete(c.entries, ref)
	}
}

// place puts an entry on the agenda. Its older places stay, and are passed over; when they outnumber the entries, the
// agenda is made anew.
func (c *catalog) place(e *entry) {
	if e.placed.Equal(e.wake) {
		return
	}
	e.placed = e.wake
	if e.wake.IsZero() {
		return
	}
	c.due.Push(e.wake, e)
	if c.due.Len() <= 2*len(c.entries)+1000 {
		return
	}
	c.due = schedule.Agenda[*entry]{}
	for _, e := range c.entries {
		if !e.placed.IsZero() {
			c.due.Push(e.placed, e)
		}
	}
}

// dueBy takes up to limit entries that are due at now off the agenda, and returns when to look for the next one. It
// returns copies, because the catalog may change meanwhile; those of the same time are in the order of their keys.
func (c *catalog) dueBy(now time.Time, limit int) (due []*entry, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(due) < limit {
		first, ok := c.due.First()
		if !ok {
			break
		}
		if first.After(now) {
			next = first
			break
		}
		at, e, _ := c.due.Pop()
		if !e.placed.Equal(at) {
			continue
		}
		e.placed = time.Time{}
		taken := *e
		due = append(due, &taken)
	}
	slices.SortFunc(due, func(a, b *entry) int {
		return cmp.Or(a.next.Compare(b.next), cmp.Compare(a.def.Key, b.def.Key))
	})
	return due, next
}

// back puts entries on the agenda again after a fire: with the definition as it now is, or to be reloaded.
func (c *catalog) back(e *entry, now *kernel.Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now != nil {
		c.put(now)
		return
	}
	ref := e.def.Ref()
	c.pending[ref] = true
	if e := c.entries[ref]; e != nil {
		c.place(e)
	}
}

func (c *catalog) global(tenant jobs.Tenant) *kernel.Global {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.globals[tenant]; g != nil {
		return g
	}
	return &kernel.Global{Tenant: tenant}
}

// calendars returns those of a tenant; nil = none.
func (c *catalog) calendars(tenant jobs.Tenant) *schedule.Calendars {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed[tenant]
}

// tenants returns those that have jobs, and the default one.
func (c *catalog) tenants() []jobs.Tenant {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []jobs.Tenant{jobs.DefaultTenant}
	for t := range c.globals {
		if t != jobs.DefaultTenant {
			list = append(list, t)
		}
	}
	return list
}
