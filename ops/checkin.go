package ops

import (
	"context"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// CheckIn records a run that has started and ended elsewhere, and returns it. k.ID may be zero.
func (o *Ops) CheckIn(ctx context.Context, who Who, k kernel.CheckIn) (Created, error) {
	if k.ID.IsZero() {
		k.ID = jobs.NewID(o.now())
	}
	effect, err := o.apply(ctx, who, k)
	if err != nil {
		return Created{}, err
	}
	run, err := o.whole(ctx, effect.Runs[0])
	if err != nil {
		return Created{}, after(err)
	}
	return Created{Run: run, Duplicate: effect.Existing}, nil
}
