package schedule

import "github.com/carillon-scheduler/carillon/jobs"

// Of is the schedule of a job as the store remembers it, or nil if it has none. A schedule that has run out since
// it was written is no error: it is finished.
func Of(d *jobs.Definition) (*Schedule, error) {
	if d.Policy.Schedule == "" {
		return nil, nil
	}
	return Reopen(specOf(d))
}

// Check says what is wrong with the schedule of a job that is about to be written at d.Anchor, or nil.
func Check(d *jobs.Definition) error {
	if d.Policy.Schedule == "" {
		return nil
	}
	_, err := Parse(specOf(d))
	return err
}

func specOf(d *jobs.Definition) Spec {
	p := &d.Policy
	return Spec{Expr: p.Schedule, Zone: p.Zone, Start: p.Start, End: p.End, Anchor: d.Anchor, Key: string(d.Tenant) + "/" + string(d.Key)}
}
