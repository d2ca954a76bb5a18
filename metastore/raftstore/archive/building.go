package archive

import (
	"encoding/binary"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// building is an index in memory to which runs are added: that of the open file, or of a segment that is being
// written. Lists are read from end to end, which is quick for as many runs as a file has. A copy of it stays as it is
// while runs are added, but for IDs.
type building struct {
	table
	live    int                                  // runs that are not hidden
	counts  []count                              // by job, of those
	known   map[jobs.Tenant]map[jobs.Key]*uint32 // jobs in names
	workers []uint32                             // hashes, 0 for none
	parents []uint32                             // hashes, 0 for none
	ids     []uint32                             // hashes
	slots   []uint32                             // an open hash table over ids: places + 1
}

func newBuilding(s blocks.Salt) *building {
	return &building{known: map[jobs.Tenant]map[jobs.Key]*uint32{}, table: table{salt: s, numbers: column{width: 8}, ended: column{width: 8},
		offsets: column{width: 4}, states: column{width: 1}, jobs: column{width: 4}}}
}

// add adds a run, whose record is still to be written.
func (x *building) add(number uint64, run *kernel.Run) {
	tenant, worker, parent := string(run.Tenant), uint32(0), uint32(0)
	if run.Worker != "" {
		worker = x.salt.Hash(byWorker, tenant, run.Worker)
	}
	if !run.Parent.IsZero() {
		parent = x.salt.Hash(byParent, tenant, string(run.Parent[:]))
	}
	of := x.job(run.Tenant, run.Key)
	x.numbers.mem = binary.BigEndian.AppendUint64(x.numbers.mem, number)
	x.ended.mem = binary.BigEndian.AppendUint64(x.ended.mem, uint64(nanos(run.Ended)))
	x.states.mem = append(x.states.mem, byte(run.State))
	x.jobs.mem = binary.BigEndian.AppendUint32(x.jobs.mem, of)
	x.workers, x.parents = append(x.workers, worker), append(x.parents, parent)
	x.addID(x.salt.Hash(byID, tenant, string(run.ID[:])))
	x.counts[of].add(run.State, 1)
	x.live++
}

// job is the number of a job.
func (x *building) job(tenant jobs.Tenant, key jobs.Key) uint32 {
	of := x.known[tenant][key]
	if of == nil {
		if x.known[tenant] == nil {
			x.known[tenant] = map[jobs.Key]*uint32{}
		}
		of = new(uint32(len(x.names)))
		x.known[tenant][key] = of
		x.names, x.counts = append(x.names, job{tenant, key}), append(x.counts, count{})
	}
	return *of
}

// wrote notes where the record of the first run without one lies.
func (x *building) wrote(offset int64) {
	x.offsets.mem = binary.BigEndian.AppendUint32(x.offsets.mem, uint32(offset))
}

func (x *building) addID(h uint32) {
	x.ids = append(x.ids, h)
	from := len(x.ids) - 1
	if 4*len(x.ids) > 3*len(x.slots) {
		from, x.slots = 0, make([]uint32, max(16, 2*len(x.slots)))
	}
	for mask := uint32(len(x.slots) - 1); from < len(x.ids); from++ {
		at := x.ids[from] & mask
		for x.slots[at] != 0 {
			at = (at + 1) & mask
		}
		x.slots[at] = uint32(from) + 1
	}
}

// withID is the runs that may have an ID, the last first: their labels are compared.
func (x *building) withID(tenant jobs.Tenant, id jobs.ID) (places []int) {
	if len(x.slots) == 0 {
		return nil
	}
	h, mask := x.salt.Hash(byID, string(tenant), string(id[:])), uint32(len(x.slots)-1)
	for at := h & mask; x.slots[at] != 0; at = (at + 1) & mask {
		if place := int(x.slots[at]) - 1; x.ids[place] == h && !x.isHidden(place) {
			places = append([]int{place}, places...)
		}
	}
	return places
}

// newest is the last runs that a query may select, before the one with a number (0 = all), the last first.
func (x *building) newest(q *metastore.RunQuery, before uint64, most int) (places []int) {
	tenant, end := string(q.Tenant), x.runs()
	worker, parent := x.salt.Hash(byWorker, tenant, q.Worker), x.salt.Hash(byParent, tenant, string(q.Parent[:]))
	if before > 0 {
		end = x.from(before)
	}
	for place := end - 1; place >= 0 && len(places) < most; place-- {
		// First what is read fastest: a family is looked up run by run, and all places are walked for each.
		if !q.Parent.IsZero() && x.parents[place] != parent || q.Worker != "" && x.workers[place] != worker {
			continue
		}
		of := &x.names[x.jobs.at(place)]
		if of.tenant == q.Tenant && (q.Job == "" || of.key == q.Job) && (q.State == kernel.New || q.State == x.state(place)) && !x.isHidden(place) {
			places = append(places, place)
		}
	}
	return places
}

// hide sets which runs are purged; by is how many of each job were not yet.
func (x *building) hide(bits []byte, by map[job]count) {
	x.hidden = bits
	for name, n := range by {
		x.counts[x.job(name.tenant, name.key)].take(n)
		x.live -= n.succeeded + n.others
	}
}

// encode appends the content of the index block of a segment that begins after a number and has the first n runs.
func (x *building) encode(b []byte, after uint64, n int) []byte {
	entries := make([]uint64, 0, 5*n)
	for place := range n {
		enter := func(h uint32) { entries = append(entries, uint64(h)<<32|uint64(place)) }
		of := x.names[x.jobs.at(place)]
		enter(x.ids[place])
		enter(x.salt.Hash(byTenant, string(of.tenant), ""))
		enter(x.salt.Hash(byJob, string(of.tenant), string(of.key)))
		if x.workers[place] != 0 {
			enter(x.workers[place])
		}
		if x.parents[place] != 0 {
			enter(x.parents[place])
		}
		if state := x.state(place); state != jobs.Succeeded {
			enter(x.salt.Hash(byState, string(of.tenant), string([]byte{byte(state)})))
		}
	}
	var names []byte
	for _, of := range x.names {
		names = blocks.AppendText(blocks.AppendText(names, string(of.tenant)), string(of.key))
	}
	b = slices.Grow(b, indexHead+25*n+8*len(entries)+len(names)+tailSize)
	b = binary.BigEndian.AppendUint64(append(b, x.salt[:]...), after)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(len(entries))), uint32(len(names)))
	for _, c := range []column{x.numbers, x.ended, x.offsets, x.states, x.jobs} {
		b = append(b, c.mem[:n*c.width]...)
	}
	for _, e := range sortedByHash(entries) {
		b = binary.BigEndian.AppendUint64(b, e)
	}
	return append(b, names...)
}

// sortedByHash sorts entries, in which the places of each hash ascend already.
func sortedByHash(entries []uint64) []uint64 {
	to := make([]uint64, len(entries))
	for shift := 32; shift < 64; shift += 16 {
		ends := make([]int, 1<<16+1)
		for _, e := range entries {
			ends[e>>shift&0xFFFF+1]++
		}
		for i := range 1 << 16 {
			ends[i+1] += ends[i]
		}
		for _, e := range entries {
			i := e >> shift & 0xFFFF
			to[ends[i]] = e
			ends[i]++
		}
		entries, to = to, entries
	}
	return entries
}
