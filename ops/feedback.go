package ops

import (
	"context"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Waited returns why a report of an asynchronous HTTP job is refused, or nil. A request with a wrong signature gets
// kernel.ErrNotSigned, whatever else may be wrong.
func (o *Ops) Waited(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k kernel.Report) error {
	_, err := o.waits(ctx, tenant, key, k)
	return err
}

func (o *Ops) waits(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k kernel.Report) (*kernel.Run, error) {
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

// Report accepts a signed report of an asynchronous HTTP job. A repeated report changes nothing; after a final report,
// all get the result of that one.
func (o *Ops) Report(ctx context.Context, tenant jobs.Tenant, key jobs.Key, k kernel.Report) error {
	run, err := o.waits(ctx, tenant, key, k)
	if err != nil {
		return err
	}
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	if run.State.Final() { // it may have left the live rows
		_, _, err = run.Report(k)
		return err
	}
	_, err = o.apply(ctx, Who{Tenant: tenant, Actor: "feedback:" + string(key), callback: true}, k)
	return err
}
