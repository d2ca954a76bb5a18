package busstore

import (
	"context"
	"errors"
	"sync"

	"github.com/carillon-scheduler/carillon/bus"
)

// Heed makes a bus whose calls go to the node that leads, and are not waited for when another one begins to. Whoever was
// asked and died never answers, and nobody says so; but the next one tells everybody that it leads, and then it can be
// asked in the same words. One that is frozen is not asked any more. as is who this end is. What is begun here ends with
// the bus.
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
	term uint64          // the newest that was heard of
	mute bool            // and its leader did not answer: whoever serves is asked, until it is heard again
	era  context.Context // ends when there is a newer one
	end  context.CancelFunc
}

// Call asks, and stops waiting when another node begins to lead: what became of it is then unknown. Who it is that leads
// may not be known; then whoever serves is asked.
func (h *heeding) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	h.listens.Do(func() {
		// If it fails, only patience is needed.
		go func() { _ = h.Listen(context.Background(), "", bus.TopicCancel, h.as.Name, h.hear) }()
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
		if !errors.Is(err, bus.ErrNobody) {
			return answer, err
		}
	}
	return h.Bus.Call(asking, service, request)
}

// now is the term whose leader is to be asked, 0 = whoever serves, and what ends with it.
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

func (h *heeding) hear(s bus.Signal) {
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
