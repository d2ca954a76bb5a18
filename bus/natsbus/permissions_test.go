package natsbus_test

import (
	"context"
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

// The permissions are sufficient for everything that a bus promises.
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
	rival     = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w2", App: "billing"}
	elsewhere = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w1", App: "payroll"}
	stranger  = bus.Principal{Tenant: "acme", Role: bus.Worker, Name: "w1", App: "billing"}
	client    = bus.Principal{Tenant: "default", Role: bus.Client, Name: "shop"}
)

// guarded is a server with users, and a leader with a service.
func guarded(t *testing.T) (s *embedded.Server, leader *natsbus.Bus) {
	s = start(t, embedded.Config{Users: []natsbus.Grant{
		{User: "node", Password: "n", As: node},
		{User: "w1", Password: "w", As: worker, Apps: []string{"billing"}},
		{User: "client", Password: "c", As: client},
		{User: "any", Password: "a", As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: natsbus.AnyName}},
	}})
	leader = connect(t, s.URL(), natsbus.Config{As: node, User: "node", Password: "n"})
	must(t, leader.Serve(t.Context(), bus.ServiceStore, echo))
	return s, leader
}

// A client with another's password cannot be the other: it gets an error at once, instead of silence.
func TestNoPrincipalIsAnother(t *testing.T) {
	s, _ := guarded(t)
	for _, p := range []bus.Principal{rival, elsewhere, stranger, client, node} {
		b := connect(t, s.URL(), natsbus.Config{As: p, User: "w1", Password: "w"})
		if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("call as %v: %v", p, err)
		}
		at := bus.Address{Tenant: p.Tenant, App: "payroll", Worker: p.Name}
		if err := b.Accept(within(t), at, same); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("accept as %v: %v", p, err)
		}
		if p.Role == bus.Node {
			if _, err := b.Push(within(t), here, nil); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("push as %v: %v", p, err)
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

func TestAWorkerAcceptsForItsAppsOnly(t *testing.T) {
	s, leader := guarded(t)
	b := connect(t, s.URL(), natsbus.Config{As: worker, User: "w1", Password: "w"})
	theirs := here
	theirs.App = "payroll"
	if err := b.Accept(within(t), theirs, same); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("accept for another app: %v", err)
	}
	must(t, b.Accept(within(t), here, same))
	_, err := leader.Push(within(t), here, nil)
	must(t, err)
	c := connect(t, s.URL(), natsbus.Config{As: client, User: "client", Password: "c"})
	if err := c.Accept(within(t), here, same); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("accept by a client: %v", err)
	}
}

// Workers that share a user have names of their own, and are no nodes.
func TestAUserOfMany(t *testing.T) {
	s, leader := guarded(t)
	for _, p := range []bus.Principal{worker, rival} {
		b := connect(t, s.URL(), natsbus.Config{As: p, User: "any", Password: "a"})
		_, err := b.Call(within(t), bus.ServiceStore, nil)
		must(t, err)
		at := bus.Address{Tenant: "default", App: "payroll", Worker: p.Name}
		must(t, b.Accept(within(t), at, same))
		_, err = leader.Push(within(t), at, nil)
		must(t, err)
	}
	b := connect(t, s.URL(), natsbus.Config{As: stranger, User: "any", Password: "a"})
	if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("call as another tenant's: %v", err)
	}
}

// The attempts of a program that does not use this package.
func TestAWorkersRawConnection(t *testing.T) {
	s, _ := guarded(t)
	refused := make(chan error, 100)
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("w1", "w"), nats.CustomInboxPrefix("inbox.default.worker.w1.billing"),
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
		case <-time.After(time.Minute):
			t.Errorf("%s: allowed", what)
		}
	}
	for _, subject := range []string{
		"call.default.worker.w2.billing.store", "call.default.worker.w1.payroll.store", "call.default.worker.w1.=none.store", "call.default.worker.w1.store",
		"call.default.node.node-1.=none.store", "call.acme.worker.w1.billing.store",
		"signal.default.log.=none.default.worker.w2.billing", "signal.default.log.=none.default.worker.w1.payroll",
		"signal.default.changed.=none.default.node.node-1.=none",
		"signal.acme.log.=none.default.worker.w1.billing", "signal.default.cancel.w2.default.worker.w1.billing",
		"to.default.billing.w2.x", "inbox.default.worker.w2.billing.x", "inbox.default.node.node-1.=none.x", "answer.default.billing.w2.x.mark.token", "_INBOX.x",
		"$JS.API.INFO", "$JS.API.STREAM.CREATE.S", "$JS.API.CONSUMER.MSG.NEXT.S.billing", "$JS.ACK.S.billing.1.1.1.1.0",
		"$SYS.REQ.SERVER.PING", "anything",
	} {
		must(t, nc.Publish(subject, []byte("x")))
		expect("publish on " + subject)
	}
	for _, subject := range []string{
		">", "*.>", "_INBOX.>", "inbox.>", "inbox.default.node.>", "inbox.default.worker.w2.>", "inbox.default.worker.w1.payroll.>", "call.>", "call.*.*.*.*.store", "answer.>", "answer.default.billing.w1.>",
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

// An answer is sent with the rights of the one that answers, to a subject that the other end chose. So a node answers in
// the caller's inbox only, and a worker where answers of its own go: that nodes alone can push is not its only defence.
func TestAnswersGoToWhoAsked(t *testing.T) {
	s, hearing := guarded(t)
	raw := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo(user, password), nats.CustomInboxPrefix("inbox.default.client.shop.=none"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		must(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	signals := make(chan bus.Signal, 10)
	for _, topic := range []bus.Topic{bus.TopicLog, bus.TopicCancel} {
		must(t, hearing.Listen(t.Context(), "*", topic, "", func(s bus.Signal) { signals <- s }))
	}
	calls := make(chan bus.Principal, 10)
	must(t, hearing.Serve(t.Context(), "other", func(_ context.Context, from bus.Principal, _ []byte) ([]byte, error) {
		calls <- from
		return nil, nil
	}))

	c, n := raw("client", "c"), raw("node", "n")
	victim := connect(t, s.URL(), natsbus.Config{As: worker, User: "w1", Password: "w"})
	must(t, victim.Accept(t.Context(), here, same))
	places := []string{"signal.default.cancel.w1.default.node.n1.=none", "signal.default.log.=none.default.node.n1.=none",
		"call.default.node.n1.=none.other", "call.acme.worker.w1.billing.other", "inbox.default.worker.w1.billing.x", "inbox.default.client.shopping.=none.x",
		"$JS.API.STREAM.DELETE.S", "answer.default.billing.w2.=none.mark.token"}
	for _, to := range places {
		must(t, c.PublishRequest("call.default.client.shop.=none.store", to, []byte("{}")))
		must(t, n.PublishRequest("to.default.billing.w1.=none", to, []byte("{}")))
	}
	for _, nc := range []*nats.Conn{c, n} {
		must(t, nc.Flush())
	}
	if m, err := c.Request("call.default.client.shop.=none.store", []byte("hello"), time.Minute); err != nil || string(m.Data) != "hello" {
		t.Errorf("an honest call: %v", err)
	}
	// Earlier messages have been answered by now, or are on their way: later ones arrive behind them.
	must(t, connect(t, s.URL(), natsbus.Config{As: node, User: "node", Password: "n"}).Signal(t.Context(), bus.Signal{Topic: bus.TopicLog, Tenant: "default", Data: []byte("last")}))
	for {
		got := <-signals
		if string(got.Data) == "last" {
			break
		}
		t.Errorf("a signal %s of %s: %q", got.Topic, got.From.Actor(), got.Data)
	}
	select {
	case from := <-calls:
		t.Errorf("a call of %s", from.Actor())
	default:
	}
	if answer, err := hearing.Push(within(t), here, []byte("hello")); err != nil || string(answer) != "hello" {
		t.Errorf("an honest push: %q, %v", answer, err)
	}
	if n := victim.Malformed(); n != uint64(len(places)) {
		t.Errorf("a worker dropped %d of %d pushes", n, len(places))
	}
}

// A client that sends the largest requests there are, as many as it can, does not cost the others their memory: it is
// asked to come again, and they are answered meanwhile. No connection ends for it.
func TestTooManyLargeRequests(t *testing.T) {
	s, leader := guarded(t)
	free := make(chan struct{})
	must(t, leader.Serve(t.Context(), "held", func(ctx context.Context, _ bus.Principal, request []byte) ([]byte, error) {
		if len(request) > 1 {
			<-free
		}
		return nil, nil
	}))
	const connections, calls, taken = 12, 4, 32 << 20 / bus.MaxRequest
	answers := make(chan error, connections*calls)
	var loud *natsbus.Bus
	for range connections {
		one := connect(t, s.URL(), natsbus.Config{As: client, User: "client", Password: "c"})
		loud = one
		for range calls {
			go func() {
				_, err := one.Call(within(t), "held", make([]byte, bus.MaxRequest))
				answers <- err
			}()
		}
	}
	for range connections*calls - taken {
		if err := <-answers; !errors.Is(err, jobs.Unavailable) || errors.Is(err, bus.ErrNoReceiver) {
			t.Errorf("one too many: %v", err)
		}
	}
	quiet := connect(t, s.URL(), natsbus.Config{As: worker, User: "w1", Password: "w"})
	if _, err := quiet.Call(within(t), "held", []byte("x")); err != nil {
		t.Errorf("another's call meanwhile: %v", err)
	}
	close(free)
	for range taken {
		must(t, <-answers)
	}
	_, err := loud.Call(within(t), "held", make([]byte, bus.MaxRequest))
	must(t, err)
}

// A connection has few large requests under way. Others wait, and small ones pass them: a heartbeat is not late for
// what a handler enqueues.
func TestSmallRequestsPassLargeOnes(t *testing.T) {
	s, leader := guarded(t)
	free, arrived := make(chan struct{}), make(chan struct{}, 100)
	must(t, leader.Serve(t.Context(), "held", func(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) {
		if len(request) > 1 {
			arrived <- struct{}{}
			<-free
		}
		return nil, nil
	}))
	b := connect(t, s.URL(), natsbus.Config{As: worker, User: "w1", Password: "w"})
	answers := make(chan error, 100)
	for range 4 {
		go func() {
			_, err := b.Call(within(t), "held", make([]byte, 100<<10))
			answers <- err
		}()
	}
	for range 4 {
		<-arrived
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.Call(ctx, "held", make([]byte, 100<<10)); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("a fifth large request is not refused as not sent: %v", err)
	}
	_, err := b.Call(within(t), "held", []byte("x"))
	must(t, err)
	if len(arrived) > 0 {
		t.Error("a fifth large request was sent")
	}
	close(free)
	for range 4 {
		must(t, <-answers)
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
