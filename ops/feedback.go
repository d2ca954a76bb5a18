package ops

import (
	"context"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Waited says why what others say of a run of a job is not taken, or nil. Who was not asked to speak gets
// kernel.ErrNotSigned, whatever else may be wrong.
func (o *Ops) Waited(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k kernel.Hear) error {
	_, err := o.waits(ctx, tenant, key, k)
	return err
}

func (o *Ops) waits(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k kernel.Hear) (*kernel.Run, error) {
	if tenant != "" && kernel.CheckName("tenant", string(tenant)) != nil {
		return nil, kernel.ErrNotSigned
	}
	run, err := o.store.Run(ctx, Who{Tenant: tenant}.tenant(), k.ID)
	switch {
	case err != nil && jobs.CodeOf(err) == jobs.NotFound:
		return nil, kernel.ErrNotSigned
	case err != nil:
		return nil, err
	case run.Key != key || !run.Feedback.Signed(run.ID, k.Attempt, k.Nonce, k.Signature):
		return nil, kernel.ErrNotSigned
	}
	return run, nil
}

// Hear takes in what others say of a run of a job, signed as they were told. To say it again is no harm; after a last
// report, any is answered as that one was.
func (o *Ops) Hear(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k kernel.Hear) error {
	run, err := o.waits(ctx, tenant, key, k)
	if err != nil {
		return err
	}
	if err := k.Check(); err != nil {
		return err
	}
	if run.State.Final() { // it may not be among the live rows any more
		_, _, err = run.Hear(k)
		return err
	}
	_, err = o.apply(ctx, Who{Tenant: tenant, Actor: "feedback:" + string(key)}, k)
	return err
}
