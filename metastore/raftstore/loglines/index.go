package loglines

import (
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// entry is where a record is, and which lines it has.
type entry struct {
	place, number, count uint32 // number is the attempt's
	link                 uint32 // in memory, where the entry before of the same hash is, + 1; in a file, the hash
	first                uint64
}

func (e *entry) begin() metastore.LogPosition {
	return metastore.LogPosition{Attempt: e.number, Sequence: e.first}
}

func (e *entry) end() metastore.LogPosition {
	return metastore.LogPosition{Attempt: e.number, Sequence: e.first + uint64(e.count) - 1}
}

// index finds the records of a file, in memory.
type index struct {
	entries []entry
	newest  map[uint32]uint32 // by the hash of a run: where its last entry is, + 1
}

func (x *index) add(h uint32, e entry) {
	e.link = x.newest[h]
	x.entries = append(x.entries, e)
	x.newest[h] = uint32(len(x.entries))
}

// of is the entries with a hash, the last first.
func (x *index) of(h uint32) (found []entry) {
	for at := x.newest[h]; at > 0; at = x.entries[at-1].link {
		found = append(found, x.entries[at-1])
	}
	return found
}

// An index in a file is blocks of one page each, with entries in the order of hashes, then positions.
const (
	pageSize  = 4 << 10
	entrySize = 24
	perPage   = (pageSize - blocks.HeadSize) / entrySize
	footSize  = blocks.HeadSize + 24 + 16
)

// foot is the content of the last block of a sealed file.
type foot struct {
	pages   int64 // where the index begins
	entries int
	newest  int64 // when its last record was stored
	bits    int   // bytes of the filter, which comes after the index
}

// filter is bits by hashes, so that most files without a run are not searched: a file has about one byte for each of
// its runs, in memory once it has been asked.
type filter []byte

// places are the two bits of a hash. The length is a power of two.
func (f filter) places(h uint32) [2]uint32 {
	most := uint32(8*len(f) - 1)
	return [2]uint32{h & most, h * 0x9E3779B1 >> 7 & most}
}

func (f filter) add(h uint32) {
	for _, at := range f.places(h) {
		f[at/8] |= 1 << (at % 8)
	}
}

func (f filter) has(h uint32) bool {
	for _, at := range f.places(h) {
		if f[at/8]&(1<<(at%8)) == 0 {
			return false
		}
	}
	return true
}

// seal appends an index, and its foot, to a file.
func (x *index) seal(w *blocks.Writer, salt *blocks.Salt, newest int64) foot {
	f := foot{pages: w.At + int64(len(w.B)), entries: len(x.entries), newest: newest, bits: 1 << bits.Len(uint(len(x.newest)))}
	seen, hashes := make(filter, f.bits), make([]uint32, 0, len(x.newest))
	for h := range x.newest {
		hashes = append(hashes, h)
		seen.add(h)
	}
	slices.Sort(hashes)
	for _, h := range hashes {
		of := x.of(h)
		slices.SortFunc(of, func(a, b entry) int { return a.begin().Compare(b.begin()) })
		for _, e := range of {
			if w.Head.Count == perPage {
				w.End(0)
			}
			if w.Head.Kind == 0 {
				w.Begin(blocks.Index)
			}
			for _, n := range [...]uint32{h, e.place, e.number, e.count} {
				w.B = binary.BigEndian.AppendUint32(w.B, n)
			}
			w.B = binary.BigEndian.AppendUint64(w.B, e.first)
			w.Head.Count++
		}
	}
	w.End(0)
	w.Begin(blocks.Index)
	w.B = append(w.B, seen...)
	w.End(0)
	w.Begin(blocks.Foot)
	w.B = binary.BigEndian.AppendUint64(w.B, uint64(f.pages))
	w.B = binary.BigEndian.AppendUint32(w.B, uint32(f.entries))
	w.B = binary.BigEndian.AppendUint64(w.B, uint64(f.newest))
	w.B = append(binary.BigEndian.AppendUint32(w.B, uint32(f.bits)), salt[:]...)
	w.End(0)
	return f
}

// readFoot reads the foot at the end of a file, and the number of its last record. The salt shows that it is no text
// of a line.
func readFoot(file io.ReaderAt, size int64, salt *blocks.Salt) (f foot, last uint64, err error) {
	var b [footSize]byte
	if size < footSize {
		return f, 0, blocks.ErrUnreadable
	}
	if _, err := file.ReadAt(b[:], size-footSize); err != nil {
		return f, 0, err
	}
	h, content, err := blocks.Parse(b[:])
	if err != nil || h.Kind != blocks.Foot || h.Size != footSize || string(content[24:]) != string(salt[:]) {
		return f, 0, blocks.ErrUnreadable
	}
	f = foot{pages: int64(binary.BigEndian.Uint64(content)), entries: int(binary.BigEndian.Uint32(content[8:])), newest: int64(binary.BigEndian.Uint64(content[12:])),
		bits: int(binary.BigEndian.Uint32(content[20:]))}
	return f, h.Last, nil
}

// pages reads an index in a file.
type pages struct {
	foot
	file io.ReaderAt
	at   int // of the page that is in memory
	b    []byte
	err  error // of reads; entries are 0 after it
}

func (p *pages) entry(i int) (e entry) {
	if p.b == nil || p.at != i/perPage {
		p.load(i / perPage)
	}
	if p.err != nil {
		return e
	}
	b := p.b[i%perPage*entrySize:]
	return entry{link: binary.BigEndian.Uint32(b), place: binary.BigEndian.Uint32(b[4:]), number: binary.BigEndian.Uint32(b[8:]),
		count: binary.BigEndian.Uint32(b[12:]), first: binary.BigEndian.Uint64(b[16:])}
}

func (p *pages) load(page int) {
	n := min(perPage, p.entries-page*perPage) * entrySize
	p.at, p.b = page, p.block(p.pages+int64(page)*pageSize, n)
}

// block is the content of a block of the index.
func (p *pages) block(at int64, n int) []byte {
	b := make([]byte, blocks.HeadSize+n)
	_, err := p.file.ReadAt(b, at)
	h, content, bad := blocks.Parse(b)
	if err == nil && (bad != nil || h.Kind != blocks.Index || len(content) != n) {
		err = blocks.ErrUnreadable
	}
	p.err = cmp.Or(p.err, err)
	return content
}

// filter reads the filter of the runs that the file has.
func (p *pages) filter() filter {
	return p.block(p.pages+int64((p.entries+perPage-1)/perPage*blocks.HeadSize+p.entries*entrySize), p.bits)
}

// from is the first entry with a hash that begins after a position.
func (p *pages) from(h uint32, after metastore.LogPosition) int {
	return sort.Search(p.entries, func(i int) bool {
		e := p.entry(i)
		return e.link > h || e.link == h && e.begin().Compare(after) > 0
	})
}

// end is after all positions of an attempt, and before those of the next one.
func end(attempt uint32) metastore.LogPosition {
	return metastore.LogPosition{Attempt: attempt, Sequence: math.MaxUint64}
}
