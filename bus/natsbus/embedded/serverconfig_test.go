package embedded_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A NATS server that reads what ServerConfig writes accepts exactly those users, each with its own permissions.
func TestAServerWithOurConfig(t *testing.T) {
	grants := []natsbus.Grant{
		{User: "node", As: node},
		{User: "worker-billing.eu", As: as("default", bus.Worker, natsbus.AnyName), Apps: []string{"billing.eu"}},
		{User: "worker-h1", Password: `a "b" \c $D`, As: as("default", bus.Worker, "h1"), Apps: []string{"shipping"}},
		{User: "shop", As: as("default", bus.Client, "shop")},
	}
	text, err := natsbus.ServerConfig(grants)
	must(t, err)
	path := filepath.Join(t.TempDir(), "nats.conf")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	for _, g := range grants {
		t.Setenv(natsbus.PasswordVariable(g.User), "secretof"+g.User[:1])
	}
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	o.Host, o.Port, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, t.TempDir(), true, true
	s, err := server.NewServer(o)
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	come := func(p bus.Principal, user, password string) (*natsbus.Bus, error) {
		b, err := natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: p, User: user, Password: password})
		if err == nil {
			t.Cleanup(func() { _ = b.Close() })
		}
		return b, err
	}
	leader, err := come(node, "node", "secretofn")
	must(t, err)
	must(t, leader.Serve(t.Context(), bus.ServiceStore, func(_ context.Context, _ bus.Principal, b []byte) ([]byte, error) { return b, nil }))
	queue, err := leader.Open(within(t), 1)
	must(t, err)
	if most := leader.Limit(); most < 7<<20 {
		t.Errorf("a message may have %d bytes", most)
	}
	for app, come := range map[string]func() (*natsbus.Bus, error){
		"billing.eu": func() (*natsbus.Bus, error) {
			return come(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w7", App: "billing.eu"}, "worker-billing.eu", "secretofw")
		},
		"shipping": func() (*natsbus.Bus, error) {
			return come(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "h1", App: "shipping"}, "worker-h1", `a "b" \c $D`)
		},
	} {
		must(t, leader.Offer(within(t), queue, bus.Lane{Tenant: "default", App: app}, []bus.Offer{{ID: jobs.NewID(time.Now()), Attempt: 1, Key: "k"}}))
		b, err := come()
		must(t, err)
		_, err = b.Call(within(t), bus.ServiceStore, nil)
		must(t, err)
		_, done, err := b.Take(within(t), queue, bus.Lane{Tenant: "default", App: app}, 1)
		must(t, err)
		done()
		b, err = natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: "h1", App: "payroll"}, User: "worker-h1", Password: `a "b" \c $D`})
		must(t, err)
		defer b.Close()
		if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the worker of %s speaks for another app: %v", app, err)
		}
		if _, _, err := b.Take(within(t), queue, bus.Lane{Tenant: "default", App: "payroll"}, 1); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the worker of %s takes from another app: %v", app, err)
		}
	}
	shop, err := come(as("default", bus.Client, "shop"), "shop", "secretofs")
	must(t, err)
	_, err = shop.Call(within(t), bus.ServiceStore, nil)
	must(t, err)
	other, err := come(as("default", bus.Client, "other"), "shop", "secretofs")
	must(t, err)
	if _, err := other.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("a client under another name: %v", err)
	}
	if _, err := come(node, "", ""); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := come(node, "node", "wrong"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("with a wrong password: %v", err)
	}
}
