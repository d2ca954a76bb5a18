package schedule

import (
	"errors"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Of returns the schedule of a job in the store, or nil if it has none. A schedule that has ended since it was set is
// no error: it is finished.
func Of(d *kernel.Definition) (*Schedule, error) {
	if d.Policy.Schedule == "" {
		return nil, nil
	}
	spec, err := specOf(d)
	if err != nil {
		return nil, err
	}
	return Reopen(spec)
}

// Check validates the schedule of a job that is about to be set at d.Anchor.
func Check(d *kernel.Definition) error {
	if d.Policy.Schedule == "" {
		return nil
	}
	spec, err := specOf(d)
	if err != nil {
		return err
	}
	_, err = Parse(spec)
	return err
}

func specOf(d *kernel.Definition) (Spec, error) {
	p := &d.Policy
	s := Spec{Expr: p.Schedule, Zone: p.Zone, Start: p.Start, End: p.End, Anchor: d.Anchor, Key: string(d.Tenant) + "/" + string(d.Key), Due: p.First, Ended: d.Ended}
	if began := later(p.Start, d.Anchor); p.TTL > 0 && !began.IsZero() {
		if end := began.Add(p.TTL); s.End.IsZero() || end.Before(s.End) {
			s.End = end
		}
	}
	return s, errors.Join(s.Gap.UnmarshalText([]byte(p.Gap)), s.Overlap.UnmarshalText([]byte(p.Twice)))
}
