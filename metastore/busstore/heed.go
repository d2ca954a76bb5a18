package busstore

import (
	"context"
	"errors"
	"sync"

	"github.com/carillon-scheduler/carillon/bus"
)

// Heed makes a bus whose calls go to the leader, and stop waiting when another node starts to lead. A leader that
// crashed never answers, but the next one announces itself on the bus, and the same request can go to it. A frozen
// leader gets no more calls. Heed calls as the principal as. What it starts ends with the bus.
func Heed(b bus.Bus, as bus.Principal) bus.Bus {
	h := &heeding{Bus: b, as: as}
	h.era, h.end = context.WithCancel(context.Background())
	return h
}

type heeding struct {
	bus.Bus
	as      bus.Principal
	listens sync.Once

	mu   sync.Mutex
	term uint64          // the newest announced term
	mute bool            // its leader did not answer: calls go to any node until it announces itself again
	era  context.Context // ends when there is a newer one
	end  context.CancelFunc
}

// Call sends a request, and stops waiting when another node starts to lead: the outcome is then unknown. While the
// leader is unknown, any node that serves may answer.
func (h *heeding) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	h.listens.Do(func() {
		// A failure only makes calls wait longer.
		go func() { _ = h.Listen(context.Background(), "", bus.TopicCancel, h.as.Name, h.announced) }()
	})
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	term, era := h.now()
	defer context.AfterFunc(era, cancel)()
	if term > 0 {
		answer, err := h.Bus.Call(asking, bus.ServiceIn(service, term), request)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			h.doubt(term)
		}
		if !errors.Is(err, bus.ErrNoReceiver) {
			return answer, err
		}
	}
	return h.Bus.Call(asking, service, request)
}

// now returns the term whose leader gets the calls, 0 = any node, and the context that ends with it.
func (h *heeding) now() (term uint64, era context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mute {
		return 0, h.era
	}
	return h.term, h.era
}

// doubt notes that the leader of a term did not answer.
func (h *heeding) doubt(term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mute = h.mute || h.term == term
}

func (h *heeding) announced(s bus.Signal) {
	stop, err := bus.Decode[bus.Stop](s.Data)
	if err != nil || s.From.Role != bus.Node {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if stop.Term > 0 && stop.Term >= h.term {
		h.mute = false
	}
	if stop.Term > h.term {
		h.term = stop.Term
		h.end()
		h.era, h.end = context.WithCancel(context.Background())
	}
}
