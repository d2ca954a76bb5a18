package memstore

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// rows is all rows of an engine.
type rows struct {
	spaces map[jobs.Tenant]*space
	store  *kernel.StoreRow // nil until it is put

	leased   list // attempts under way
	resting  list // runs with rows that are not packed, and that are due in more than restsFor,
	waiting  list // and those that wait
	wakes    heap[waking]
	expiries heap[*unique]
	elders   heap[*elder]
	hourly   heap[*elder]         // hours of jobs that are not yet part of their days
	unserved map[*gate]struct{}   // gates with a free slot and a waiting run
	unheld   map[*holder]struct{} // what held runs, and has ended by a change
	changes  []change             // of definitions, in the order of their numbers
	defined  int                  // how many definitions there are
	warm     warm

	restoring bool // rows come in any order: see restored
	steps     int  // that keeping rows in their orders took

	settled settled
	ended   []*kernel.Run // by the commit under way, in order
	near    *node         // looked up last: a command mostly puts what it reads
}

// node is a live run, or nil.
func (r *rows) node(s *space, id jobs.ID) *node {
	if n := r.near; n != nil && n.space == s && n.id == id {
		return n
	}
	n := s.nodes[id]
	if n != nil {
		r.near = n
	}
	return n
}

// space is the rows of one tenant.
type space struct {
	tenant jobs.Tenant
	number uint32 // identifies the tenant where pointers cost too much

	nodes   map[jobs.ID]*node
	all     list
	jobs    map[jobs.Key]*job
	parents map[jobs.ID]*list
	states  [16]list
	waiting map[string]int // runs that wait, by payer
	bytes   int64          // of all of them; see weight
	workers map[string]*list
	apps    map[string]*readyRuns

	definitions map[jobs.Key]*definition
	byKey       sorted
	jobsOf      map[string]int // how many jobs an app has
	gates       map[string]*gate
	uniques     map[string]*unique
	missed      map[jobs.ID]*ledger
	tallies     map[jobs.ID]*tallies
	total       metastore.Tallies // of the tallies of all jobs
	global      *kernel.Global
	tokens      map[string]*token
	sessions    map[string]*session
	audits      []*kernel.Audit           // by number
	plain       map[kernel.Ref]kernel.Row // of kinds that are only ever read by name
	calendars   map[string]*kernel.Calendar
	alarms      alarms
	holders     map[jobs.Key][]*holder // of held runs, by job; "" = debug modes
	followers   map[jobs.Key]*kernel.Followers
	occasions   map[jobs.ID]map[string]*kernel.Occasion // of a job that follows others
	batches     map[jobs.ID]*kernel.Batch
}

// job is the live runs of a job, and how many of them are in each state.
type job struct {
	list
	states [16]int
}

// waking is a node with the time at which it needs the control plane.
type waking struct {
	at int64
	*node
}

// readyRuns are the ready runs of an app, by queue: runs that no worker can take delay no others. Each queue is a
// list for each priority, the highest first.
type readyRuns struct {
	queues map[kernel.Queue][]*ready
}

// each yields all lists.
func (l *readyRuns) each(yield func(*ready) bool) {
	for _, of := range l.queues {
		for _, r := range of {
			if !yield(r) {
				return
			}
		}
	}
}

type ready struct {
	list
	priority int
}

// gate is a gate's row, if it has one, and the runs that wait there.
type gate struct {
	ref     kernel.Ref
	row     *kernel.Gate
	waiters heap[*node]
}

type unique struct {
	row   *kernel.UniqueKey
	place int32 // among those that expire
}

func newRows() *rows {
	r := &rows{spaces: make(map[jobs.Tenant]*space), unserved: make(map[*gate]struct{}), unheld: make(map[*holder]struct{})}
	r.wakes = heap[waking]{
		before: func(a, b waking) bool { return a.at < b.at },
		place:  func(w waking) *int32 { return &w.node.wakes },
	}
	r.expiries = heap[*unique]{
		before: func(a, b *unique) bool { return a.row.Until.Before(b.row.Until) },
		place:  func(u *unique) *int32 { return &u.place },
	}
	r.elders = heap[*elder]{
		before: func(a, b *elder) bool { return a.at < b.at },
		place:  func(e *elder) *int32 { return &e.place },
	}
	r.hourly = r.elders
	return r
}

// space is the tenant's, made when it is first needed.
func (r *rows) space(t jobs.Tenant) *space {
	s := r.spaces[t]
	if s == nil {
		s = &space{
			tenant: t, number: uint32(len(r.spaces)), jobsOf: make(map[string]int),
			nodes: make(map[jobs.ID]*node), jobs: make(map[jobs.Key]*job), parents: make(map[jobs.ID]*list),
			waiting: make(map[string]int), workers: make(map[string]*list), apps: make(map[string]*readyRuns),
			definitions: make(map[jobs.Key]*definition), gates: make(map[string]*gate), uniques: make(map[string]*unique),
			missed: make(map[jobs.ID]*ledger), tallies: make(map[jobs.ID]*tallies), total: metastore.Tallies{},
			tokens: make(map[string]*token), sessions: make(map[string]*session), plain: make(map[kernel.Ref]kernel.Row),
			alarms:    newAlarms(),
			calendars: make(map[string]*kernel.Calendar), followers: make(map[jobs.Key]*kernel.Followers),
			occasions: make(map[jobs.ID]map[string]*kernel.Occasion),
			batches:   make(map[jobs.ID]*kernel.Batch), holders: make(map[jobs.Key][]*holder),
		}
		r.spaces[t] = s
	}
	return s
}

// inOrder is all tenants, or the named one, by name.
func (r *rows) inOrder(t jobs.Tenant) []*space {
	if t != "*" {
		if s := r.spaces[t]; s != nil {
			return []*space{s}
		}
		return nil
	}
	return slices.SortedFunc(maps.Values(r.spaces), func(a, b *space) int { return cmp.Compare(a.tenant, b.tenant) })
}

// put stores a run and moves its node to the lists of the new row. A live run keeps its key, its parent and its time
// of creation.
func (r *rows) put(run *kernel.Run) {
	r.putRun(run)
	r.cool()
}

// putRun is put without packing rows in exchange. It returns the node, or nil if the run is settled.
func (r *rows) putRun(run *kernel.Run) *node {
	s := r.space(run.Tenant)
	n := r.node(s, run.ID)
	if run.Settled() {
		if n != nil {
			r.drop(n)
		}
		r.settle(s, run)
		return nil
	}
	if n == nil {
		n = &node{space: s, id: run.ID}
		s.nodes[run.ID] = n
	}
	r.file(n, run)
	return n
}

// Which runs are packed, and when. A run takes 1,100 bytes, packed 150 and its arguments: those that wait for long are
// many at times, and the others are used soon.
const restsFor = time.Hour

// How many rows are not packed although they may be: those used last. Tests have fewer.
var mostResting, mostWaiting = 1_000, 100_000

// warmth is the list of a run whose row may be packed, or nil.
func (r *rows) warmth(run *kernel.Run) *list {
	switch {
	case run.Waits != "" || run.Lingering: // compared with others at the gate, or under way
		return nil
	case run.State == jobs.Scheduled && (run.Wake().IsZero() || r.store != nil && run.Wake().Sub(r.store.At) > restsFor):
		return &r.resting
	case run.State == jobs.Processing:
		return nil
	}
	return &r.waiting
}

// cool packs rows that were not used for long.
func (r *rows) cool() {
	for _, l := range []struct {
		*list
		most int
	}{{&r.resting, mostResting}, {&r.waiting, mostWaiting}} {
		for l.n > l.most {
			n := l.first
			l.remove(n, inWarm)
			n.pack()
		}
	}
}

// run returns the row of a node, for a commit.
func (r *rows) run(n *node) *kernel.Run {
	if n.row == nil {
		n.row = n.packed.Unpack(n.id)
		if l := r.warmth(n.row); l != nil {
			l.add(n, inWarm)
		}
		r.cool()
		return n.get()
	}
	return n.row
}

// drop removes a run from the live rows.
func (r *rows) drop(n *node) {
	if r.near == n {
		r.near = nil
	}
	delete(n.space.nodes, n.id)
	r.file(n, nil)
}

// file moves a node from the lists of its old row to those of the new one. Either may be missing.
func (r *rows) file(n *node, run *kernel.Run) {
	var old *kernel.Run
	if n.packed != nil || n.row != nil {
		old = n.get()
	}
	if n.wakes != 0 {
		r.wakes.remove(n.wakes)
	}
	switch {
	case n.waits == 0:
	case old.Held():
		r.unhold(n, old)
	default:
		r.unwait(n)
	}
	if n.job != nil {
		n.space.bytes -= weight(old)
		n.job.states[old.State]--
		n.space.pay(old, -1)
	}
	var want [kinds]*list
	if run != nil {
		want = r.lists(n, old, run)
		n.row, n.packed, n.created, n.turn = run, nil, run.Created.UnixNano(), run.Turn
	}
	for kind, l := range want {
		at := n.links[kind].list
		if at == l {
			continue
		}
		if at != nil {
			at.remove(n, kind)
		}
		switch {
		case l == nil:
		case r.restoring:
			l.insert(n, kind, l.last)
		default:
			r.steps += l.add(n, kind)
		}
		if at != nil && at.n == 0 {
			n.space.forget(kind, old)
		}
	}
	if run == nil {
		return
	}
	if old == nil {
		if older := n.links[inAll].older; older != nil && older.created == n.created {
			n.rank = older.rank + 1
		}
	}
	n.space.bytes += weight(run)
	n.job.states[run.State]++
	n.space.pay(run, 1)
	if at := run.Wake(); !at.IsZero() {
		r.wakes.add(waking{at.UnixNano(), n})
	}
	if run.Waits != "" {
		r.wait(n)
	}
	if run.Held() {
		r.hold(n)
	}
}

// weight is the bytes of a run that others have chosen.
func weight(run *kernel.Run) int64 {
	return int64(len(run.Args) + len(run.Result) + len(run.Checkpoint))
}

// pay counts a waiting run for its payer.
func (s *space) pay(run *kernel.Run, by int) {
	if !run.Waiting() {
		return
	}
	payer := run.Payer()
	if payer == "" {
		return
	}
	if s.waiting[payer] += by; s.waiting[payer] == 0 {
		delete(s.waiting, payer)
	}
}

// lists returns in which lists a row belongs.
func (r *rows) lists(n *node, old, run *kernel.Run) (want [kinds]*list) {
	s := n.space
	if n.job == nil {
		n.job = s.jobs[run.Key]
		if n.job == nil {
			n.job = new(job)
			s.jobs[run.Key] = n.job
		}
		want[inAll], want[inJob] = &s.all, &n.job.list
		if !run.Parent.IsZero() {
			want[inParent] = entry(s.parents, run.Parent)
		}
	} else {
		copy(want[inAll:], []*list{n.links[inAll].list, n.links[inJob].list, n.links[inParent].list})
	}
	want[inState] = &s.states[run.State&15]
	switch {
	case run.Worker == "":
	case old != nil && old.Worker == run.Worker:
		want[inWorker] = n.links[inWorker].list
	default:
		want[inWorker] = entry(s.workers, run.Worker)
	}
	if run.Ready() {
		l := s.apps[run.App]
		if l == nil {
			l = &readyRuns{queues: make(map[kernel.Queue][]*ready)}
			s.apps[run.App] = l
		}
		want[inReady] = l.list(run)
	}
	if run.State == jobs.Processing || run.Lingering {
		want[inLeased] = &r.leased
	}
	want[inWarm] = r.warmth(run)
	return want
}

// entry is the list of a name, made when it is first needed.
func entry[K comparable](lists map[K]*list, name K) *list {
	l := lists[name]
	if l == nil {
		l = new(list)
		lists[name] = l
	}
	return l
}

// forget drops the name of a list that has become empty. old is the row that was the last one in it.
func (s *space) forget(kind int, old *kernel.Run) {
	switch kind {
	case inJob:
		delete(s.jobs, old.Key)
	case inParent:
		delete(s.parents, old.Parent)
	case inWorker:
		delete(s.workers, old.Worker)
	case inReady:
		l := s.apps[old.App]
		name := old.Queue()
		l.queues[name] = slices.DeleteFunc(l.queues[name], func(r *ready) bool { return r.n == 0 })
		if len(l.queues[name]) == 0 {
			delete(l.queues, name)
		}
		if len(l.queues) == 0 {
			delete(s.apps, old.App)
		}
	}
}

// list is the list that a ready run belongs to, made when it is first needed.
func (l *readyRuns) list(run *kernel.Run) *list {
	name := run.Queue()
	of := l.queues[name]
	i, found := slices.BinarySearchFunc(of, run.Priority, func(r *ready, p int) int { return cmp.Compare(p, r.priority) })
	if !found {
		of = slices.Insert(of, i, &ready{priority: run.Priority})
		l.queues[name] = of
	}
	return &of[i].list
}

// gate is a gate of a tenant, made when it is first needed.
func (s *space) gate(name string) *gate {
	g := s.gates[name]
	if g == nil {
		g = &gate{ref: kernel.GateRef(s.tenant, name)}
		g.waiters = heap[*node]{before: first, place: func(n *node) *int32 { return &n.waits }}
		s.gates[name] = g
	}
	return g
}

// first is the order of runs that wait at a gate.
func first(a, b *node) bool {
	switch a, b := a.row, b.row; {
	case a.First != b.First:
		return a.First
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case !a.Due.Equal(b.Due):
		return a.Due.Before(b.Due)
	default:
		return strings.Compare(string(a.ID[:]), string(b.ID[:])) < 0
	}
}

func (r *rows) wait(n *node) {
	g := n.space.gate(n.row.Waits)
	g.waiters.add(n)
	r.served(g)
}

func (r *rows) unwait(n *node) {
	g := n.space.gate(n.row.Waits)
	g.waiters.remove(n.waits)
	r.served(g)
}

// now is a gate's row with the current limit of its argument; nil = it has none.
func (s *space) now(g *gate) *kernel.Gate {
	limit, _, keyed := kernel.KeyOf(g.ref.Name)
	if g.row == nil || !keyed {
		return g.row
	}
	if b := s.gates[kernel.BoundGate(limit)]; b != nil && b.row != nil {
		return g.row.Under(b.row.Bound())
	}
	return g.row
}

func (r *rows) putGate(row *kernel.Gate) {
	s := r.space(row.Tenant)
	g := s.gate(row.Name)
	g.row = row
	if r.restoring {
		return
	}
	r.served(g)
	if limit, bound := kernel.BoundOf(row.Name); bound {
		for _, of := range s.gates {
			r.steps++
			if name, _, keyed := kernel.KeyOf(of.ref.Name); keyed && name == limit {
				r.served(of)
			}
		}
	}
}

// served updates the list of gates for the sweep, and drops a gate that is empty.
func (r *rows) served(g *gate) {
	free := g.waiters.len() > 0
	if free {
		now := r.spaces[g.ref.Tenant].now(g)
		free = now == nil || now.Limit == 0 || now.Taken < now.Limit
	}
	if free {
		r.unserved[g] = struct{}{}
	} else {
		delete(r.unserved, g)
	}
	if g.row == nil && g.waiters.len() == 0 {
		delete(r.spaces[g.ref.Tenant].gates, g.ref.Name)
	}
}

func (r *rows) putUnique(u *kernel.UniqueKey) {
	s := r.space(u.Tenant)
	r.dropUnique(s, u.Name)
	k := &unique{row: u}
	s.uniques[u.Name] = k
	if !u.Until.IsZero() {
		r.expiries.add(k)
	}
}

func (r *rows) dropUnique(s *space, name string) {
	if k := s.uniques[name]; k != nil {
		if k.place != 0 {
			r.expiries.remove(k.place)
		}
		delete(s.uniques, name)
	}
}
