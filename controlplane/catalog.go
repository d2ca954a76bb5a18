package controlplane

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// catalog is the leader's memory of definitions, and of when each is due next. A definition that changes leaves its
// key in pending, and a pending key is reloaded from the store before the catalog is used again. A signal that got
// lost is caught by asking for what changed since the last change number that was seen.
type catalog struct {
	mu      sync.Mutex
	entries map[jobs.Ref]*entry
	due     dueHeap
	pending map[jobs.Ref]bool
	globals map[jobs.Tenant]*jobs.Global
	stale   map[jobs.Tenant]bool // globals to reload
	changes uint64               // the last change number seen
	changed chan struct{}        // wakes fire.go
}

// entry is one definition and its schedule.
type entry struct {
	def      *jobs.Definition
	schedule *schedule.Schedule
	next     time.Time // zero = never
	place    int       // in the heap; -1 = not there
}

func (c *catalog) init() {
	c.changed = make(chan struct{}, 1)
	c.reset()
}

func (c *catalog) reset() {
	c.entries, c.pending = map[jobs.Ref]*entry{}, map[jobs.Ref]bool{}
	c.globals, c.stale = map[jobs.Tenant]*jobs.Global{}, map[jobs.Tenant]bool{}
	c.due, c.changes = nil, 0
}

// mark leaves pending-update keys.
func (c *catalog) mark(tenant jobs.Tenant, keys ...jobs.Key) {
	c.mu.Lock()
	for _, k := range keys {
		c.pending[jobs.DefinitionRef(tenant, k)] = true
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
func (c *catalog) load(ctx context.Context, st metastore.Full, now time.Time) error {
	state, err := st.State(ctx)
	if err != nil {
		return err
	}
	defs, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*"})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.reset()
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
	c.mu.Lock()
	since := c.changes
	c.mu.Unlock()
	if state.Changes == since {
		return nil
	}
	defs, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*", Since: since})
	if err != nil {
		return err
	}
	c.mu.Lock()
	for _, d := range defs {
		c.put(d)
	}
	for tenant := range c.globals {
		c.stale[tenant] = true
	}
	c.changes = state.Changes
	c.mu.Unlock()
	poke(c.changed)
	return nil
}

// reload reads what is pending.
func (c *catalog) reload(ctx context.Context, st metastore.Reader) error {
	c.mu.Lock()
	pending, stale := c.pending, c.stale
	c.pending, c.stale = map[jobs.Ref]bool{}, map[jobs.Tenant]bool{}
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
			c.mu.Unlock()
		}
		keys := map[jobs.Tenant][]jobs.Key{}
		for ref := range pending {
			keys[ref.Tenant] = append(keys[ref.Tenant], jobs.Key(ref.Name))
		}
		for tenant, list := range keys {
			defs, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: tenant, Keys: list})
			if err != nil {
				return err
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

// put remembers a definition, unless a newer one is known. The lock is held.
func (c *catalog) put(d *jobs.Definition) {
	if d.Kind != jobs.Recurring {
		return
	}
	ref := d.Ref()
	e := c.entries[ref]
	if e != nil && e.def.UID == d.UID && (e.def.Revision > d.Revision || e.def.Cursor.After(d.Cursor) && e.def.Revision == d.Revision) {
		return
	}
	if e == nil {
		e = &entry{place: -1}
		c.entries[ref] = e
	}
	if e.def == nil || e.def.Revision != d.Revision || e.def.UID != d.UID {
		// What is stored was checked when it was written; if it cannot be read all the same, the job does not fire,
		// and its page says why.
		e.schedule, _ = schedule.Of(d)
	}
	e.def = d
	e.next = time.Time{}
	if e.schedule != nil {
		if next, ok := e.schedule.Next(d.Cursor); ok {
			e.next = next
		}
	}
	c.place(e)
}

func (c *catalog) drop(ref jobs.Ref) {
	if e := c.entries[ref]; e != nil {
		e.next = time.Time{}
		c.place(e)
		delete(c.entries, ref)
	}
}

func (c *catalog) place(e *entry) {
	switch {
	case e.next.IsZero() && e.place >= 0:
		heap.Remove(&c.due, e.place)
	case e.next.IsZero():
	case e.place >= 0:
		heap.Fix(&c.due, e.place)
	default:
		heap.Push(&c.due, e)
	}
}

// dueBy takes up to limit entries that are due at now out of the heap, and says when the next one is due after
// those. It answers with copies: the catalog may learn of a change while they are decided about.
func (c *catalog) dueBy(now time.Time, limit int) (due []*entry, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) > 0 && len(due) < limit && !c.due[0].next.After(now) {
		e := *heap.Pop(&c.due).(*entry)
		due = append(due, &e)
	}
	if len(c.due) > 0 {
		next = c.due[0].next
	}
	return due, next
}

// back puts entries into the heap again after a fire: with the definition as it now is, or to be reloaded.
func (c *catalog) back(e *entry, now *jobs.Definition) {
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

func (c *catalog) global(tenant jobs.Tenant) *jobs.Global {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.globals[tenant]; g != nil {
		return g
	}
	return &jobs.Global{Tenant: tenant}
}

// dueHeap orders entries by their next due time, then by key so that runs of the same second come in a fixed order.
type dueHeap []*entry

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if !h[i].next.Equal(h[j].next) {
		return h[i].next.Before(h[j].next)
	}
	return h[i].def.Key < h[j].def.Key
}
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.place = len(*h)
	*h = append(*h, e)
}
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	e.place = -1
	return e
}
