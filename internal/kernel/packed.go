package kernel

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unique"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A definition takes 2 KB, and most of it is equal in many jobs: unset fields and defaults. A store of many jobs keeps
// those that are not in use as Packed: a job's own fields in about 50 bytes, and all others once for all jobs that have
// the same ones. A new field is one of the others unless it is added to ownFields.

// Packed is a definition in few bytes. It never changes.
type Packed struct {
	Key  jobs.Key
	own  string
	like unique.Handle[string] // the other fields, as a row
}

// Pack packs the definition. key is its key: this copy of the text stays in memory.
func (d *Definition) Pack(key jobs.Key) *Packed {
	buf := make([]byte, 0, 128)
	c := ownFields{coder: coder{buf: buf}, looking: true}
	c.definition(d)
	mask := c.mask
	c.looking, c.n, c.buf = false, 0, buf
	c.uint(&mask)
	c.definition(d)
	return &Packed{Key: key, own: string(c.buf), like: unique.Make(string(AppendRow(nil, d.others())))}
}

// Unpack returns the definition. Rows of several jobs share lists and settings.
func (p *Packed) Unpack() *Definition { return sound(p.unpack()) }

func (p *Packed) unpack() (*Definition, error) {
	shared, err := likeOf[*Definition](&likeDefinitions, p.like)
	if err != nil {
		return nil, err
	}
	d := *shared
	d.Key = p.Key
	c := ownFields{coder: coder{buf: []byte(p.own), reading: true}}
	c.uint(&c.mask)
	c.definition(&d)
	return &d, c.end()
}

// sound returns a row that this process packed, or checked when it read it.
func sound[R any](row R, err error) R {
	if err != nil {
		panic(err)
	}
	return row
}

// others returns the fields that are not the job's own.
func (d *Definition) others() *Definition {
	o := *d
	o.UID, o.Key, o.Revision, o.Change = jobs.ID{}, "", 0, 0
	for _, t := range o.times() {
		*t = time.Time{}
	}
	o.Created, o.Paused, o.AfterPause, o.Undecided, o.Ahead, o.Silences, o.Running, o.Failing, o.Executions, o.Registered = time.Time{}, nil, nil, nil, nil, nil, jobs.ID{}, 0, 0, false
	for _, s := range []*Settings{&o.Code, &o.Edits} {
		s.Name, s.Description, s.Schedule, s.Start, s.End, s.First, s.Args, s.HTTP, s.Exec = nil, nil, nil, nil, nil, nil, nil, nil, nil
	}
	p := &o.Policy
	p.Name, p.Description, p.Schedule, p.Start, p.End, p.First, p.Args, p.HTTP, p.Exec = "", "", "", time.Time{}, time.Time{}, time.Time{}, nil, nil, nil
	return &o
}

// times are the fields that are stored as their distance from Created: the first five are often equal to it, the
// others are mostly zero.
func (d *Definition) times() [10]*time.Time {
	return [...]*time.Time{&d.Edited, &d.Cursor, &d.SetAt, &d.Anchor, &d.TTLFrom, &d.Missed, &d.Deleted, &d.Ended, &d.Stopped, &d.Purged}
}

// ownFields writes or reads the job's own fields, after a mask with a bit for each one that is not the usual value. When
// it is looking, it only makes the mask.
type ownFields struct {
	coder
	looking bool
	mask    uint64
	n       int
}

// has reports whether the next field is written. value reports whether it has to be.
func (c *ownFields) has(value bool) bool {
	bit := uint64(1) << c.n
	c.n++
	if c.looking && value {
		c.mask |= bit
	}
	return !c.looking && (c.mask&bit != 0 || !c.reading && value)
}

// times carries times of which the first equal ones are mostly equal to the time of creation, and the others zero.
func (c *ownFields) times(created time.Time, equal int, list ...*time.Time) {
	usual := created
	for i, t := range list {
		if i == equal {
			usual = time.Time{}
		}
		if c.has(!t.Equal(usual)) {
			c.distance(t, created)
		} else if c.reading {
			*t = usual
		}
	}
}

// end reports what is wrong with fields that were read, if anything is. A field of a newer program is.
func (c *ownFields) end() error {
	if c.err == nil && c.mask>>c.n != 0 {
		c.fail("unknown fields of a packed row: start a newer program")
	}
	return c.done()
}

func (c *ownFields) definition(d *Definition) {
	if !c.looking {
		c.id(&d.UID)
		number(&c.coder, &d.Revision)
		number(&c.coder, &d.Change)
		c.time(&d.Created)
	}
	own := d.times()
	c.times(d.Created, 5, own[:]...)
	if c.has(d.Paused != nil) {
		some(&c.coder, &d.Paused, wireHeld)
	}
	if c.has(d.AfterPause != nil) {
		some(&c.coder, &d.AfterPause, wireAfterPause)
	}
	if c.has(len(d.Undecided) > 0) {
		list(&c.coder, &d.Undecided, 8, wireEarlier)
	}
	if c.has(len(d.Ahead) > 0) {
		list(&c.coder, &d.Ahead, 8, wireEarlier)
	}
	if c.has(len(d.Silences) > 0) {
		list(&c.coder, &d.Silences, 3, wireSilence)
	}
	if c.has(!d.Running.IsZero()) {
		c.id(&d.Running)
	}
	if c.has(d.Failing != 0) {
		signed(&c.coder, &d.Failing)
	}
	if c.has(d.Executions != 0) {
		number(&c.coder, &d.Executions)
	}
	registered := c.has(d.Registered)
	if c.reading {
		d.Registered = registered
	}
	code, edits, p := &d.Code, &d.Edits, &d.Policy
	ownField(c, &code.Name, &edits.Name, &p.Name, string(d.Key), equal[string], wireString)
	ownField(c, &code.Description, &edits.Description, &p.Description, "", equal[string], wireString)
	ownField(c, &code.Schedule, &edits.Schedule, &p.Schedule, "", equal[string], wireString)
	ownField(c, &code.Start, &edits.Start, &p.Start, time.Time{}, time.Time.Equal, (*coder).time)
	ownField(c, &code.End, &edits.End, &p.End, time.Time{}, time.Time.Equal, (*coder).time)
	ownField(c, &code.First, &edits.First, &p.First, time.Time{}, time.Time.Equal, (*coder).time)
	ownField(c, &code.Args, &edits.Args, &p.Args, nil, sameBytes, bytesOf)
	ownField(c, &code.HTTP, &edits.HTTP, &p.HTTP, nil, sameBytes, bytesOf)
	ownField(c, &code.Exec, &edits.Exec, &p.Exec, nil, sameBytes, bytesOf)
}

func sameBytes(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

func equal[T comparable](a, b T) bool { return a == b }

// ownField is a setting that the code, an edit or neither sets. The policy mostly has the value of the last of them.
func ownField[T any](c *ownFields, code, edits **T, p *T, usual T, same func(a, b T) bool, field func(*coder, *T)) {
	for _, of := range []**T{code, edits} {
		if c.has(*of != nil) {
			if c.reading {
				*of = new(T)
			}
			field(&c.coder, *of)
		}
		if *of != nil {
			usual = **of
		}
	}
	if c.has(!same(*p, usual)) {
		field(&c.coder, p)
	} else if c.reading {
		*p = usual
	}
}

// distance is a time, as its distance from another one. Zero times are those of Unix nanosecond 0; see coder.time.
func (c *ownFields) distance(t *time.Time, from time.Time) {
	var base int64
	if !from.IsZero() {
		base = from.UnixNano()
	}
	var n int64
	if !c.reading && !t.IsZero() {
		n = t.UnixNano()
	}
	n -= base
	c.int(&n)
	if c.reading {
		*t = time.Time{}
		if n += base; n != 0 {
			*t = time.Unix(0, n).UTC()
		}
	}
}

// likes caches what rows that were unpacked last have in common, by its hash.
type likes [64]atomic.Pointer[likeness]

type likeness struct {
	of  unique.Handle[string]
	row Row
}

var (
	likeDefinitions, likeRuns likes
	likeSeed                  = maphash.MakeSeed()
)

func likeOf[R Row](known *likes, h unique.Handle[string]) (shared R, err error) {
	place := &known[maphash.Comparable(likeSeed, h)%uint64(len(known))]
	if l := place.Load(); l != nil && l.of == h {
		return l.row.(R), nil
	}
	row, rest, err := DecodeRow([]byte(h.Value()))
	if err != nil {
		return shared, err
	}
	shared, ok := row.(R)
	if !ok || len(rest) > 0 {
		return shared, Invalid("wire: packed rows share another row")
	}
	place.Store(&likeness{h, row})
	return shared, nil
}

// PackedRun is a run in few bytes, without its ID: what it has of its own, and what it shares with the runs of its job
// that are in the same state. It never changes.
type PackedRun struct {
	own  string
	like unique.Handle[string] // the other fields, as a row
}

// Pack packs the run.
func (run *Run) Pack() *PackedRun {
	buf := make([]byte, 0, 512)
	c := ownFields{coder: coder{buf: buf}, looking: true}
	c.run(run)
	mask := c.mask
	c.looking, c.n, c.buf = false, 0, buf
	c.uint(&mask)
	c.run(run)
	return &PackedRun{own: string(c.buf), like: unique.Make(string(AppendRow(nil, run.others())))}
}

// Unpack returns the run, given its ID.
func (p *PackedRun) Unpack(id jobs.ID) *Run { return sound(p.unpack(id)) }

func (p *PackedRun) unpack(id jobs.ID) (*Run, error) {
	shared, err := likeOf[*Run](&likeRuns, p.like)
	if err != nil {
		return nil, err
	}
	run := *shared
	run.ID = id
	c := ownFields{coder: coder{buf: []byte(p.own), reading: true}}
	c.uint(&c.mask)
	c.run(&run)
	return &run, c.end()
}

// others returns the fields that are not the run's own.
func (run *Run) others() *Run {
	o := *run
	o.ID, o.Args, o.Checkpoint, o.Result, o.Error, o.Moves, o.Parent, o.Unique, o.Trace = jobs.ID{}, nil, nil, nil, "", nil, jobs.ID{}, "", ""
	o.Created, o.Turn, o.Version, o.Gates, o.Waits, o.Faults, o.Feedback, o.Place, o.Execution = time.Time{}, 0, 0, nil, "", nil, nil, nil, 0
	for _, t := range o.times() {
		*t = time.Time{}
	}
	return &o
}

// times are the fields that are stored as their distance from Created: the first two are often equal to it, the others
// are mostly zero.
func (run *Run) times() [8]*time.Time {
	return [...]*time.Time{&run.Due, &run.Queued, &run.Started, &run.Ended, &run.Deadline, &run.StartBy, &run.RetryAt, &run.Opens}
}

func (c *ownFields) run(run *Run) {
	if !c.looking {
		c.time(&run.Created)
		number(&c.coder, &run.Version)
	}
	own := run.times()
	c.times(run.Created, 2, own[:]...)
	if c.has(len(run.Args) > 0) {
		bytesOf(&c.coder, &run.Args)
	}
	if c.has(run.Turn != 0) {
		number(&c.coder, &run.Turn)
	}
	first := Move{State: run.State, Cause: run.Cause, At: run.Created, By: run.Actor}
	if c.has(len(run.Moves) != 1 || run.Moves[0] != first) {
		list(&c.coder, &run.Moves, 6, wireMove)
	} else if c.reading {
		run.Moves = []Move{first}
	}
	if c.has(len(run.Gates) > 0) {
		wireStrings(&c.coder, &run.Gates)
	}
	for _, s := range []*string{&run.Waits, &run.Error, &run.Unique, &run.Trace} {
		if c.has(*s != "") {
			word(&c.coder, s)
		}
	}
	for _, b := range []*[]byte{&run.Checkpoint, &run.Result} {
		if c.has(len(*b) > 0) {
			bytesOf(&c.coder, b)
		}
	}
	if c.has(!run.Parent.IsZero()) {
		c.id(&run.Parent)
	}
	if c.has(len(run.Faults) > 0) {
		list(&c.coder, &run.Faults, 4, wireFault)
	}
	if c.has(run.Feedback != nil) {
		some(&c.coder, &run.Feedback, wireFeedback)
	}
	if c.has(run.Place != nil) {
		some(&c.coder, &run.Place, wirePlace)
	}
	if c.has(run.Execution != 0) {
		number(&c.coder, &run.Execution)
	}
}
