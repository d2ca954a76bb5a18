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

// guarded is a server with users, and a leader with a queue and a service.
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

// A client with another's password cannot be the other: it gets an error at once, instead of silence.
func TestNoPrincipalIsAnother(t *testing.T) {
	s, queue := guarded(t)
	for _, p := range []bus.Principal{rival, elsewhere, stranger, client, node} {
		b := connect(t, s.URL(), natsbus.Config{As: p, User: "w1", Password: "w"})
		if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("call as %v: %v", p, err)
		}
		lane := bus.Lane{Tenant: p.Tenant, App: "payroll", Worker: p.Name}
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

// The attempts of a program that does not use this package.
func TestAWorkersRawConnection(t *testing.T) {
	s, queue := guarded(t)
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
		"signal.default.back.=none.default.worker.w2.billing", "signal.default.back.=none.default.worker.w1.payroll",
		"signal.default.changed.=none.default.node.node-1.=none",
		"signal.acme.back.=none.default.worker.w1.billing", "signal.default.cancel.w2.default.worker.w1.billing",
		"offer.1.default.billing", "to.default.billing.w2.x", "inbox.default.worker.w2.billing.x", "inbox.default.node.node-1.=none.x", "answer.default.billing.w2.x.mark.token", "_INBOX.x",
		"$JS.API.STREAM.DELETE." + queue, "$JS.API.STREAM.PURGE." + queue, "$JS.API.STREAM.NAMES", "$JS.API.INFO",
		"$JS.API.CONSUMER.DELETE." + queue + ".billing@default", "$JS.API.CONSUMER.DURABLE.CREATE." + queue + ".mine",
		"$JS.API.CONSUMER.MSG.NEXT." + queue + ".payroll@default", "$JS.ACK." + queue + ".payroll@default.1.1.1.1.0",
		"$SYS.REQ.SERVER.PING", "anything",
	} {
		must(t, nc.Publish(subject, []byte("x")))
		expect("publish on " + subject)
	}
	for _, subject := range []string{
		">", "*.>", "_INBOX.>", "inbox.>", "inbox.default.node.>", "inbox.default.worker.w2.>", "inbox.default.worker.w1.payroll.>", "offer.>", "call.>", "call.*.*.*.*.store", "answer.>", "answer.default.billing.w1.>",
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

// A server sends an answer in its own name, to the subject that the caller chose: that must be the caller's inbox, or
// the caller could send as the server.
func TestAnswersGoToWhoAsked(t *testing.T) {
	s, queue := guarded(t)
	raw := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo(user, password), nats.CustomInboxPrefix("inbox.default.client.shop.=none"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		must(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	hearing := connect(t, s.URL(), natsbus.Config{As: node, User: "node", Password: "n"})
	signals := make(chan bus.Signal, 10)
	for _, topic := range []bus.Topic{bus.TopicLog, bus.TopicCancel} {
		must(t, hearing.Listen(t.Context(), "*", topic, "", func(s bus.Signal) { signals <- s }))
	}
	calls := make(chan bus.Principal, 10)
	must(t, hearing.Serve(t.Context(), "other", func(_ context.Context, from bus.Principal, _ []byte) ([]byte, error) {
		calls <- from
		return nil, nil
	}))

	places := []string{"signal.default.cancel.w1.default.node.n1.=none", "signal.default.log.=none.default.node.n1.=none",
		"call.default.node.n1.=none.other", "call.acme.worker.w1.billing.other", "inbox.default.worker.w1.billing.x", "inbox.default.client.shopping.=none.x",
		"$JS.API.STREAM.DELETE." + queue, "$JS.API.STREAM.PURGE." + queue}
	c, w := raw("client", "c"), raw("w1", "w")
	for _, to := range places {
		must(t, c.PublishRequest("call.default.client.shop.=none.store", to, []byte("{}")))
		must(t, w.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+queue+".payroll@default", to, []byte(`{"batch":1,"no_wait":true}`)))
		must(t, w.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+queue+".none@default", to, []byte(`{"batch":1,"no_wait":true}`)))
	}
	// Offers are an app's own, but a message that a queue delivers is no call and no signal. The last two of the places
	// a server does not keep from it: SECURITY.md states what that costs.
	for _, to := range places[:6] {
		must(t, w.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+queue+".billing@default", to, []byte(`{"batch":1,"no_wait":true}`)))
		must(t, w.Flush())
	}
	for _, nc := range []*nats.Conn{c, w} {
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
	lost := connect(t, s.URL(), natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w3", App: "payroll"}, User: "any", Password: "a"})
	_, done, err := lost.Take(within(t), queue, bus.Lane{Tenant: "default", App: "payroll"}, 1)
	must(t, err)
	done()
}

// JetStream publishes where those who pull and acknowledge direct it: offers of their app, statuses, and empty
// messages. On any subject that a worker chooses, they do not count as a node's or a worker's.
func TestJetStreamSpeaksForNoPrincipal(t *testing.T) {
	s, queue := guarded(t)
	leader := connect(t, s.URL(), natsbus.Config{As: node, User: "node", Password: "n"})
	signals, calls, lists := make(chan bus.Signal, 100), make(chan bus.Principal, 100), make(chan []bus.Offer, 100)
	for _, topic := range bus.Topics() {
		must(t, leader.Listen(t.Context(), "*", topic, "", func(s bus.Signal) { signals <- s }))
	}
	must(t, leader.Serve(t.Context(), "other", func(_ context.Context, from bus.Principal, _ []byte) ([]byte, error) {
		calls <- from
		return nil, nil
	}))
	victim := connect(t, s.URL(), natsbus.Config{As: rival, User: "any", Password: "a"})
	lane := bus.Lane{Tenant: "default", App: "billing", Worker: "w2"}
	must(t, victim.Receive(t.Context(), lane, func(list []bus.Offer) { lists <- list }))

	places := []string{"signal.default.cancel.=none.default.node.n1.=none", "signal.default.node.=none.default.node.n1.=none",
		"signal.default.log.=none.default.worker.w2.billing", "call.default.node.n1.=none.other", "call.default.worker.w2.billing.other",
		"to.default.billing.w2.=none"}
	for range places {
		must(t, leader.Offer(within(t), queue, billing, list(1)))
	}
	w, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("w1", "w"), nats.CustomInboxPrefix("inbox.default.worker.w1.billing"))
	must(t, err)
	t.Cleanup(w.Close)
	pull := "$JS.API.CONSUMER.MSG.NEXT." + queue + ".billing@default"
	offer, err := w.Request(pull, []byte(`{"batch":1}`), time.Minute)
	must(t, err)
	for _, to := range places {
		must(t, w.PublishRequest(pull, to, []byte(`{"batch":1,"no_wait":true}`))) // an offer
		must(t, w.PublishRequest(offer.Reply, to, []byte("+WPI")))                // an empty message
	}
	last, err := w.Request(pull, []byte(`{"batch":1,"no_wait":true}`), time.Minute)
	must(t, err)
	if last.Header.Get("Status") != "404" {
		t.Fatalf("there are offers that went nowhere: %v", last.Header)
	}
	for _, to := range places {
		must(t, w.PublishRequest(pull, to, []byte(`{"batch":1,"no_wait":true}`))) // a status
	}
	_, err = w.Request(pull, []byte(`{"batch":1,"no_wait":true}`), time.Minute) // it is answered in turn
	must(t, err)
	must(t, leader.Hand(within(t), lane, list(64))) // and so are these, behind all that
	for _, topic := range bus.Topics() {
		must(t, leader.Signal(within(t), bus.Signal{Topic: topic, Data: []byte("last")}))
	}
	_, err = victim.Call(within(t), "other", nil)
	must(t, err)
	if got := <-lists; len(got) != 64 {
		t.Errorf("a worker gets %d offers from another", len(got))
	}
	for range bus.Topics() {
		if got := <-signals; string(got.Data) != "last" {
			t.Errorf("a signal %s of %s: %q", got.Topic, got.From.Actor(), got.Data)
		}
	}
	if from := <-calls; from != rival || len(calls) > 0 {
		t.Errorf("a call of %s, and %d more", from.Actor(), len(calls))
	}
}

// A client that sends the largest messages there are, as many as it can, does not cost the others their memory: it is
// asked to come again, and they are answered meanwhile.
func TestTooManyLargeRequests(t *testing.T) {
	s, _ := guarded(t)
	leader := connect(t, s.URL(), natsbus.Config{As: node, User: "node", Password: "n"})
	free := make(chan struct{})
	must(t, leader.Serve(t.Context(), "held", func(ctx context.Context, _ bus.Principal, request []byte) ([]byte, error) {
		if len(request) > 1 {
			<-free
		}
		return nil, nil
	}))
	loud := connect(t, s.URL(), natsbus.Config{As: client, User: "client", Password: "c"})
	const calls, size = 20, 4 << 20
	answers := make(chan error, calls)
	for range calls {
		go func() {
			_, err := loud.Call(within(t), "held", make([]byte, size))
			answers <- err
		}()
	}
	const taken = 32 << 20 / size
	for range calls - taken {
		if err := <-answers; !errors.Is(err, jobs.Unavailable) {
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
	_, err := loud.Call(within(t), "held", make([]byte, size))
	must(t, err)
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
