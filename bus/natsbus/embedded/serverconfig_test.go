package embedded_test

import (
	"context"
	"errors"
	"testing"

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
	for _, g := range grants {
		t.Setenv(natsbus.PasswordVariable(g.User), "secretof"+g.User[:1])
	}
	s := configured(t, grants)
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
	if most := leader.Limit(); most < 7<<20 {
		t.Errorf("a message may have %d bytes", most)
	}
	for at, come := range map[bus.Address]func() (*natsbus.Bus, error){
		{Tenant: "default", App: "billing.eu", Worker: "w7"}: func() (*natsbus.Bus, error) {
			return come(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w7", App: "billing.eu"}, "worker-billing.eu", "secretofw")
		},
		{Tenant: "default", App: "shipping", Worker: "h1"}: func() (*natsbus.Bus, error) {
			return come(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "h1", App: "shipping"}, "worker-h1", `a "b" \c $D`)
		},
	} {
		b, err := come()
		must(t, err)
		_, err = b.Call(within(t), bus.ServiceStore, nil)
		must(t, err)
		must(t, b.Accept(t.Context(), at, same))
		_, err = leader.Push(within(t), at, nil)
		must(t, err)
		b, err = natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: "h1", App: "payroll"}, User: "worker-h1", Password: `a "b" \c $D`})
		must(t, err)
		defer b.Close()
		if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the worker of %v speaks for another app: %v", at, err)
		}
		if err := b.Accept(t.Context(), bus.Address{Tenant: "default", App: "payroll", Worker: "h1"}, same); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the worker of %v accepts another app's pushes: %v", at, err)
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
