package controlplane

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// catalog caches when each definition that fires is due next. A definition that changes leaves its key in pending, and a
// pending key is reloaded from the store before the catalog is used again. A lost signal is caught by asking for all
// changes since the last known change number.
type catalog struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[jobName]*planned
	due     schedule.Agenda[*planned]
	ready   turns // what is due, and has left the agenda
	pending map[jobName]bool
	globals map[jobs.Tenant]*kernel.Global
	closed  map[jobs.Tenant]*schedule.Calendars
	stale   map[jobs.Tenant]bool // globals to reload
	changes uint64               // the last change number seen
	vain    map[jobName]vain
	changed chan struct{} // wakes fire.go

	// For several processes that fire a share of the jobs each (share.go); see assign.
	distributed bool
	members     []string
	me          string
	leads       bool
}

// jobName identifies a job.
type jobName struct {
	tenant jobs.Tenant
	key    jobs.Key
}

func nameOf(d *kernel.Definition) jobName { return jobName{d.Tenant, d.Key} }

// planned is what the catalog keeps of a definition. There may be a million: its times are Unix nanoseconds, 0 = never.
type planned struct {
	jobName
	uid              jobs.ID
	change, revision uint64
	cursor, ended    int64
	next             int64 // due next, calendars aside
	at               int64 // when to decide about that
	wake             int64 // when this process does
	placed           int64 // where the agenda has it; 0 = nowhere, or only in outdated places
	near             *near // nil = it is not due soon: it is read again when it is
	foreign          bool  // another process fires it, and this one looks a while later whether it did
}

// near is the definition and the schedule of a job that is due within nearFor.
type near struct {
	def      *kernel.Definition
	schedule *schedule.Schedule
}

// nearFor limits how many definitions are in memory because they are due soon.
const nearFor = time.Hour

// entry is a definition that is due.
type entry struct {
	def      *kernel.Definition
	schedule *schedule.Schedule
	next     time.Time // zero = never
	foreign  bool
	beside   int // jobs that are decided in the same pass
}

// moved reports whether d, the definition after a decision, is another state of the job than the one that was decided
// about.
func (e *entry) moved(d *kernel.Definition) bool {
	return d.UID != e.def.UID || d.Revision != e.def.Revision || !d.Cursor.Equal(e.def.Cursor)
}

func (e *planned) entry() *entry {
	return &entry{e.near.def, e.near.schedule, fromNanos(e.next), e.foreign, 0}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func (c *catalog) init() {
	c.changed = make(chan struct{}, 1)
	if c.now == nil {
		c.now = time.Now
	}
	c.reset()
}

func (c *catalog) reset() {
	c.entries, c.pending = map[jobName]*planned{}, map[jobName]bool{}
	c.globals, c.stale = map[jobs.Tenant]*kernel.Global{}, map[jobs.Tenant]bool{}
	c.closed = map[jobs.Tenant]*schedule.Calendars{}
	c.due, c.ready, c.changes = schedule.Agenda[*planned]{}, turns{}, 0
	c.vain = map[jobName]vain{}
}

// mark leaves pending-update keys.
func (c *catalog) mark(tenant jobs.Tenant, keys ...jobs.Key) {
	c.mu.Lock()
	for _, k := range keys {
		c.pending[jobName{tenant, k}] = true
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
	c.mu.Lock()
	pending, stale := c.pending, c.stale
	c.reset()
	c.pending, c.stale = pending, stale
	c.mu.Unlock()
	if err := c.read(ctx, st, 0); err != nil {
		return err
	}
	c.mu.Lock()
	c.changes = max(c.changes, state.Changes)
	c.mu.Unlock()
	return c.reload(ctx, st)
}

// read caches the definitions that changed after a change number.
func (c *catalog) read(ctx context.Context, st metastore.Reader, since uint64) error {
	return metastore.EachChange(ctx, st, since, func(part []*kernel.Definition) error {
		c.putAll(part)
		return nil
	})
}

// putAll caches definitions. Their schedules are compiled without the lock, and in parallel.
func (c *catalog) putAll(defs []*kernel.Definition) {
	compiled := make([]*schedule.Schedule, len(defs))
	var wg sync.WaitGroup
	size := max(100, (len(defs)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for first := 0; first < len(defs); first += size {
		wg.Go(func() {
			for i := first; i < min(first+size, len(defs)); i++ {
				compiled[i] = compile(defs[i])
			}
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range defs {
		c.put(d, compiled[i])
		c.stale[d.Tenant] = true
	}
}

// compile returns the schedule of a definition that fires, or nil. A stored definition was checked when it was written;
// if it cannot be read all the same, the job does not fire, and its page shows why.
func compile(d *kernel.Definition) *schedule.Schedule {
	if d.Gone() || d.Kind != kernel.Recurring {
		return nil
	}
	s, _ := timetable.Schedule(d)
	return s
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
	if err := c.read(ctx, st, since); err != nil {
		return err
	}
	c.mu.Lock()
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
	c.pending, c.stale = map[jobName]bool{}, map[jobs.Tenant]bool{}
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
		for name := range pending {
			keys[name.tenant] = append(keys[name.tenant], name.key)
		}
		for tenant, list := range keys {
			for some := range slices.Chunk(list, reloadAtOnce) {
				found, err := st.Definitions(ctx, metastore.DefinitionQuery{Tenant: tenant, Keys: some})
				if err != nil {
					return err
				}
				c.mu.Lock()
				for _, d := range found {
					c.put(d, nil)
					delete(pending, nameOf(d))
				}
				for _, key := range some {
					if name := (jobName{tenant, key}); pending[name] { // gone
						c.drop(name)
						delete(pending, name)
					}
				}
				c.mu.Unlock()
			}
			c.mu.Lock()
			if c.globals[tenant] == nil {
				c.stale[tenant] = true
			}
			c.mu.Unlock()
		}
		return nil
	}()
	if err != nil {
		c.mu.Lock()
		for name := range pending {
			c.pending[name] = true
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
// is forgotten. s is its schedule; nil = it is compiled here if it is not known. The lock is held.
func (c *catalog) put(d *kernel.Definition, s *schedule.Schedule) {
	name, cursor, ended := nameOf(d), nanos(d.Cursor), nanos(d.Ended)
	e := c.entries[name]
	switch {
	case e == nil:
	case e.uid != d.UID && e.change > d.Change: // of an earlier life
		c.place(e)
		return
	case e.uid == d.UID && (e.revision > d.Revision || e.revision == d.Revision && (e.cursor > cursor || e.ended > ended)):
		c.place(e)
		return
	}
	if d.Gone() || d.Kind != kernel.Recurring {
		c.drop(name)
		return
	}
	switch {
	case e == nil:
		e = &planned{jobName: name}
		c.entries[name] = e
	case s == nil && e.near != nil && e.revision == d.Revision && e.uid == d.UID && e.ended == ended:
		s = e.near.schedule
	}
	if s == nil {
		s = compile(d)
	}
	e.uid, e.change, e.revision, e.cursor, e.ended = d.UID, d.Change, d.Revision, cursor, ended
	e.plan(d, s)
	c.assignOne(e)
	e.near = nil
	if e.wake != 0 && e.wake-c.now().UnixNano() <= int64(nearFor) {
		e.near = &near{d, s}
	}
	c.place(e)
}

// plan computes when a job is due next, and when to decide about that.
func (e *planned) plan(d *kernel.Definition, s *schedule.Schedule) {
	e.next, e.at = 0, 0
	if len(d.Undecided) > 0 {
		e.next = nanos(d.Undecided[0].Until) // at once
		e.at = e.next
	} else if s != nil && !d.Waits() && d.Stopped.IsZero() { // what is due while it is stopped is decided afterwards
		if next, ok := s.Next(d.Since()); ok {
			e.next = nanos(next)
			e.at = e.next - int64(d.Policy.Early)
		}
		if n := len(d.Silences); n > 0 && (e.at == 0 || e.at > nanos(d.Silences[n-1].Until)) {
			e.at = nanos(d.Silences[n-1].Until) // at once
		}
	}
}

// assignOne leaves another process's entries to it; the leader looks a while later. The lock is held.
func (c *catalog) assignOne(e *planned) {
	e.foreign = c.distributed && owner(c.members, e.uid) != c.me
	switch e.wake = e.at; {
	case !e.foreign || e.wake == 0:
	case !c.leads:
		e.wake = 0
	default:
		e.wake += int64(c.rescue(e.tenant))
	}
	if v, ok := c.vain[e.jobName]; ok && e.wake != 0 && v.of.job == e.uid && v.of.revision == e.revision && v.of.cursor == e.cursor {
		e.wake = max(e.wake, v.until)
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
	for name, e := range c.entries {
		was := e.foreign
		c.assignOne(e)
		if was && !e.foreign {
			c.pending[name] = true // its cursor is where the other one has left it
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
		n[owner(c.members, e.uid)]++
	}
	return n
}

// overdue reads jobs of other processes that were due a while ago, and returns those that still are, off the agenda.
func (c *catalog) overdue(ctx context.Context, st metastore.Reader, late []jobName, now time.Time) (still []*entry, err error) {
	c.mu.Lock()
	for _, name := range late {
		c.pending[name] = true
	}
	c.mu.Unlock()
	if err := c.reload(ctx, st); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range late {
		e := c.entries[name]
		if e == nil {
			continue
		}
		if e.wake == 0 || e.wake > now.UnixNano() || e.near == nil {
			c.place(e)
			continue
		}
		e.placed = 0
		still = append(still, e.entry())
	}
	return still, nil
}

func (c *catalog) drop(name jobName) {
	if e := c.entries[name]; e != nil {
		e.next, e.wake, e.near = 0, 0, nil
		c.place(e)
		delete(c.entries, name)
		delete(c.vain, name)
	}
}

// place puts an entry on the agenda. Its older places stay, and are passed over; when they outnumber the entries, the
// agenda is made anew.
func (c *catalog) place(e *planned) {
	if e.placed == e.wake {
		return
	}
	e.placed = e.wake
	if e.wake == 0 {
		return
	}
	c.due.Push(fromNanos(e.wake), e)
	if c.due.Len() <= 2*len(c.entries)+1000 {
		return
	}
	c.due = schedule.Agenda[*planned]{}
	for _, e := range c.entries {
		if e.placed != 0 {
			c.due.Push(fromNanos(e.placed), e)
		}
	}
}

// dueBy takes up to limit entries that are due at now, in turns of tenants and apps, and returns when to look for the
// next one. It returns copies, because the catalog may change meanwhile; those of the same time are in the order of
// their keys. Definitions that are not in memory are pending: the next reload puts them back on the agenda.
func (c *catalog) dueBy(now time.Time, limit int) (due []*entry, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for far := 0; far < limit; {
		first, ok := c.due.First()
		if !ok {
			break
		}
		if first.After(now) {
			next = first
			break
		}
		at, e, _ := c.due.Pop()
		switch {
		case e.placed != at.UnixNano():
		case e.near == nil:
			e.placed = 0
			c.pending[e.jobName] = true
			far++
		default:
			c.ready.add(e.near.def.App, dueAt{e, e.placed})
		}
	}
	for len(due) < limit {
		p, ok := c.ready.take()
		if !ok {
			break
		}
		if p.placed != p.at {
			continue
		}
		p.placed = 0
		if p.near == nil { // it has changed since
			c.pending[p.jobName] = true
			continue
		}
		due = append(due, p.entry())
	}
	if len(c.pending) > 0 {
		next = now
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
	name := nameOf(e.def)
	if now != nil {
		delete(c.vain, name)
		c.put(now, nil)
		return
	}
	c.pending[name] = true
	if e := c.entries[name]; e != nil {
		c.place(e)
	}
}

// rest has a job looked at when it is due, as nothing keeps it from beginning early until then but a pause that may
// end, or a debug mode and the like, whose end changes it.
func (c *catalog) rest(e *entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.entries[nameOf(e.def)]
	if p == nil || p.change != e.def.Change {
		return
	}
	p.at = nanos(e.next)
	if h := e.def.Paused; h != nil && h.Until.After(now) && h.Until.Before(e.next) {
		p.at = nanos(h.Until)
	}
	c.assignOne(p)
	c.place(p)
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
