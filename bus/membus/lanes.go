package membus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// pace is how long a Take from a missing queue waits before it fails: its caller asks again at once.
const pace = 250 * time.Millisecond

// handTime is how long a worker has to take a list of its personal lane.
const handTime = time.Second

// queue is a leader's queue: the lists on the shared lane of each app.
type queue struct {
	term  uint64
	lanes map[bus.Lane]*shared
	gone  chan struct{} // closed when a newer term has opened its own
}

// shared holds the lists of one shared lane.
type shared struct {
	lists [][]bus.Offer
	more  chan struct{} // closed, and made anew, when lists grow
}

func (q *queue) lane(l bus.Lane) *shared {
	l.Worker = ""
	s := q.lanes[l]
	if s == nil {
		s = &shared{more: make(chan struct{})}
		q.lanes[l] = s
	}
	return s
}

func (e *end) Open(ctx context.Context, term uint64) (string, error) {
	if err := e.errOf(ctx); err != nil {
		return "", err
	}
	if err := e.leads("open a queue"); err != nil {
		return "", err
	}
	name := fmt.Sprintf("offers-%d", term)
	h := e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queues[name] == nil {
		h.queues[name] = &queue{term: term, lanes: map[bus.Lane]*shared{}, gone: make(chan struct{})}
	}
	for other, q := range h.queues {
		if q.term < term {
			close(q.gone)
			delete(h.queues, other)
		}
	}
	return name, nil
}

func (e *end) Offer(ctx context.Context, queue string, lane bus.Lane, lists ...[]bus.Offer) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if err := e.leads("offer"); err != nil {
		return err
	}
	for _, l := range lists {
		if err := checkList(l); err != nil {
			return err
		}
	}
	h := e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[queue]
	if q == nil {
		return fmt.Errorf("offer to queue %q: %w", queue, bus.ErrNoReceiver)
	}
	s := q.lane(lane)
	for _, l := range lists {
		s.lists = append(s.lists, slices.Clone(l))
	}
	close(s.more)
	s.more = make(chan struct{})
	return nil
}

func (e *end) Take(ctx context.Context, queue string, lane bus.Lane, want int) ([]bus.Offer, func(), error) {
	if err := e.may(lane.Tenant, "take offers of"); err != nil {
		return nil, nil, err
	}
	for {
		if err := e.errOf(ctx); err != nil {
			return nil, nil, err
		}
		list, more, gone := e.hub.take(queue, lane, want)
		if list != nil {
			return list, func() {}, nil
		}
		if more == nil {
			select {
			case <-time.After(pace):
			case <-ctx.Done():
			case <-e.life.Done():
			}
			if err := e.errOf(ctx); err != nil {
				return nil, nil, err
			}
			return nil, nil, fmt.Errorf("take from queue %q: %w", queue, bus.ErrNoReceiver)
		}
		select {
		case <-more:
		case <-gone:
		case <-ctx.Done():
		case <-e.life.Done():
		}
	}
}

// take returns up to want waiting offers; or, without any, the channels to wait on; or nothing, if there is no such
// queue.
func (h *Hub) take(queue string, lane bus.Lane, want int) (list []bus.Offer, more, gone <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[queue]
	if q == nil {
		return nil, nil, nil
	}
	s := q.lane(lane)
	n := 0
	for n < len(s.lists) && (n == 0 || len(list) < want) {
		list = append(list, s.lists[n]...)
		n++
	}
	clear(s.lists[:n])
	s.lists = s.lists[n:]
	return list, s.more, q.gone
}

// receiver receives the lists of a personal lane.
type receiver struct {
	end   *end
	ctx   context.Context
	hands chan hand
}

type hand struct {
	ctx  context.Context // of the caller of Hand; when it has ended, it is too late
	list []bus.Offer
	got  chan bool
}

func (e *end) Receive(ctx context.Context, lane bus.Lane, fn func(list []bus.Offer)) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if err := e.may(lane.Tenant, "receive offers of"); err != nil {
		return err
	}
	if lane.Worker == "" {
		return kernel.Invalid("a personal lane names its worker")
	}
	h := e.hub
	r := &receiver{end: e, hands: make(chan hand)}
	r.ctx = e.lasting(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.receivers[lane] = slices.DeleteFunc(h.receivers[lane], func(other *receiver) bool { return other == r })
		if len(h.receivers[lane]) == 0 {
			delete(h.receivers, lane)
		}
	})
	h.mu.Lock()
	h.receivers[lane] = append(h.receivers[lane], r)
	h.mu.Unlock()
	go func() {
		for {
			select {
			case <-r.ctx.Done():
				return
			case in := <-r.hands:
				here := in.ctx.Err() == nil && e.lasts(r.ctx)
				if here {
					fn(in.list)
				}
				in.got <- here
			}
		}
	}()
	return nil
}

func (e *end) Hand(ctx context.Context, lane bus.Lane, list []bus.Offer) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if err := e.leads("hand out offers"); err != nil {
		return err
	}
	if err := checkList(list); err != nil {
		return err
	}
	r := e.hub.receiver(lane)
	if r == nil {
		return fmt.Errorf("hand to worker %q: %w", lane.Worker, bus.ErrNoReceiver)
	}
	limited, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	in := hand{ctx: limited, list: slices.Clone(list), got: make(chan bool, 1)}
	select {
	case r.hands <- in:
	case <-r.ctx.Done():
		return fmt.Errorf("hand to worker %q: %w", lane.Worker, bus.ErrNoReceiver)
	case <-limited.Done():
		return fmt.Errorf("hand to worker %q: %w", lane.Worker, limited.Err())
	case <-e.life.Done():
		return bus.ErrClosed
	}
	select {
	case got := <-in.got:
		if !got {
			return fmt.Errorf("hand to worker %q: %w", lane.Worker, bus.ErrNoReceiver)
		}
		return nil
	case <-limited.Done():
		return fmt.Errorf("hand to worker %q: %w", lane.Worker, limited.Err())
	case <-e.life.Done():
		return bus.ErrClosed
	}
}

// receiver returns the newest of those that receive on a lane, or nil.
func (h *Hub) receiver(lane bus.Lane) *receiver {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range slices.Backward(h.receivers[lane]) {
		if r.end.lasts(r.ctx) {
			return r
		}
	}
	return nil
}

func checkList(l []bus.Offer) error {
	if len(l) == 0 || len(l) > bus.MaxList {
		return kernel.Invalid("a list of %d offers: 1 to %d are allowed", len(l), bus.MaxList)
	}
	return nil
}
