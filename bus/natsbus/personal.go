package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// handTime is how long a worker has to take a list of its personal lane.
const handTime = time.Second

// Hand sends a list as a request. The worker answers when its function has returned.
func (b *Bus) Hand(ctx context.Context, lane bus.Lane, list []bus.Offer) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if err := b.leads("hand out offers"); err != nil {
		return err
	}
	message, err := appendList(nil, list)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	if _, err = b.ask(ctx, handSubject(lane), b.personal, answerPrefix(lane), message); err != nil {
		return fmt.Errorf("hand to worker %q: %w", lane.Worker, err)
	}
	return nil
}

// Receive subscribes to a personal lane.
func (b *Bus) Receive(ctx context.Context, lane bus.Lane, fn func(list []bus.Offer)) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if err := b.may(lane.Tenant, "receive offers of"); err != nil {
		return err
	}
	if lane.Worker == "" {
		return kernel.Invalid("a personal lane names its worker")
	}
	subject, answers := handSubject(lane), answerPrefix(lane)+"."
	err := b.subscribe(ctx, subject, func(ctx context.Context) (*nats.Subscription, error) {
		return b.nc.QueueSubscribe(subject, group, func(m *nats.Msg) {
			if !strings.HasPrefix(m.Reply, answers) { // no node has sent this: JetStream has, on behalf of another worker
				b.senseless(subject, errors.New("its answer would not go where answers of this worker do"))
				return
			}
			list, err := decodeList(m.Data)
			if err != nil {
				b.senseless(subject, err)
				b.answer(m, nil, kernel.Invalid("invalid list of offers: %v", err))
				return
			}
			if ctx.Err() != nil {
				b.gone(m)
				return
			}
			fn(list)
			b.answer(m, nil, nil)
		})
	})
	if err != nil {
		return fmt.Errorf("receive as worker %q: %w", lane.Worker, err)
	}
	return nil
}
