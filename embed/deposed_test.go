package embed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// relay is the way to an address until it is cut.
type relay struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
	over bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	t.Cleanup(r.cut)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			on, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			r.carry(from, on)
		}
	}()
	return r
}

func (r *relay) carry(a, b net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		_, _ = a.Close(), b.Close()
		return
	}
	r.open = append(r.open, a, b)
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		}()
	}
}

func (r *relay) cut() {
	_ = r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for _, c := range r.open {
		_ = c.Close()
	}
}

// A leader whose raft connections are cut may not notice at once, and its bus still works. It must not answer reads
// over the bus from its own copy: another leader may have changed the rows.
func TestADeposedLeaderIsNotReadOverTheBus(t *testing.T) {
	var relays []*relay
	var nats string
	next := three(t, func(p *place) {
		r := newRelay(t, p.Store)
		relays, p.Advertise = append(relays, r), r.Addr().String()
		if nats == "" {
			nats = p.client()
		}
	})
	var last *member
	for range 3 {
		last = next()
		last.start(t)
	}
	eventually(t, "all three have a vote", func() bool {
		s, err := last.node.Ops().ClusterStatus(t.Context(), ops.Who{})
		return err == nil && s.Tolerates == 1
	})
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "reader"}
	b, err := natsbus.Connect(t.Context(), nats, natsbus.Config{As: as})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	store := busstore.New(b, as)
	if _, err := store.Global(t.Context(), jobs.DefaultTenant); err != nil {
		t.Fatal(err)
	}
	for _, r := range relays {
		r.cut()
	}
	asking, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if g, err := store.Global(asking, jobs.DefaultTenant); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("while no majority confirms its lead, a node answers with %+v (%v)", g, err)
	}
}
