package busstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

const workerToken = "carillon_default_aaaaaaaa_WORKER"

// attacked is a server with a leader, a follower, and a raw connection that holds a worker's token.
type attacked struct {
	*testing.T
	leader, follower *natsbus.Bus
	wire             *nats.Conn // may see everything, as the server does
	worker           *nats.Conn
}

var followerName = bus.Principal{Tenant: "default", Role: bus.Node, Name: "n2"}

func newAttacked(t *testing.T) *attacked {
	s, err := embedded.Start(embedded.Config{Admit: func(_ context.Context, token string) (bus.Principal, string, error) {
		if token != workerToken {
			return bus.Principal{}, "", ops.ErrNotKnown
		}
		return bus.Principal{Tenant: "default", Role: bus.Worker}, "billing", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	node := func(p bus.Principal) *natsbus.Bus {
		b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: p, InProcess: s})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	raw := func(o ...nats.Option) *nats.Conn {
		nc, err := nats.Connect(s.URL(), append(o, nats.Timeout(time.Minute), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	return &attacked{
		T:        t,
		leader:   node(bus.Principal{Tenant: "default", Role: bus.Node, Name: "n1"}),
		follower: node(followerName),
		wire:     raw(nats.InProcessServer(s), nats.Token(s.Insider())),
		worker:   raw(nats.Name("carillon worker:default/w1 of billing"), nats.Token(workerToken)),
	}
}

// watch collects what a connection sees on a subject, from now on.
func (a *attacked) watch(nc *nats.Conn, subject string) <-chan *nats.Msg {
	a.Helper()
	seen := make(chan *nats.Msg, 100)
	if _, err := nc.ChanSubscribe(subject, seen); err != nil {
		a.Fatal(err)
	}
	a.flush(nc)
	return seen
}

func (a *attacked) flush(nc *nats.Conn) {
	a.Helper()
	if err := nc.Flush(); err != nil {
		a.Fatal(err)
	}
}

// A worker that knows everything about a node's question cannot answer it, since it may only publish what a worker
// may: here it gets the reply subject and the request, and claims, before the leader answers, that its token is an
// administrator's.
func TestForgedAnswerToATokenCheck(t *testing.T) {
	a := newAttacked(t)
	// The answer of a leader that knows the forger's token as an administrator's.
	theirs, forgery := memstore.Open(memstore.Config{}), membus.New()
	text := ops.TokenText(jobs.DefaultTenant)
	if _, err := ops.New(ops.Config{Store: theirs}).Adopt(t.Context(), ops.Who{Actor: "person:eve", Role: ops.Admin}, ops.NewToken{Name: "eve", Role: kernel.RoleAdmin}, text); err != nil {
		t.Fatal(err)
	}
	if err := busstore.Serve(t.Context(), forgery.As(followerName), theirs, busstore.Config{}); err != nil {
		t.Fatal(err)
	}

	free := make(chan struct{})
	if err := a.leader.Serve(t.Context(), bus.ServiceStore, func(context.Context, bus.Principal, []byte) ([]byte, error) {
		<-free
		return nil, kernel.Refuse(jobs.NotFound, "no such token")
	}); err != nil {
		t.Fatal(err)
	}
	questions := a.watch(a.wire, "call.default.node.n2.=none.store")
	var who ops.Who
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		who, err = ops.New(ops.Config{Store: busstore.New(a.follower, followerName)}).Authenticate(t.Context(), text)
	}()
	asked := <-questions
	forged, forgeryErr := forgery.As(followerName).Call(t.Context(), bus.ServiceStore, asked.Data)
	if forgeryErr != nil || len(forged) == 0 {
		t.Fatalf("no forged answer: %v", forgeryErr)
	}
	for range 10 {
		if err := a.worker.Publish(asked.Reply, forged); err != nil {
			t.Fatal(err)
		}
	}
	a.flush(a.worker)
	close(free)
	<-answered
	if !errors.Is(err, ops.ErrNotKnown) || who.Role != ops.NoRole {
		t.Fatalf("a worker made itself %+v (%v)", who, err)
	}
}

// The reply subjects that a worker sees when it gets lists do not reveal where the node awaits other answers.
func TestReplySubjectsRevealNothing(t *testing.T) {
	a := newAttacked(t)
	if err := busstore.Serve(t.Context(), a.leader, memstore.Open(memstore.Config{}), busstore.Config{}); err != nil {
		t.Fatal(err)
	}
	questions, handed := a.watch(a.wire, "call.default.node.n2.=none.store"), a.watch(a.worker, "to.default.billing.w1.x")
	var lanes, inboxes []string // reply subjects that the worker sees, and those of the node's own calls
	for range 3 {
		done := make(chan error)
		go func() {
			_, err := a.follower.Push(t.Context(), bus.Address{Tenant: "default", App: "billing", Worker: "w1-x"}, []byte("push"))
			done <- err
		}()
		m := <-handed
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("a worker cannot answer a request that it received: %v", err)
		}
		if _, err := busstore.New(a.follower, followerName).Audits(t.Context(), metastore.AuditQuery{Tenant: "default", Limit: 1}); err != nil {
			t.Fatal(err)
		}
		lanes, inboxes = append(lanes, m.Reply), append(inboxes, (<-questions).Reply)
	}
	used := map[string]bool{}
	for i := range lanes {
		for _, token := range strings.Split(inboxes[i], ".") {
			if len(token) >= 8 && strings.Contains(lanes[i], token) {
				t.Errorf("%s and %s have %s in common", lanes[i], inboxes[i], token)
			}
		}
		for _, reply := range []string{lanes[i], inboxes[i]} {
			last := reply[strings.LastIndexByte(reply, '.')+1:]
			if len(last) < 26 || used[last] {
				t.Errorf("the last token of %s is used again, or has too few characters to be unguessable", reply)
			}
			used[last] = true
		}
	}
}
