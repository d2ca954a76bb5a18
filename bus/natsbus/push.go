package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Push sends a push as a request.
func (b *Bus) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	if err := b.leads("push"); err != nil {
		return nil, err
	}
	if most := b.Limit(); len(push) > most {
		return nil, kernel.Invalid("push to worker %q: %d bytes: the limit is %d", to.Worker, len(push), most)
	}
	answer, err := b.ask(ctx, pushSubject(to), b.workers, answerPrefix(to), push)
	if errors.Is(err, errNoConnection) {
		// Of this end's own connection: the worker may be there.
		err = kernel.Refuse(jobs.Unavailable, "no connection to NATS")
	}
	if err != nil {
		return nil, fmt.Errorf("push to worker %q: %w", to.Worker, err)
	}
	return answer, nil
}

// Accept subscribes to the pushes to a worker. The library calls one function after the other.
func (b *Bus) Accept(ctx context.Context, at bus.Address, fn func(push []byte) (answer []byte, then func())) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if err := b.may(at.Tenant, "accept pushes of"); err != nil {
		return err
	}
	if at.Worker == "" {
		return kernel.Invalid("accept pushes: the address names no worker")
	}
	subject, answers := pushSubject(at), answerPrefix(at)+"."
	err := b.subscribe(ctx, subject, func(ctx context.Context) (*nats.Subscription, error) {
		sub, err := b.nc.QueueSubscribe(subject, group, func(m *nats.Msg) {
			// We publish the answer with our own rights: anywhere else it would be a message of ours to others.
			if !strings.HasPrefix(m.Reply, answers) {
				b.senseless(subject, errors.New("its answer would not go where answers of this worker do"))
				return
			}
			if ctx.Err() != nil {
				b.gone(m)
				return
			}
			answer, then := fn(m.Data)
			b.answer(m, answer, nil)
			if then != nil {
				b.written()
				then()
			}
		})
		if err == nil {
			err = sub.SetPendingLimits(backlogMessages, backlogBytes)
		}
		return sub, err
	})
	if err != nil {
		return fmt.Errorf("accept pushes as worker %q: %w", at.Worker, err)
	}
	return nil
}
