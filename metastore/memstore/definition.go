package memstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// definition is a job's row, or what remains of a deleted one; nil once that is dropped, too.
type definition struct {
	row   *kernel.Definition
	elder elder
}

// change records that a definition was given a change number. It is void when the definition has a later one.
type change struct {
	number uint64
	of     *definition
}

func (c change) void() bool { return c.of.row == nil || c.of.row.Change != c.number }

// putDefinition files a row. byKey has existing jobs, not what remains of others.
func (r *rows) putDefinition(d *kernel.Definition) {
	s := r.space(d.Tenant)
	def := s.definitions[d.Key]
	if def == nil {
		def = &definition{elder: elder{row: d.Ref()}}
		s.definitions[d.Key] = def
		r.defined++
	}
	old := def.row
	def.row = d
	switch i, listed := findDefinition(s.byKey, d.Key); {
	case listed && d.Gone():
		s.byKey = slices.Delete(s.byKey, i, i+1)
	case !listed && !d.Gone():
		s.byKey = slices.Insert(s.byKey, i, def)
	}
	r.age(&def.elder, d)
	if old == nil || old.Change != d.Change {
		r.number(change{d.Change, def})
	}
}

// restoreDefinition files a row as putDefinition does, but unsorted: with a million of them, sorting each in at once
// would take minutes. sortDefinitions sorts them.
func (r *rows) restoreDefinition(d *kernel.Definition) error {
	s := r.space(d.Tenant)
	if s.definitions[d.Key] != nil {
		return fmt.Errorf("restore: job %s of tenant %s exists twice", d.Key, d.Tenant)
	}
	def := &definition{row: d, elder: elder{row: d.Ref()}}
	s.definitions[d.Key] = def
	r.defined++
	if !d.Gone() {
		s.byKey = append(s.byKey, def)
	}
	r.age(&def.elder, d)
	r.changes = append(r.changes, change{d.Change, def})
	return nil
}

func (r *rows) sortDefinitions() {
	for _, s := range r.spaces {
		slices.SortFunc(s.byKey, func(a, b *definition) int { return cmp.Compare(a.row.Key, b.row.Key) })
	}
	slices.SortFunc(r.changes, func(a, b change) int { return cmp.Compare(a.number, b.number) })
}

func (r *rows) dropDefinition(s *space, key jobs.Key) {
	def := s.definitions[key]
	if def == nil {
		return
	}
	if i, listed := findDefinition(s.byKey, key); listed {
		s.byKey = slices.Delete(s.byKey, i, i+1)
	}
	r.age(&def.elder, nil)
	delete(s.definitions, key)
	def.row = nil
	r.defined--
}

// number adds a change. Void ones are removed once they are the most.
func (r *rows) number(c change) {
	if len(r.changes) > 2*r.defined+64 {
		r.changes = slices.DeleteFunc(r.changes, change.void)
	}
	i := len(r.changes)
	if i > 0 && r.changes[i-1].number > c.number {
		i = r.since(c.number)
	}
	r.changes = slices.Insert(r.changes, i, c)
}

// since is the index of the first change above a number.
func (r *rows) since(number uint64) int {
	i, _ := slices.BinarySearchFunc(r.changes, number, func(c change, n uint64) int {
		if c.number > n {
			return 1
		}
		return -1
	})
	return i
}

func findDefinition(list []*definition, key jobs.Key) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(d *definition, k jobs.Key) int { return cmp.Compare(d.row.Key, k) })
}
