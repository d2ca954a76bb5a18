package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A sealed file has its runs by number, and beside them its indexes, which are read from the file and take no memory:
// numbers, states, lists and groups are columns in the order of the runs, or of their hashes.

// finder is the indexes of a sealed file. Its slices are mapped from the file: they are valid for one transaction.
type finder struct {
	numbers []byte // 8 bytes a run, ascending
	states  []byte // 1 byte a run
	lists   []byte // 8 bytes an entry, ascending: a hash, and the run's place
	groups  []byte // the runs of each job: tenant, key, how many, their places (4 bytes each, ascending)
	salt    []byte // of the hashes
}

// The kinds of hashes.
const (
	byID     = 'i'
	byTenant = 't'
	byJob    = 'j'
	byWorker = 'w'
	byParent = 'p'
	byState  = 's' // of all but Succeeded, which nearly all are in
)

// hashOf is the hash of a thing in the lists. It is salted, so that clients cannot choose ids that collide; matches
// are compared with their labels all the same.
func hashOf(salt []byte, kind byte, tenant []byte, name []byte) uint32 {
	b := make([]byte, 0, 128)
	b = append(append(append(b, salt...), kind, byte(len(tenant))), tenant...)
	sum := sha256.Sum256(append(b, name...))
	return binary.LittleEndian.Uint32(sum[:])
}

// maker makes the columns of a file that is being sealed.
type maker struct {
	salt    []byte
	numbers []byte
	states  []byte
	entries []uint64
	tenants map[string]uint32 // hashes that come again and again
	groups  map[string][]uint32
}

func newMaker(salt []byte) *maker {
	return &maker{salt: salt, tenants: map[string]uint32{}, groups: map[string][]uint32{}}
}

func (m *maker) add(number uint64, l *label) {
	place := uint32(len(m.states))
	m.numbers = binary.BigEndian.AppendUint64(m.numbers, number)
	m.states = append(m.states, byte(l.state))
	enter := func(h uint32) { m.entries = append(m.entries, uint64(h)<<32|uint64(place)) }
	often := func(kind byte, name []byte) {
		key := string(kind) + string(l.tenant) + "\x00" + string(name)
		h, ok := m.tenants[key]
		if !ok {
			h = hashOf(m.salt, kind, l.tenant, name)
			m.tenants[key] = h
		}
		enter(h)
	}
	enter(hashOf(m.salt, byID, l.tenant, l.id[:]))
	often(byTenant, nil)
	often(byJob, l.key)
	if len(l.worker) > 0 {
		often(byWorker, l.worker)
	}
	if !l.parent.IsZero() {
		enter(hashOf(m.salt, byParent, l.tenant, l.parent[:]))
	}
	if l.state != jobs.Succeeded {
		often(byState, []byte{byte(l.state)})
	}
	group := appendText(appendText(nil, l.tenant), l.key)
	m.groups[string(group)] = append(m.groups[string(group)], place)
}

func appendText(b, s []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }

// columns are the columns to write.
func (m *maker) columns() finder {
	slices.Sort(m.entries)
	f := finder{numbers: m.numbers, states: m.states, salt: m.salt, lists: make([]byte, 0, 8*len(m.entries))}
	for _, e := range m.entries {
		f.lists = binary.BigEndian.AppendUint64(f.lists, e)
	}
	for group, places := range m.groups {
		f.groups = append(f.groups, group...)
		f.groups = binary.AppendUvarint(f.groups, uint64(len(places)))
		for _, p := range places {
			f.groups = binary.BigEndian.AppendUint32(f.groups, p)
		}
	}
	return f
}

func (f *finder) runs() int { return len(f.states) }

func (f *finder) number(place uint32) uint64 {
	return binary.BigEndian.Uint64(f.numbers[8*int(place):])
}

// from is the place of the first run with a number of at least this.
func (f *finder) from(number uint64) int {
	return sort.Search(f.runs(), func(i int) bool { return f.number(uint32(i)) >= number })
}

// places is a list of places within a file.
type filed []byte

func (l filed) len() int         { return len(l) / 8 }
func (l filed) at(i int) uint32  { return binary.BigEndian.Uint32(l[8*i+4:]) }
func (l filed) up(to int) filed  { return l[:8*to] }
func (f *finder) entries() filed { return filed(f.lists) }

// list is the runs under a hash.
func (f *finder) list(h uint32) filed {
	all := f.entries()
	hash := func(i int) uint32 { return binary.BigEndian.Uint32(all[8*i:]) }
	first := sort.Search(all.len(), func(i int) bool { return hash(i) >= h })
	next := sort.Search(all.len(), func(i int) bool { return hash(i) > h })
	return all[8*first : 8*next]
}

// find chooses the shortest list that has all that a query selects, up to but without the run of a number (0 = all).
func (f *finder) find(q *metastore.RunQuery, before uint64) filed {
	tenant := []byte(q.Tenant)
	best := f.list(hashOf(f.salt, byTenant, tenant, nil))
	consider := func(kind byte, name []byte) {
		if l := f.list(hashOf(f.salt, kind, tenant, name)); l.len() < best.len() {
			best = l
		}
	}
	if q.Job != "" {
		consider(byJob, []byte(q.Job))
	}
	if q.Worker != "" {
		consider(byWorker, []byte(q.Worker))
	}
	if !q.Parent.IsZero() {
		consider(byParent, q.Parent[:])
	}
	if q.State != kernel.New && q.State != jobs.Succeeded {
		consider(byState, []byte{byte(q.State)})
	}
	if before > 0 {
		best = best.up(sort.Search(best.len(), func(i int) bool { return f.number(best.at(i)) >= before }))
	}
	return best
}

// group is the runs of a job in a file.
type group struct {
	tenant, key []byte
	places      []byte // 4 bytes each
}

func (g *group) len() int        { return len(g.places) / 4 }
func (g *group) at(i int) uint32 { return binary.BigEndian.Uint32(g.places[4*i:]) }

// each calls fn for the jobs of the file.
func (f *finder) each(fn func(g *group)) error {
	b := f.groups
	text := func() (s []byte, ok bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, false
		}
		s, b = b[size:size+int(n)], b[size+int(n):]
		return s, true
	}
	for len(b) > 0 {
		var g group
		var ok bool
		if g.tenant, ok = text(); !ok {
			return errRecord
		}
		if g.key, ok = text(); !ok {
			return errRecord
		}
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size)/4 {
			return errRecord
		}
		g.places, b = b[size:size+4*int(n)], b[size+4*int(n):]
		fn(&g)
	}
	return nil
}
