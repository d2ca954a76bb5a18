package embedded_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// register holds tokens, as a store would.
type register struct {
	mu     sync.Mutex
	tokens map[string]entry
	away   bool // the store does not answer
	asked  atomic.Int64
}

type entry struct {
	as  bus.Principal
	app string
}

const (
	ofBilling  = "carillon_default_aaaaaaaa_BILLING"
	ofShipping = "carillon_default_bbbbbbbb_SHIPPING"
	ofAny      = "carillon_default_cccccccc_ANY"
	ofClient   = "carillon_default_dddddddd_CLIENT"
	ofAcme     = "carillon_acme_eeeeeeee_ACME"
	ofAdmin    = "carillon_default_ffffffff_ADMIN"
)

func newRegister() *register {
	return &register{tokens: map[string]entry{
		ofBilling:  {bus.Principal{Tenant: "default", Role: bus.Worker}, "billing"},
		ofShipping: {bus.Principal{Tenant: "default", Role: bus.Worker}, "shipping"},
		ofAny:      {bus.Principal{Tenant: "default", Role: bus.Worker}, ""},
		ofClient:   {bus.Principal{Tenant: "default", Role: bus.Client}, ""},
		ofAcme:     {bus.Principal{Tenant: "acme", Role: bus.Worker}, ""},
		ofAdmin:    {bus.Principal{Tenant: "default", Role: "admin"}, ""},
	}}
}

func (r *register) admit(_ context.Context, token string) (bus.Principal, string, error) {
	r.asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return bus.Principal{}, "", kernel.Refuse(jobs.Unavailable, "the store does not answer")
	}
	e, known := r.tokens[token]
	if !known {
		return bus.Principal{}, "", kernel.Refuse(jobs.Forbidden, "the token is unknown, expired or revoked")
	}
	return e.as, e.app, nil
}

func (r *register) revoke(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tokens, token)
}

func (r *register) absent(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

// guarded is a server that authenticates by tokens, with a leader inside that answers calls.
func guarded(t *testing.T, cfg embedded.Config) (*embedded.Server, *natsbus.Bus) {
	t.Helper()
	s, err := embedded.Start(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	leader, err := natsbus.Connect(within(t), "", natsbus.Config{As: node, InProcess: s})
	must(t, err)
	t.Cleanup(func() { _ = leader.Close() })
	must(t, leader.Serve(t.Context(), bus.ServiceStore, func(_ context.Context, from bus.Principal, _ []byte) ([]byte, error) {
		return []byte(fmt.Sprint(from)), nil
	}))
	return s, leader
}

func as(tenant jobs.Tenant, role bus.Role, name string) bus.Principal {
	return bus.Principal{Tenant: tenant, Role: role, Name: name}
}

// enter connects with a token, as a program does that uses this package.
func enter(t *testing.T, s *embedded.Server, token string, p bus.Principal, app string) (*natsbus.Bus, error) {
	t.Helper()
	p.App = app
	b, err := natsbus.Connect(within(t), s.URL(), natsbus.Config{As: p, Token: token})
	if err == nil {
		t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

func entered(t *testing.T, s *embedded.Server, token string, p bus.Principal, app string) *natsbus.Bus {
	t.Helper()
	b, err := enter(t, s, token, p, app)
	must(t, err)
	return b
}

func TestATokenOpensTheBusForOneAndHisApp(t *testing.T) {
	s, leader := guarded(t, embedded.Config{Admit: newRegister().admit})
	for _, c := range []struct {
		token string
		as    bus.Principal
		app   string
	}{
		{ofBilling, as("default", bus.Worker, "billing.h1"), "billing"},
		{ofAny, as("default", bus.Worker, "shipping.h1"), "shipping"},
		{ofAcme, as("acme", bus.Worker, "billing.h1"), "billing"},
	} {
		b := entered(t, s, c.token, c.as, c.app)
		answer, err := b.Call(within(t), bus.ServiceStore, nil)
		must(t, err)
		c.as.App = c.app
		if string(answer) != fmt.Sprint(c.as) {
			t.Errorf("%v is taken for %s", c.as, answer)
		}
		for _, at := range []bus.Address{{Tenant: "default", App: "billing"}, {Tenant: "default", App: "shipping"}, {Tenant: "acme", App: "billing"}} {
			at.Worker = c.as.Name + "-x"
			err := b.Accept(within(t), at, same)
			if at.Tenant != c.as.Tenant || at.App != c.app {
				if !errors.Is(err, jobs.Forbidden) {
					t.Errorf("%v accepts at %v: %v", c.as, at, err)
				}
				continue
			}
			must(t, err)
			_, err = leader.Push(within(t), at, nil)
			must(t, err)
		}
	}
	client := entered(t, s, ofClient, as("default", bus.Client, "shop"), "")
	_, err := client.Call(within(t), bus.ServiceStore, nil)
	must(t, err)
}

// A refused connection gets that error, and the log has the reason without the token.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	var log page
	var denied atomic.Int64
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit, Logger: slog.New(slog.NewTextHandler(&log, nil)), Denied: func(from string, err error) {
		if from == "" || !errors.Is(err, jobs.Forbidden) {
			t.Errorf("from %q: %v", from, err)
		}
		denied.Add(1)
	}})
	var all sync.WaitGroup // side by side: each waits for its penance
	for what, c := range map[string]struct {
		token string
		as    bus.Principal
		app   string
	}{
		"no token":                  {"", as("default", bus.Worker, "w"), "billing"},
		"a wrong one":               {ofBilling + "x", as("default", bus.Worker, "w"), "billing"},
		"a part of one":             {ofBilling[:20], as("default", bus.Worker, "w"), "billing"},
		"one that is for pages":     {ofAdmin, as("default", "admin", "w"), ""},
		"one of another app":        {ofShipping, as("default", bus.Worker, "w"), "billing"},
		"a worker's, by a client":   {ofBilling, as("default", bus.Client, "w"), ""},
		"a worker's, by a node":     {ofAny, node, "billing"},
		"a client's, by a worker":   {ofClient, as("default", bus.Worker, "w"), "billing"},
		"any app's, without an app": {ofAny, as("default", bus.Worker, "w"), ""},
		"one of another tenant":     {ofAcme, as("default", bus.Worker, "w"), "billing"},
		"a name that is none":       {ofClient, as("default", bus.Client, "*"), ""},
	} {
		all.Go(func() {
			if _, err := enter(t, s, c.token, c.as, c.app); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for what, o := range map[string]nats.Option{
		"the insider's name":             nats.UserInfo("insider", "x"),
		"the insider's secret elsewhere": nats.Token(s.Insider()),
		"a token as a user":              nats.UserInfo(ofBilling, ""),
	} {
		all.Go(func() {
			if nc, err := nats.Connect(s.URL(), o, nats.Timeout(20*time.Second)); !errors.Is(err, nats.ErrAuthorization) {
				t.Errorf("%s: %v", what, err)
				nc.Close()
			}
		})
	}
	all.Wait()
	if denied.Load() < 14 {
		t.Errorf("%d refused connections were reported", denied.Load())
	}
	logged := log.String()
	if !strings.Contains(logged, "bus connection refused") {
		t.Errorf("the log is empty: %s", logged)
	}
	secret := s.Insider()
	for _, s := range []string{"BILLING", "SHIPPING", "ANY", "CLIENT", "ADMIN", secret} {
		if strings.Contains(logged, s) {
			t.Errorf("the log contains a secret (%s): %s", s, logged)
		}
	}
}

// The client logs where it connects, and not its token.
func TestTheTokenIsNotInTheLogOfItsHolder(t *testing.T) {
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit})
	for _, user := range []string{ofClient, "shop:" + ofClient} {
		var log page
		b, err := natsbus.Connect(within(t), strings.Replace(s.URL(), "://", "://"+user+"@", 1),
			natsbus.Config{As: as("default", bus.Client, "shop"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
		again(t, func() bool { return strings.Contains(log.String(), "bus connected") }) // logged once connected
		must(t, b.Close())
		if logged := log.String(); strings.Contains(logged, "CLIENT") {
			t.Errorf("the log is %s", logged)
		}
	}
}

// A worker that is started with a new token has its name at once; both are valid.
func TestAnotherTokenOfTheSameApp(t *testing.T) {
	r := newRegister()
	s, _ := guarded(t, embedded.Config{Admit: r.admit})
	w := as("default", bus.Worker, "h1")
	for _, token := range []string{ofBilling, ofAny} {
		b := entered(t, s, token, w, "billing")
		_, err := b.Call(within(t), bus.ServiceStore, nil)
		must(t, err)
	}
}

// A program that does not use natsbus gets its token's permissions, and its user name for a name.
func TestARawConnectionWithAToken(t *testing.T) {
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit})
	refused := make(chan error, 100)
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("raw", ofBilling), nats.CustomInboxPrefix("inbox.default.worker.raw.billing"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	must(t, err)
	defer nc.Close()
	if _, err := nc.Request("call.default.worker.raw.billing.store", nil, 10*time.Second); err != nil {
		t.Errorf("its own call: %v", err)
	}
	expect := func(what string) {
		t.Helper()
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: allowed", what)
		}
	}
	for _, subject := range []string{
		"call.default.worker.h1.billing.store", "call.default.worker.raw.shipping.store", "call.default.worker.raw.=none.store",
		"call.acme.worker.raw.billing.store", "call.default.node.node-1.=none.store", "to.default.billing.h1.x",
		"signal.acme.log.=none.acme.worker.raw.billing", "signal.default.log.=none.default.worker.raw.shipping", "answer.default.billing.h1.x.mark.token", "$JS.API.INFO", "$SYS.REQ.SERVER.PING",
	} {
		must(t, nc.Publish(subject, nil))
		expect("publish on " + subject)
	}
	for _, subject := range []string{">", "_INBOX.>", "inbox.>", "$SYS.>", "call.>", "to.default.>", "signal.acme.>"} {
		_, err := nc.SubscribeSync(subject)
		must(t, err)
		expect("subscribe to " + subject)
	}
}

// A client that tries what it may not, all the time, does not fill the disk with lines about it.
func TestTheLogOfRefusals(t *testing.T) {
	var logged page
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	begun := time.Now()
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("raw", ofClient), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	must(t, err)
	defer nc.Close()
	for range 1000 {
		must(t, nc.Publish("call.default.node.n1.=none.store", nil))
	}
	must(t, nc.Flush())
	n, most := strings.Count(logged.String(), "Publish Violation"), 10*(int(time.Since(begun).Seconds())+2)
	if n == 0 || n > most {
		t.Errorf("%d lines about refusals, want 1 to %d", n, most)
	}
	if strings.Contains(logged.String(), ofClient) {
		t.Error("the token is in the log")
	}
}

// Subscriptions take memory of the server's.
func TestSubscriptionsOfOneConnection(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit})
	refused := make(chan error, 100_000)
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("raw", ofClient), nats.CustomInboxPrefix("inbox.default.client.raw.=none"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	must(t, err)
	defer nc.Close()
	for i := range 5000 {
		_, err := nc.SubscribeSync(fmt.Sprint("inbox.default.client.raw.=none.", i))
		must(t, err)
	}
	_ = nc.Flush() // fails if the connection has been closed
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no error is logged")
	}
}

// Log lines of other workers' handlers reach nodes only, with any subscription of a worker.
func TestLogLinesAreForNodes(t *testing.T) {
	s, leader := guarded(t, embedded.Config{Admit: newRegister().admit})
	received := make(chan string, 10)
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("raw", ofShipping), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	must(t, err)
	defer nc.Close()
	for _, subject := range []string{"signal.default.>", "signal.default.log.>", "signal.default.*.*.*.*.*.*", "signal.default.live.>"} {
		_, err = nc.Subscribe(subject, func(m *nats.Msg) { received <- m.Subject })
		must(t, err)
	}
	must(t, nc.Flush())
	arrived := make(chan bool, 10)
	must(t, leader.Listen(within(t), "*", bus.TopicLog, "", func(bus.Signal) { arrived <- true }))
	b := entered(t, s, ofBilling, as("default", bus.Worker, "h1"), "billing")
	must(t, b.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: []byte("a secret")}))
	<-arrived
	must(t, leader.Signal(within(t), bus.Signal{Topic: bus.TopicLive, Tenant: "default", Data: []byte("x")}))
	if subject := <-received; !strings.Contains(subject, ".live.") { // its last subscription is the only one that it may have
		t.Errorf("it receives %s", subject)
	}
}

// A client that connects while the store starts waits a moment, instead of an error about its token.
func TestAStoreThatIsStarting(t *testing.T) {
	r := newRegister()
	r.absent(true)
	s, _ := guarded(t, embedded.Config{Admit: r.admit})
	time.AfterFunc(300*time.Millisecond, func() { r.absent(false) })
	entered(t, s, ofBilling, as("default", bus.Worker, "h1"), "billing")
}

// A token that is revoked ends its connections, and no other's; an outage of the store ends none. How soon is
// TestARevokedTokenEndsWithinASecond.
func TestARevokedToken(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	r := newRegister()
	s, _ := guarded(t, embedded.Config{Admit: r.admit})
	closed := make(chan string, 10)
	for name, token := range map[string]string{"stays": ofBilling, "goes": ofAny} {
		nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.Name("carillon worker:default/"+name+" of billing"), nats.Token(token), nats.NoReconnect(),
			nats.ClosedHandler(func(*nats.Conn) { closed <- name }))
		must(t, err)
		defer nc.Close()
	}
	r.absent(true)
	asked := r.asked.Load()
	again(t, func() bool { return r.asked.Load() >= asked+8 }) // at least twice for each of the two
	select {
	case name := <-closed:
		t.Fatalf("%s was closed while the store was away", name)
	default:
	}
	r.absent(false)
	r.revoke(ofAny)
	select {
	case name := <-closed:
		if name != "goes" {
			t.Errorf("%s was closed", name)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it is still there")
	}
	if _, err := enter(t, s, ofAny, as("default", bus.Worker, "goes"), "billing"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("it comes back: %v", err)
	}
	select {
	case name := <-closed:
		t.Errorf("%s was closed, too", name)
	default:
	}
}

// A worker whose token was revoked gets no pushes, with any number of attempts to come back.
func TestAWorkerWithARevokedTokenGetsNothing(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	r := newRegister()
	s, leader := guarded(t, embedded.Config{Admit: r.admit})
	gone := entered(t, s, ofAny, as("default", bus.Worker, "gone"), "billing")
	at := bus.Address{Tenant: "default", App: "billing", Worker: "gone-x"}
	received := make(chan string, 1000)
	must(t, gone.Accept(t.Context(), at, func(push []byte) ([]byte, func()) {
		received <- string(push)
		return nil, nil
	}))
	push := func(text string) error {
		ctx, cancel := context.WithTimeout(within(t), time.Second) // one that arrives while the connection is closed is not answered
		defer cancel()
		_, err := leader.Push(ctx, at, []byte(text))
		return err
	}
	must(t, push("before"))
	r.revoke(ofAny)
	again(t, func() bool { return errors.Is(push("meanwhile"), bus.ErrNoReceiver) })
	for len(received) > 0 {
		<-received
	}
	// By the time that another one has connected and is reached, it would have come back.
	stays := entered(t, s, ofBilling, as("default", bus.Worker, "stays"), "billing")
	there := bus.Address{Tenant: "default", App: "billing", Worker: "stays-x"}
	must(t, stays.Accept(t.Context(), there, same))
	_, err := leader.Push(within(t), there, nil)
	must(t, err)
	if err := push("after"); !errors.Is(err, bus.ErrNoReceiver) || len(received) > 0 {
		t.Errorf("it gets pushes: %v", err)
	}
}

// Many wrong tokens from one machine: the right one is accepted all the same, and the log is short.
func TestManyWrongTokens(t *testing.T) {
	t.Parallel()
	var log page
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	begun := time.Now()
	var wrong sync.WaitGroup
	for i := range 30 {
		wrong.Go(func() {
			if nc, err := nats.Connect(s.URL(), nats.Token(fmt.Sprint("wrong", i))); err == nil {
				nc.Close()
				t.Error("accepted")
			}
		})
	}
	entered(t, s, ofBilling, as("default", bus.Worker, "h1"), "billing")
	wrong.Wait()
	n, most := strings.Count(log.String(), "bus connection refused"), 1+int(time.Since(begun)/(10*time.Second))
	if n == 0 || n > most {
		t.Errorf("%d lines about it in the log, want 1 to %d", n, most)
	}
}

// certificate is one for this machine, and its issuer.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(raw)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, pool
}

// TLS requires a token from all but our own process.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, pool := certificate(t)
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit, TLS: server})
	if !strings.HasPrefix(s.URL(), "tls://") {
		t.Errorf("it is at %s", s.URL())
	}
	b, err := natsbus.Connect(within(t), s.URL(), natsbus.Config{As: as("default", bus.Client, "shop"), Token: ofClient, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
	must(t, err)
	defer b.Close()
	_, err = b.Call(within(t), bus.ServiceStore, nil)
	must(t, err)
	if _, err := enter(t, s, ofClient, as("default", bus.Client, "shop"), ""); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate without a known issuer: %v", err)
	}
	raw, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "tls://"))
	must(t, err)
	defer raw.Close()
	_, err = raw.Write([]byte("CONNECT {\"auth_token\":\"" + ofClient + "\",\"verbose\":true}\r\nPING\r\n"))
	must(t, err)
	must(t, raw.SetReadDeadline(time.Now().Add(20*time.Second)))
	var all []byte
	for buf := make([]byte, 4096); ; {
		n, err := raw.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			break
		}
	}
	if strings.Contains(string(all), "PONG") || strings.Contains(string(all), "+OK") {
		t.Errorf("without TLS it is %s", all)
	}
}

// A store that does not answer is no reason to refuse a token as wrong.
func TestAStoreThatIsAway(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	r := newRegister()
	s, _ := guarded(t, embedded.Config{Admit: r.admit})
	r.absent(true)
	if _, err := enter(t, s, ofBilling, as("default", bus.Worker, "h1"), "billing"); err == nil || errors.Is(err, jobs.Forbidden) {
		t.Errorf("it gets %v", err)
	}
}
