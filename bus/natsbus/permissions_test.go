package natsbus_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
)

// user is the user of a principal on a server with permissions.
func user(p bus.Principal) string { return fmt.Sprintf("%s-%s", p.Tenant, p.Actor()) }

// What the permissions allow is enough for everything that a bus promises.
func TestBusWithPermissions(t *testing.T) {
	var grants []natsbus.Grant
	for _, p := range bustest.Principals() {
		grants = append(grants, natsbus.Grant{User: user(p), Password: "secret", As: p, Apps: bustest.Apps()})
	}
	bustest.Run(t, func(t *testing.T) bustest.Harness {
		s := start(t, embedded.Config{Users: grants})
		return bustest.Harness{As: func(t *testing.T, p bus.Principal) bus.Bus {
			return connect(t, s.URL(), natsbus.Config{As: p, User: user(p), Password: "secret"})
		}}
	})
}

var (
	rival    = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w2"}
	stranger = bus.Principal{Tenant: "acme", Role: bus.Worker, Name: "w1"}
	client   = bus.Principal{Tenant: "default", Role: bus.Client, Name: "shop"}
)

// guarded is a server with users, and a leader with a queue and one who waits for calls.
func guarded(t *testing.T) (*embedded.Server, string) {
	s := start(t, embedded.Config{Users: []natsbus.Grant{
		{User: "node", Password: "n", As: node},
		{User: "w1", Password: "w", As: worker, Apps: []string{"billing"}},
		{User: "client", Password: "c", As: client},
		{User: "any", Password: "a", As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: natsbus.AnyName}},
	}})
	leader := connect(t, s.URL(), natsbus.Config{As: node, User: "node", Password: "n"})
	must(t, leader.Serve(t.Context(), bus.ServiceStore, echo))
	queue, err := leader.Open(within(t), 1)
	must(t, err)
	for _, app := range []string{"billing", "payroll"} {
		must(t, leader.Offer(within(t), queue, bus.Lane{Tenant: "default", App: app}, list(1)))
	}
	return s, queue
}

// Who connects with another's password cannot be the other: he is told so at once, not by silence.
func TestNobodyIsSomebodyElse(t *testing.T) {
	s, queue := guarded(t)
	for _, p := range []bus.Principal{rival, stranger, client, node} {
		b := connect(t, s.URL(), natsbus.Config{As: p, User: "w1", Password: "w"})
		if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("call as %v: %v", p, err)
		}
		lane := bus.Lane{Tenant: p.Tenant, App: "billing", Worker: "w2"}
		if err := b.Receive(within(t), lane, func([]bus.Offer) {}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("receive as %v: %v", p, err)
		}
		if p.Role == bus.Node {
			if _, err := b.Open(within(t), 2); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("open as %v: %v", p, err)
			}
			if err := b.Offer(within(t), queue, billing, list(1)); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("offer as %v: %v", p, err)
			}
			if err := b.Serve(within(t), bus.ServiceStore, echo); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("serve as %v: %v", p, err)
			}
			if err := b.Listen(within(t), "*", bus.TopicLog, "", func(bus.Signal) {}); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("listen as %v: %v", p, err)
			}
		}
	}
}

func TestAWorkerTakesFromItsAppsOnly(t *testing.T) {
	s, queue := guarded(t)
	b := connect(t, s.URL(), natsbus.Config{As: worker, User: "w1", Password: "w"})
	if _, _, err := b.Take(within(t), queue, bus.Lane{Tenant: "default", App: "payroll"}, 1); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("take from another app: %v", err)
	}
	_, done, err := b.Take(within(t), queue, billing, 1)
	must(t, err)
	done()
	c := connect(t, s.URL(), natsbus.Config{As: client, User: "client", Password: "c"})
	if _, _, err := c.Take(within(t), queue, billing, 1); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("take by a client: %v", err)
	}
}

// Workers that share a user have names of their own, and are no nodes.
func TestAUserOfMany(t *testing.T) {
	s, queue := guarded(t)
	for _, p := range []bus.Principal{worker, rival} {
		b := connect(t, s.URL(), natsbus.Config{As: p, User: "any", Password: "a"})
		_, err := b.Call(within(t), bus.ServiceStore, nil)
		must(t, err)
		must(t, b.Receive(within(t), bus.Lane{Tenant: "default", App: "payroll", Worker: p.Name}, func([]bus.Offer) {}))
	}
	b := connect(t, s.URL(), natsbus.Config{As: rival, User: "any", Password: "a"})
	_, done, err := b.Take(within(t), queue, bus.Lane{Tenant: "default", App: "payroll"}, 1)
	must(t, err)
	done()
	b = connect(t, s.URL(), natsbus.Config{As: stranger, User: "any", Password: "a"})
	if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("call as another tenant's: %v", err)
	}
}

// What a program that does not use this package would try.
func TestAWorkersRawConnection(t *testing.T) {
	s, queue := guarded(t)
	refused := make(chan error, 100)
	nc, err := nats.Connect(s.URL(), nats.UserInfo("w1", "w"), nats.CustomInboxPrefix("inbox.default.worker.w1"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	must(t, err)
	t.Cleanup(nc.Close)
	expect := func(what string) {
		t.Helper()
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: allowed", what)
		}
	}
	for _, subject := range []string{
		"call.default.worker.w2.store", "call.default.node.node-1.store", "call.acme.worker.w1.store",
		"signal.default.back.=none.default.worker.w2", "signal.default.changed.=none.default.node.node-1",
		"signal.acme.back.=none.default.worker.w1", "signal.default.cancel.w2.default.worker.w1",
		"offer.1.default.billing", "to.default.billing.w2.x", "inbox.default.worker.w2.x", "_INBOX.x",
		"$JS.API.STREAM.DELETE." + queue, "$JS.API.STREAM.PURGE." + queue, "$JS.API.STREAM.NAMES", "$JS.API.INFO",
		"$JS.API.CONSUMER.DELETE." + queue + ".billing@default", "$JS.API.CONSUMER.DURABLE.CREATE." + queue + ".mine",
		"$JS.API.CONSUMER.MSG.NEXT." + queue + ".payroll@default", "$JS.ACK." + queue + ".payroll@default.1.1.1.1.0",
		"$SYS.REQ.SERVER.PING", "anything",
	} {
		must(t, nc.Publish(subject, []byte("x")))
		expect("publish on " + subject)
	}
	for _, subject := range []string{
		">", "*.>", "_INBOX.>", "inbox.>", "inbox.default.node.>", "inbox.default.worker.w2.>", "offer.>", "call.>", "call.*.*.*.store",
		"to.>", "to.default.billing.*.*", "to.default.billing.w2.*", "signal.>", "signal.*.cancel.>", "$SYS.>", "$JS.>", "$JS.API.>", "$JS.EVENT.>",
	} {
		_, err := nc.SubscribeSync(subject)
		must(t, err)
		expect("subscribe to " + subject)
	}
	if len(refused) > 0 {
		t.Errorf("refused without reason: %v", <-refused)
	}
}

func TestGrantsAreChecked(t *testing.T) {
	for _, g := range []natsbus.Grant{
		{},
		{User: "u", As: node},
		{User: "u", Password: "p", As: bus.Principal{Role: "admin", Name: "n"}},
		{User: "u", Password: "p", As: bus.Principal{Role: bus.Worker}},
	} {
		if s, err := embedded.Start(embedded.Config{Users: []natsbus.Grant{g}}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%+v: %v", g, err)
			if err == nil {
				_ = s.Stop()
			}
		}
	}
}
