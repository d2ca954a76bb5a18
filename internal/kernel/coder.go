package kernel

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// coder writes fields to buf, or reads them from it. Writing does not change the fields: rows are shared.
type coder struct {
	buf     []byte
	reading bool
	looking bool   // neither reads nor writes, but finds the first text that is none
	found   string // that one
	lenient bool   // reading: ignore what follows the known fields of a row, instead of refusing it
	framed  bool   // inside a row: fields may be missing at its end
	end     int    // writing: where the row ends if the later fields from here on are zero; 0 = it has no later field yet
	needs   uint32
	err     error
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = Invalid("wire: %s", what)
	}
	c.buf = nil
}

func (c *coder) uint(v *uint64) {
	if !c.reading {
		if !c.looking {
			c.buf = binary.AppendUvarint(c.buf, *v)
		}
		return
	}
	if len(c.buf) == 0 && c.framed { // a field that the writer did not know
		*v = 0
		return
	}
	x, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.fail("bad number")
		return
	}
	*v, c.buf = x, c.buf[n:]
}

func (c *coder) int(v *int64) {
	u := uint64(*v)<<1 ^ uint64(*v>>63)
	c.uint(&u)
	if c.reading {
		*v = int64(u>>1) ^ -int64(u&1)
	}
}

func number[T ~uint8 | ~uint32 | ~uint64](c *coder, v *T) {
	u := uint64(*v)
	c.uint(&u)
	if u > uint64(^T(0)) {
		c.fail("number out of range")
		return
	}
	if c.reading {
		*v = T(u)
	}
}

func signed[T ~int | ~int64](c *coder, v *T) {
	i := int64(*v)
	c.int(&i)
	if c.reading {
		*v = T(i)
	}
}

func (c *coder) bool(v *bool) {
	var u uint64
	if *v {
		u = 1
	}
	c.uint(&u)
	if u > 1 {
		c.fail("bad yes or no")
	}
	if c.reading {
		*v = u == 1
	}
}

func (c *coder) float(v *float64) {
	u := math.Float64bits(*v)
	c.uint(&u)
	if c.reading {
		*v = math.Float64frombits(u)
	}
}

// size writes or reads the length of a list whose items take at least least bytes each.
func (c *coder) size(n, least int) int {
	u := uint64(n)
	c.uint(&u)
	if c.reading && u > uint64(len(c.buf)/least) {
		c.fail("length beyond the end")
		return 0
	}
	return int(u)
}

func text[T ~string](c *coder, v *T) {
	n := c.size(len(*v), 1)
	if !c.reading {
		c.write(string(*v))
		return
	}
	*v = T(c.buf[:n])
	c.buf = c.buf[n:]
}

// write writes a text, or looks at it.
func (c *coder) write(v string) {
	switch {
	case !c.looking:
		c.buf = append(c.buf, v...)
	case c.found == "" && !plain.Is(v):
		c.found = v
	}
}

// word is a text that many rows share, such as a key or a worker's name: reading it again allocates nothing.
func word[T ~string](c *coder, v *T) {
	n := c.size(len(*v), 1)
	if !c.reading {
		c.write(string(*v))
		return
	}
	*v = T(shared(c.buf[:n]))
	c.buf = c.buf[n:]
}

// words caches texts by their hash, the latest one in each slot: a text that occurs once evicts at most one other.
var (
	words [1024]atomic.Pointer[string]
	seed  = maphash.MakeSeed()
)

// longestWord keeps long texts, which are rarely repeated, from evicting short ones.
const longestWord = 64

func shared(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > longestWord {
		return string(b)
	}
	place := &words[maphash.Bytes(seed, b)%uint64(len(words))]
	if known := place.Load(); known != nil && *known == string(b) {
		return *known
	}
	text := string(b)
	place.Store(&text)
	return text
}

// bytesOf does not preserve the difference between nil and empty: both read back as nil.
func bytesOf[T ~[]byte](c *coder, v *T) {
	n := c.size(len(*v), 1)
	if !c.reading {
		if !c.looking {
			c.buf = append(c.buf, *v...)
		}
		return
	}
	*v = nil
	if n > 0 {
		*v = append(T(nil), c.buf[:n]...)
	}
	c.buf = c.buf[n:]
}

func (c *coder) id(v *jobs.ID) {
	if !c.reading {
		if !c.looking {
			c.buf = append(c.buf, v[:]...)
		}
		return
	}
	if len(c.buf) == 0 && c.framed {
		*v = jobs.ID{}
		return
	}
	if len(c.buf) < len(v) {
		c.fail("short id")
		return
	}
	c.buf = c.buf[copy(v[:], c.buf):]
}

// rareID is an ID that is mostly zero: then it is one byte.
func (c *coder) rareID(v *jobs.ID) {
	has := !v.IsZero()
	if c.bool(&has); has {
		c.id(v)
	} else if c.reading {
		*v = jobs.ID{}
	}
}

// wireTime returns 0 for the zero time; an instant that is exactly Unix nanosecond 0 would read back as zero, and no row
// has one.
func wireTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (c *coder) time(v *time.Time) {
	var n int64
	if !c.reading {
		n = wireTime(*v)
	}
	c.int(&n)
	if c.reading {
		*v = time.Time{}
		if n != 0 {
			*v = time.Unix(0, n).UTC()
		}
	}
}

func list[T any](c *coder, v *[]T, least int, item func(*coder, *T)) {
	n := c.size(len(*v), least)
	if c.reading {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		item(c, &(*v)[i])
	}
}

// some is a field that may be nil.
func some[T any](c *coder, v **T, item func(*coder, *T)) {
	has := *v != nil
	c.bool(&has)
	if c.reading {
		*v = nil
		if has {
			*v = new(T)
		}
	}
	if has {
		item(c, *v)
	}
}

// since records the version of the rules that a reader must support.
func (c *coder) since(version uint32) { c.needs = max(c.needs, version) }

// later is a field that a version of the rules after the first added at the end of a row. A zero value takes no bytes
// there, so a newer program writes the same bytes as an older one until that version is in force and the field is used.
func later[T comparable](c *coder, version uint32, v *T, field func(*coder, *T)) {
	if c.reading {
		field(c, v)
		return
	}
	if c.end == 0 {
		c.end = len(c.buf)
	}
	field(c, v)
	if *v != *new(T) {
		c.end = len(c.buf)
		c.since(version)
	}
}

// row prefixes the fields of body with their length, so that fields can be added later.
func (c *coder) row(body func(*coder)) {
	if c.looking {
		body(c)
		return
	}
	if !c.reading {
		at, end := len(c.buf), c.end
		c.buf, c.end = append(c.buf, 0, 0, 0, 0), 0
		body(c)
		if c.end > 0 {
			c.buf = c.buf[:c.end]
		}
		c.end = end
		binary.LittleEndian.PutUint32(c.buf[at:], uint32(len(c.buf)-at-4))
		return
	}
	if len(c.buf) == 0 && c.framed { // a field that the writer did not know
		return
	}
	if len(c.buf) < 4 {
		c.fail("short row")
		return
	}
	n := int(binary.LittleEndian.Uint32(c.buf))
	if n > len(c.buf)-4 {
		c.fail("row beyond the end")
		return
	}
	after, framed := c.buf[4+n:], c.framed
	c.buf, c.framed = c.buf[4:4+n:4+n], true
	body(c)
	c.framed = framed
	if c.err == nil && len(c.buf) > 0 && !c.lenient {
		c.fail(fmt.Sprintf("unknown fields of %d bytes at the end of a row: this program supports version %d of the rules: start a newer program", len(c.buf), ApplyVersion))
	}
	if c.err == nil {
		c.buf = after
	}
}

func (c *coder) done() error {
	if c.err == nil && len(c.buf) > 0 {
		c.fail(fmt.Sprintf("%d bytes too many", len(c.buf)))
	}
	return c.err
}
