package metastore

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Tallies adds up tallies by their time.
type Tallies map[Slot]*kernel.Tally

// Slot is the time of a tally.
type Slot struct {
	At   int64
	Span kernel.Span
}

// Add adds a tally. The Tenant and the Job of the sum are those of the first one.
func (s Tallies) Add(t kernel.Tally) {
	of := Slot{t.At, t.Span}
	if found := s[of]; found != nil {
		found.Add(t.Sums)
		return
	}
	first := t // which alone is kept
	s[of] = &first
}

// List lists the sums, oldest first, a day before its hours.
func (s Tallies) List() []kernel.Tally {
	list := make([]kernel.Tally, 0, len(s))
	for _, t := range s {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b kernel.Tally) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(b.Span, a.Span)) })
	return list
}

// Daily adds hours to their days.
func Daily(list []kernel.Tally) []kernel.Tally {
	days := Tallies{}
	for i := range list {
		days.Add(*list[i].Daily())
	}
	return days.List()
}

// Hours lists the hours among tallies.
func Hours(list []kernel.Tally) []kernel.Tally {
	return slices.DeleteFunc(slices.Clone(list), func(t kernel.Tally) bool { return t.Span != kernel.Hour })
}

// During reports whether a tally has some of the time that a query is about.
func (q CountQuery) During(t *kernel.Tally) bool {
	return t.End().After(q.From) && (q.To.IsZero() || t.Start().Before(q.To))
}
