package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/pool"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// inFlight is how many calls of one service are handled at the same time. More wait, in order.
	inFlight = 256
	// backlogMessages and backlogBytes are how many calls of one service, or pushes to one worker, may wait; what does
	// not fit is lost, and its caller gets no answer.
	backlogMessages = 1 << 16
	backlogBytes    = 256 << 20

	// codeHeader marks an answer that is an error, with its code. Its text is the answer's body.
	codeHeader = "Carillon-Code"
	// goneCode means bus.ErrNoReceiver: the end that was asked has just stopped serving.
	goneCode = "gone"
	// plainError is the code of an error that is not a refusal. No jobs.Code equals it.
	plainError = "error"
	// maxText is the longest text of an error.
	maxText = 32 << 10
)

// Call sends a request.
func (b *Bus) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	if !b.link.connected() {
		return nil, fmt.Errorf("call %s: %w", service, errNoConnection) // at once: while the library connects, it holds its lock
	}
	if most := b.RequestLimit(); len(request) > most {
		return nil, kernel.Invalid("call %s: request of %d bytes: the limit is %d", service, len(request), most)
	}
	if len(request) > large {
		select {
		case b.large <- struct{}{}:
			defer func() { <-b.large }()
		case <-ctx.Done():
			return nil, kernel.Refuse(jobs.Unavailable, "call %s: not sent, %d large requests are under way: %v", service, largeAtOnce, ctx.Err())
		case <-b.life.Done():
			return nil, bus.ErrClosed
		}
	}
	answer, err := b.ask(ctx, callSubject(b.as, service), b.inbox, inboxPrefix(b.as), request)
	var a answered
	if errors.As(err, &a) {
		return nil, a.error // the handler's own error
	}
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", service, err)
	}
	return answer, nil
}

// answered is an error returned by the other end.
type answered struct{ error }

func (s answered) Unwrap() error { return s.error }

// ask sends a request and waits for the answer, which comes to a subject under a prefix.
func (b *Bus) ask(ctx context.Context, subject string, at *answers, prefix string, request []byte) ([]byte, error) {
	if !b.link.connected() {
		return nil, errNoConnection
	}
	ctx, done := b.attempt(ctx, subject)
	defer done()
	doubt := time.AfterFunc(unanswered, b.doubt)
	defer doubt.Stop()
	m, err := at.request(ctx, b.nc, subject, prefix, request)
	if err != nil {
		return nil, b.reason(ctx, err)
	}
	if len(m.Header) > 0 {
		switch code := m.Header.Get(codeHeader); code {
		case "":
		case goneCode:
			return nil, bus.ErrNoReceiver
		case plainError:
			return nil, answered{errors.New(string(m.Data))}
		default:
			return nil, answered{&kernel.Refusal{Code: jobs.Code(code), Text: string(m.Data)}}
		}
	}
	return m.Data, nil
}

// Serve answers calls.
func (b *Bus) Serve(ctx context.Context, service string, fn bus.Handler) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if err := b.leads("serve " + service); err != nil {
		return err
	}
	subject := serveSubject(service)
	places := make(chan struct{}, inFlight)
	var inWork load
	type call struct {
		ctx  context.Context
		from bus.Principal
		*nats.Msg
	}
	calls := pool.New(func(c call) {
		defer func() { inWork.done(c.from, len(c.Data)); <-places }()
		data, err := fn(c.ctx, c.from, c.Data)
		b.answer(c.Msg, data, err)
	})
	context.AfterFunc(ctx, calls.Dismiss)
	err := b.subscribe(ctx, subject, func(ctx context.Context) (*nats.Subscription, error) {
		sub, err := b.nc.QueueSubscribe(subject, group, func(m *nats.Msg) {
			from, ok := callerOf(m.Subject)
			if !ok {
				b.senseless(m.Subject, errors.New("its subject is not that of a call"))
				return
			}
			// We publish the answer with our own rights, and the server does not check the reply subject: an answer
			// anywhere but in the caller's inbox would let callers send signals and calls as us, and answer
			// others.
			if !strings.HasPrefix(m.Reply, inboxPrefix(from)+".") {
				b.senseless(m.Subject, errors.New("its answer would not go to its caller"))
				return
			}
			if len(m.Data) > b.RequestLimit() {
				b.answer(m, nil, kernel.Invalid("the request has %d bytes: the limit is %d", len(m.Data), b.RequestLimit()))
				return
			}
			if err := inWork.take(from, len(m.Data)); err != nil {
				b.answer(m, nil, err)
				return
			}
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				inWork.done(from, len(m.Data))
				b.gone(m)
				return
			}
			calls.Call(call{ctx, from, m})
		})
		if err == nil {
			err = sub.SetPendingLimits(backlogMessages, backlogBytes)
		}
		return sub, err
	})
	if err != nil {
		return fmt.Errorf("serve %s: %w", service, err)
	}
	return nil
}

// answer answers a request, with data or with an error. A refusal stays one; of any other error the text arrives, and
// not its kind: an error that the handler met (bus.ErrNoReceiver, a context's end) is not the caller's.
func (b *Bus) answer(m *nats.Msg, data []byte, err error) {
	if most := b.outbound(); err == nil && len(data) > most {
		err = kernel.Invalid("the answer has %d bytes: the limit is %d", len(data), most)
	}
	reply := &nats.Msg{Subject: m.Reply, Data: data}
	if err != nil {
		text := err.Error()
		reply.Data = []byte(text[:min(len(text), maxText)])
		reply.Header = nats.Header{codeHeader: {codeOf(err)}}
	}
	if err := b.nc.PublishMsg(reply); err != nil && b.life.Err() == nil {
		// The caller's connection to this server, or ours, has gone: for the caller the outcome is unknown.
		b.episodes.Failed(slog.LevelWarn, "", "answer not sent", "subject", m.Subject, "err", err)
	}
}

// gone answers with goneCode: we ended, and the server does not know yet.
func (b *Bus) gone(m *nats.Msg) {
	_ = b.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{codeHeader: {goneCode}}}) // or the caller would wait in vain
}

func codeOf(err error) string {
	var refusal *kernel.Refusal
	var code jobs.Code
	switch {
	case errors.As(err, &refusal):
		return string(refusal.Code)
	case errors.As(err, &code):
		return string(code)
	}
	return plainError
}
