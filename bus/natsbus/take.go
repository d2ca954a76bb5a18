package natsbus

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// pullTime is how long one request waits at the server for offers; then it is repeated.
	pullTime = 5 * time.Second
	// overdue is when a request counts as lost: the server would have answered by now.
	overdue = pullTime + 2*time.Second
	// endTime is how long an answer that has begun may take to end.
	endTime = 100 * time.Millisecond
	// most is how many messages one request asks for.
	most = 512
	// firstPause and lastPause bound the pauses between two requests that were refused.
	firstPause, lastPause = 5 * time.Millisecond, 80 * time.Millisecond
	// refusals is how many refused requests make an error: a quarter of a second's worth.
	refusals = 7
)

// Take asks the app's consumer for waiting lists, and waits for one if there is none.
//
// It asks for as many messages as hold want offers, if lists are as long as the longest of the last answer, and gives
// back those that are too many.
func (b *Bus) Take(ctx context.Context, queue string, lane bus.Lane, want int) ([]bus.Offer, func(), error) {
	if err := b.check(ctx); err != nil {
		return nil, nil, err
	}
	if err := b.may(lane.Tenant, "take offers of"); err != nil {
		return nil, nil, err
	}
	t := &taking{bus: b, subject: pullSubject(queue, lane), want: max(want, 1)}
	if _, ours := termOf(queue); !ours {
		t.subject = "" // there is no such queue, and its name may be no token
	}
	err := t.run(ctx)
	t.letGo()
	if err != nil {
		return nil, nil, fmt.Errorf("take from queue %s: %w", queue, err)
	}
	return t.list, t.done, nil
}

// taking is one Take.
type taking struct {
	bus     *Bus
	pull    *pull
	subject string // where to ask
	want    int

	list    []bus.Offer
	replies []string // where to acknowledge the messages
	queued  bool     // others wait before us: wait in line
	longest int      // of the lists that came
	refused int
}

// lengths stores the longest list of a lane's last answer.
func (t *taking) lengths() *atomic.Int64 {
	v, ok := t.bus.lengths.Load(t.subject)
	if !ok {
		first := new(atomic.Int64)
		first.Store(bus.MaxList)
		v, _ = t.bus.lengths.LoadOrStore(t.subject, first)
	}
	return v.(*atomic.Int64)
}

// letGo gives the pull back.
func (t *taking) letGo() {
	if t.pull != nil && t.pull.release() {
		t.bus.pulls.put(t.pull)
	}
	t.pull = nil
}

// run asks until there are offers.
func (t *taking) run(ctx context.Context) error {
	b := t.bus
	if t.subject == "" {
		if err := t.rest(ctx, 250*time.Millisecond); err != nil {
			return err
		}
		return bus.ErrNoReceiver
	}
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer b.denials.watch(t.subject, cancel)()
	for {
		if err := b.link.wait(attempt, b.life); err != nil {
			return b.reason(attempt, err)
		}
		_, holds := b.link.state()
		err := t.ask()
		if err == nil {
			err = t.await(attempt, holds)
		}
		if len(t.list) > 0 {
			t.lengths().Store(int64(t.longest))
			return nil
		}
		if t.pull != nil && t.pull.underWay() {
			t.letGo() // later answers to this request are not answers to the next
		}
		if err == nil {
			continue
		}
		if b.life.Err() != nil || attempt.Err() != nil {
			return b.reason(attempt, err)
		}
		if holds.Err() != nil {
			continue // the connection broke: what we asked is forgotten
		}
		if t.refused++; t.refused >= refusals {
			return b.reason(attempt, err)
		}
		if err := t.rest(attempt, min(firstPause<<t.refused, lastPause)); err != nil {
			return err
		}
	}
}

// rest pauses, so that a caller that asks again at once does not spin.
func (t *taking) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.bus.life.Done():
		return bus.ErrClosed
	case <-ctx.Done():
		return t.bus.reason(ctx, ctx.Err())
	}
}

// ask sends a request. The server answers with waiting messages and an end, or with the first message that comes.
func (t *taking) ask() error {
	if t.pull == nil {
		var err error
		if t.pull, err = t.bus.pulls.get(t.bus); err != nil {
			return err
		}
	}
	n := 1
	if !t.queued {
		longest := int(t.lengths().Load())
		n = min((t.want+longest-1)/longest, most)
	}
	body := make([]byte, 0, 64)
	body = append(body, `{"batch":`...)
	body = strconv.AppendInt(body, int64(n), 10)
	body = append(body, `,"expires":`...)
	body = strconv.AppendInt(body, int64(pullTime), 10)
	if !t.queued {
		body = append(body, `,"no_wait":true`...)
	}
	t.pull.begin(n)
	return t.bus.nc.PublishRequest(t.subject, t.pull.inbox, append(body, '}'))
}

// await collects what comes until the request has been answered. An error means that it was refused, or that no caller
// waits any more; no error and no offers mean: ask again.
func (t *taking) await(ctx, holds context.Context) error {
	late := time.NewTimer(overdue)
	defer late.Stop()
	for {
		select {
		case <-t.pull.came:
		case <-late.C:
			return nil
		case <-holds.Done():
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
		messages, end, over := t.pull.collect()
		for _, m := range messages {
			t.accept(m)
		}
		switch {
		case over && end == nil:
			return nil
		case over:
			return t.judge(end)
		case len(t.list) > 0:
			late.Reset(endTime)
		}
	}
}

// accept reads a message: it is ours, or too much, or malformed.
func (t *taking) accept(m *nats.Msg) {
	if len(t.list) >= t.want {
		t.bus.acknowledge(m.Reply, "-NAK")
		return
	}
	list, err := decodeList(m.Data)
	if err != nil {
		t.bus.senseless(m.Subject, err)
		t.bus.acknowledge(m.Reply, "+TERM not a list of offers")
		return
	}
	t.longest = max(t.longest, len(list))
	t.list = append(t.list, list...)
	t.replies = append(t.replies, m.Reply)
}

// judge reads how a request ended.
func (t *taking) judge(end *nats.Msg) error {
	status, text := end.Header.Get("Status"), end.Header.Get("Description")
	switch {
	case status == "404", status == "408" && text == "Request Timeout":
		t.queued = false
		return nil
	case status == "408": // other requests take all that is there
		t.queued = true
		return nil
	case status == "503", status == "409" && text == "Consumer Deleted":
		return bus.ErrNoReceiver
	}
	return kernel.Refuse(jobs.Unavailable, "NATS answered %s %s", status, text)
}

// done acknowledges the messages, so that they can be forgotten.
func (t *taking) done() {
	for _, reply := range t.replies {
		t.bus.acknowledge(reply, "+ACK")
	}
	t.replies = nil
}

// acknowledge sends a consumer what becomes of a message. If it does not arrive the message comes again, and loses the
// claim.
func (b *Bus) acknowledge(reply, what string) { _ = b.nc.Publish(reply, []byte(what)) }

// pull is a subscription for the answers to requests. One Take at a time holds it.
type pull struct {
	inbox string
	sub   *nats.Subscription
	bus   *Bus
	came  chan struct{} // holds a token when there is something to collect

	mu       sync.Mutex
	held     bool
	missing  int // messages that the request has not brought yet; 0: no request is under way
	messages []*nats.Msg
	end      *nats.Msg
}

// arrive is called with each message, in order.
func (p *pull) arrive(m *nats.Msg) {
	p.mu.Lock()
	offered := strings.HasPrefix(m.Reply, ackRoot+".")
	switch {
	case !p.held:
		// The Take that asked for it has gone: it goes to another worker, now and not when it is overdue.
		p.mu.Unlock()
		if offered {
			p.bus.acknowledge(m.Reply, "-NAK")
		}
		return
	case offered:
		p.messages = append(p.messages, m)
		p.missing = max(p.missing-1, 0)
	default:
		p.end, p.missing = m, 0
	}
	p.mu.Unlock()
	select {
	case p.came <- struct{}{}:
	default:
	}
}

// begin is called before a request is made.
func (p *pull) begin(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing, p.end = n, nil
}

// collect returns what came, and whether the request has ended; end is nil if it brought all that was asked for.
func (p *pull) collect() (messages []*nats.Msg, end *nats.Msg, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	messages, p.messages = p.messages, nil
	return messages, p.end, p.missing == 0
}

// underWay reports whether a request has not been answered yet, or not fully.
func (p *pull) underWay() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing > 0
}

// release gives the pull back, and reports whether it may be used again. If a request is still under way it may not:
// its answers would go to another Take.
func (p *pull) release() bool {
	p.mu.Lock()
	p.held = false
	left, clean := p.messages, p.missing == 0
	p.messages, p.end = nil, nil
	p.mu.Unlock()
	for _, m := range left {
		p.bus.acknowledge(m.Reply, "-NAK")
	}
	if !clean {
		_ = p.sub.Drain() // what is on its way still comes to arrive; fails if there is no connection, and then nothing is
	}
	return clean
}

// freePulls are the pulls that no Take holds: as many as there were Takes at the same time.
type freePulls struct {
	mu   sync.Mutex
	free []*pull
}

func (f *freePulls) get(b *Bus) (*pull, error) {
	f.mu.Lock()
	var p *pull
	if n := len(f.free); n > 0 {
		p, f.free = f.free[n-1], f.free[:n-1]
	}
	f.mu.Unlock()
	if p == nil {
		p = &pull{inbox: b.nc.NewInbox(), bus: b, came: make(chan struct{}, 1)}
		var err error
		if p.sub, err = b.nc.Subscribe(p.inbox, p.arrive); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	p.held = true
	p.mu.Unlock()
	return p, nil
}

func (f *freePulls) put(p *pull) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, p)
}
