package kernel

import (
	"time"
	"unique"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Parcel is some rows as a snapshot file has them: packed, and with what they share once for all of them. It is no row
// of a store.
type Parcel struct {
	Definitions []*Packed
	Runs        []ParcelRun
	Stubs       []Stub

	// Rows are the definitions, unpacked. Only a parcel that was read has them.
	Rows []*Definition

	bytes int // of what was added, about
}

// A parcel is full when it has so many rows, or so many bytes: what reads a file sets a limit to what it takes at once.
const (
	mostParcelRows  = 512
	mostParcelBytes = 1 << 20
)

// Full reports whether nothing more should be added.
func (p *Parcel) Full() bool { return p.Len() >= mostParcelRows || p.bytes >= mostParcelBytes }

// AddDefinition adds a definition.
func (p *Parcel) AddDefinition(d *Packed) {
	p.Definitions = append(p.Definitions, d)
	p.bytes += len(d.own) + len(d.like.Value())
}

// AddRun adds a live run.
func (p *Parcel) AddRun(id jobs.ID, run *PackedRun) {
	p.Runs = append(p.Runs, ParcelRun{ID: id, Packed: run})
	p.bytes += len(run.own) + len(run.like.Value())
}

// AddStub adds what remains of a settled run.
func (p *Parcel) AddStub(s Stub) { p.Stubs = append(p.Stubs, s) }

// ParcelRun is a live run in a parcel.
type ParcelRun struct {
	ID     jobs.ID
	Packed *PackedRun
	Row    *Run // the run, unpacked; only a parcel that was read has it
}

// Stub is what remains of a settled run for a while.
type Stub struct {
	Tenant      jobs.Tenant
	ID          jobs.ID
	Key, Worker string
	Attempt     uint32
	State       jobs.State
	Ended       time.Time
}

// Len returns how many rows the parcel has.
func (p *Parcel) Len() int { return len(p.Definitions) + len(p.Runs) + len(p.Stubs) }

// Ref returns the reference of a parcel. All have the same: a store has none.
func (p *Parcel) Ref() Ref { return Ref{Kind: RowParcel} }

// table is the texts that rows of a parcel share.
type table struct {
	list  []string
	place map[string]uint64
}

func (t *table) add(s string) {
	if _, known := t.place[s]; !known {
		t.place[s] = uint64(len(t.list))
		t.list = append(t.list, s)
	}
}

func wireParcel(c *coder, p *Parcel) {
	shared := table{place: map[string]uint64{}}
	if !c.reading {
		for _, d := range p.Definitions {
			shared.add(d.like.Value())
		}
		for i := range p.Runs {
			shared.add(p.Runs[i].Packed.like.Value())
		}
		for i := range p.Stubs {
			s := &p.Stubs[i]
			shared.add(string(s.Tenant))
			shared.add(s.Key)
			shared.add(s.Worker)
		}
	}
	wireStrings(c, &shared.list)
	var likes []unique.Handle[string]
	if c.reading {
		likes = make([]unique.Handle[string], len(shared.list))
	}
	one := func(s *string) {
		i := shared.place[*s]
		c.uint(&i)
		if c.reading && i < uint64(len(shared.list)) {
			*s = shared.list[i]
		} else if c.reading {
			c.fail("no such text in a parcel")
		}
	}
	like := func(h *unique.Handle[string]) {
		var i uint64
		if !c.reading {
			i = shared.place[h.Value()]
		}
		c.uint(&i)
		switch {
		case !c.reading:
		case i >= uint64(len(likes)):
			c.fail("no such text in a parcel")
		default:
			if likes[i] == (unique.Handle[string]{}) {
				likes[i] = unique.Make(shared.list[i])
			}
			*h = likes[i]
		}
	}
	list(c, &p.Definitions, 3, func(c *coder, d **Packed) {
		if c.reading {
			*d = new(Packed)
		}
		text(c, &(*d).Key)
		like(&(*d).like)
		text(c, &(*d).own)
		if c.reading && c.err == nil {
			row, err := (*d).unpack()
			if err != nil {
				c.fail(err.Error())
				return
			}
			p.Rows = append(p.Rows, row)
		}
	})
	list(c, &p.Runs, 18, func(c *coder, r *ParcelRun) {
		if c.reading {
			r.Packed = new(PackedRun)
		}
		c.id(&r.ID)
		like(&r.Packed.like)
		text(c, &r.Packed.own)
		if c.reading && c.err == nil {
			var err error
			if r.Row, err = r.Packed.unpack(r.ID); err != nil {
				c.fail(err.Error())
			}
		}
	})
	list(c, &p.Stubs, 22, func(c *coder, s *Stub) {
		one((*string)(&s.Tenant))
		c.id(&s.ID)
		one(&s.Key)
		one(&s.Worker)
		number(c, &s.Attempt)
		number(c, &s.State)
		c.time(&s.Ended)
	})
}
