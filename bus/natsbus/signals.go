package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// backlog is how many signals wait for a slow listener; those beyond are lost to it, which is logged.
const backlog = 8 << 10

// Signal publishes s.
func (b *Bus) Signal(ctx context.Context, s bus.Signal) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if s.Tenant == "" {
		s.Tenant = b.as.Tenant
	}
	if err := b.may(s.Tenant, "signal to"); err != nil {
		return err
	}
	if err := s.Check(b.as, b.outbound()); err != nil {
		return err
	}
	s.From = b.as
	if err := b.nc.Publish(signalSubject(s), s.Data); err != nil {
		return fmt.Errorf("signal %s: %w", s.Topic, b.reason(ctx, err))
	}
	return nil
}

// Listen subscribes to signals to one name and to all; both come through one channel, in the order sent.
func (b *Bus) Listen(ctx context.Context, tenant jobs.Tenant, topic bus.Topic, to string, fn func(bus.Signal)) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if tenant == "" {
		tenant = b.as.Tenant
	}
	if err := b.may(tenant, "listen to"); err != nil {
		return err
	}
	if err := topic.CheckListen(b.as); err != nil {
		return err
	}
	ctx, cancel := b.lasting(ctx)
	received := make(chan *nats.Msg, backlog)
	for _, subject := range listenSubjects(tenant, topic, to) {
		err := b.subscribe(ctx, subject, func(context.Context) (*nats.Subscription, error) {
			return b.nc.ChanSubscribe(subject, received)
		})
		if err != nil {
			cancel(err) // the other subscription, if there is one, must not stay
			return fmt.Errorf("listen to %s: %w", topic, err)
		}
	}
	go b.listen(ctx, received, fn)
	return nil
}

func (b *Bus) listen(ctx context.Context, received <-chan *nats.Msg, fn func(bus.Signal)) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-received:
			s, ok := signalOf(m.Subject)
			if ok = ok && m.Reply == "" && len(m.Header) == 0 && len(m.Data) > 0; !ok { // or this package has not sent it
				b.senseless(m.Subject, errors.New("its subject is not that of a signal"))
				continue
			}
			if b.life.Err() != nil || ctx.Err() != nil {
				return
			}
			s.Data = m.Data
			fn(s)
		}
	}
}
