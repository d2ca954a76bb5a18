package ops

import (
	"context"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Waited says why what others say of a run of a job is not taken, or nil. Who was not asked to speak gets
// jobs.ErrNotSigned, whatever else may be wrong.
func (o *Ops) Waited(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k jobs.Hear) error {
	_, err := o.waits(ctx, tenant, key, k)
	return err
}

func (o *Ops) waits(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k jobs.Hear) (*jobs.Instance, error) {
	if tenant != "" && jobs.CheckName("tenant", string(tenant)) != nil {
		return nil, jobs.ErrNotSigned
	}
	in, err := o.store.Instance(ctx, Who{Tenant: tenant}.tenant(), k.ID)
	switch {
	case err != nil && jobs.CodeOf(err) == jobs.NotFound:
		return nil, jobs.ErrNotSigned
	case err != nil:
		return nil, err
	case in.Key != key || !in.Feedback.Signed(in.ID, k.Attempt, k.Nonce, k.Signature):
		return nil, jobs.ErrNotSigned
	}
	return in, nil
}

// Hear takes in what others say of a run of a job, signed as they were told. To say it again is no harm; after a last
// report, any is answered as that one was.
func (o *Ops) Hear(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k jobs.Hear) error {
	in, err := o.waits(ctx, tenant, key, k)
	if err != nil {
		return err
	}
	if err := k.Check(); err != nil {
		return err
	}
	if in.State.Final() { // it may not be among the live rows any more
		_, _, err = in.Hear(k)
		return err
	}
	_, err = o.apply(ctx, Who{Tenant: tenant, Actor: "feedback:" + string(key)}, k)
	return err
}
