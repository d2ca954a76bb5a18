package archive

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"slices"
	"sort"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// The runs of a file have places, counted from 0 in the order in which they ended. An index is columns of values by
// place. That of the open file is in memory, see building.go. That of a segment is read from the file, a window at a
// time, and takes little memory; besides, it has lists of places by what queries select.

// column is values of a width, in memory or in a file.
type column struct {
	width int
	mem   []byte
	file  io.ReaderAt // nil = in memory
	begin int64       // of the first value in the file
	n     int         // values in the file
	from  int         // the first value in mem, which is a window of the file
	most  int         // values in a window
	err   *error      // of reads; values are 0 after it
}

// window is how many bytes are read at once.
const window = 4 << 10

func (c *column) len() int {
	if c.file == nil {
		return len(c.mem) / c.width
	}
	return c.n
}

// at is the value at a place.
func (c *column) at(i int) uint64 {
	if c.file != nil && (i < c.from || i >= c.from+len(c.mem)/c.width) {
		c.load(i)
	}
	b := c.mem[(i-c.from)*c.width:]
	switch c.width {
	case 1:
		return uint64(b[0])
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	default:
		return binary.BigEndian.Uint64(b)
	}
}

// load moves the window to where a value is.
func (c *column) load(i int) {
	c.from = i - i%c.most
	size := min(c.most, max(c.n, i+1)-c.from) * c.width
	c.mem = slices.Grow(c.mem[:0], size)[:size]
	if _, err := c.file.ReadAt(c.mem, c.begin+int64(c.from*c.width)); err != nil {
		clear(c.mem)
		*c.err = errors.Join(*c.err, orTorn(err))
	}
}

// orTorn is an error about the end of a file that should be longer, and other errors as they are.
func orTorn(err error) error {
	if errors.Is(err, io.EOF) {
		return blocks.ErrUnreadable
	}
	return err
}

// table is the columns of the runs in a file.
type table struct {
	salt    blocks.Salt
	numbers column // 8 bytes a run, ascending
	ended   column // 8 bytes a run
	offsets column // 4 bytes a run: where its record lies; in the open file, only of runs that are written
	states  column // 1 byte a run
	jobs    column // 4 bytes a run: its job in names
	names   []job
	hidden  []byte // a bit for each purged run, maybe shorter; it is replaced, and never changed
}

func (t *table) runs() int                  { return t.numbers.len() }
func (t *table) state(place int) jobs.State { return jobs.State(t.states.at(place)) }
func (t *table) endedAt(place int) int64    { return int64(t.ended.at(place)) }
func (t *table) isHidden(place int) bool    { return isSet(t.hidden, place) }

// from is the place of the first run with a number of at least this.
func (t *table) from(number uint64) int {
	return sort.Search(t.runs(), func(i int) bool { return t.numbers.at(i) >= number })
}

// count counts the runs of each job at some places.
func (t *table) count(counted func(place int) bool) map[job]count {
	counts := make([]count, len(t.names))
	for place := range t.runs() {
		if counted(place) {
			counts[t.jobs.at(place)].add(t.state(place), 1)
		}
	}
	return named(t.names, counts)
}

// named is counts by the names of their jobs, without those of no run.
func named(names []job, counts []count) map[job]count {
	by := map[job]count{}
	for i, c := range counts {
		if c != (count{}) {
			by[names[i]] = c
		}
	}
	return by
}

func isSet(bits []byte, place int) bool {
	return place/8 < len(bits) && bits[place/8]&(1<<(place%8)) != 0
}

// or adds bits of a shorter list, or one as long.
func or(bits, more []byte) []byte {
	for i, b := range more {
		bits[i] |= b
	}
	return bits
}

func countSet(b []byte) (n int) {
	for _, b := range b {
		n += bits.OnesCount8(b)
	}
	return n
}

// found is a run by its number and its place in the file, or itself if it is not there yet.
type found struct {
	number uint64
	offset int64
	row    *kernel.Run
}

// at is the runs at some places. buffer has those that are not in the file yet.
func (t *table) at(places []int, buffer []pending) []found {
	batch, written := make([]found, len(places)), t.offsets.len()
	for i, place := range places {
		batch[i].number = t.numbers.at(place)
		if place >= written {
			batch[i].row = buffer[place-written].row
		} else {
			batch[i].offset = int64(t.offsets.at(place))
		}
	}
	return batch
}

// reading is the index of a segment, for one reader.
type reading struct {
	table
	entries column // 8 bytes each, ascending: a hash, and the place of a run that has it
	fences  []uint32
	failed  error
}

// list is the entries with a hash: from one, up to but without another one.
func (v *reading) list(kind byte, tenant, name string) (from, to int) {
	h := uint64(v.salt.Hash(kind, tenant, name))
	return v.least(h), v.least(h + 1)
}

// least is the first entry whose hash is at least this. It reads one window.
func (v *reading) least(h uint64) int {
	after := sort.Search(len(v.fences), func(i int) bool { return uint64(v.fences[i]) >= h }) // the window behind it
	if after == 0 {
		return 0
	}
	from, to := (after-1)*v.entries.most+1, min(after*v.entries.most, v.entries.len())
	return from + sort.Search(to-from, func(i int) bool { return v.entries.at(from+i)>>32 >= h })
}

func (v *reading) place(entry int) int { return int(uint32(v.entries.at(entry))) }

// newest is the last runs that a query may select, before the one with a number (0 = all), the last first: those of
// the shortest list that has all of them.
func (v *reading) newest(q *metastore.RunQuery, before uint64, most int) (places []int) {
	tenant := string(q.Tenant)
	from, to := 0, v.entries.len()
	consider := func(kind byte, name string) {
		if f, t := v.list(kind, tenant, name); t-f < to-from {
			from, to = f, t
		}
	}
	if !q.Parent.IsZero() { // a family is looked up run by run: nothing else is read
		consider(byParent, string(q.Parent[:]))
	}
	if q.Job != "" && to > from {
		consider(byJob, string(q.Job))
	}
	if q.Worker != "" && to > from {
		consider(byWorker, q.Worker)
	}
	if q.State != kernel.New && q.State != jobs.Succeeded && to > from {
		consider(byState, string([]byte{byte(q.State)}))
	}
	if to-from == v.entries.len() {
		from, to = v.list(byTenant, tenant, "")
	}
	if before > 0 {
		end := v.from(before)
		to = from + sort.Search(to-from, func(i int) bool { return v.place(from+i) >= end })
	}
	for to--; to >= from && len(places) < most; to-- {
		if place := v.place(to); !v.isHidden(place) {
			places = append(places, place)
		}
	}
	return places
}

// withID is the runs that may have an ID, the last first: their labels are compared.
func (v *reading) withID(tenant jobs.Tenant, id jobs.ID) (places []int) {
	from, to := v.list(byID, string(tenant), string(id[:]))
	for to--; to >= from; to-- {
		if place := v.place(to); !v.isHidden(place) {
			places = append(places, place)
		}
	}
	return places
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
