package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// CheckIn records a run that has started and ended elsewhere, and returns it. k.ID may be zero.
func (o *Ops) CheckIn(ctx context.Context, who Who, k kernel.CheckIn) (*kernel.Run, error) {
	if k.ID.IsZero() {
		k.ID = jobs.NewID(time.Now())
	}
	effect, err := o.apply(ctx, who, k)
	if err != nil {
		return nil, err
	}
	return effect.Runs[0], nil
}
