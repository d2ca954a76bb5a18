package natsbus

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// AnyName is the name of a principal that may take any name of its role and tenant: many workers that share a user.
// They can then act for each other.
const AnyName = "*"

// Subjects are what a user may use and what, of that, it may not, in the notation of a NATS server's configuration.
type Subjects struct {
	Allow []string
	Deny  []string
}

// Permission is what a user of a NATS server may do.
type Permission struct {
	Publish   Subjects
	Subscribe Subjects
}

// Permissions are what the server must allow the user that a principal connects as, and no more: the table at the head
// of subjects.go, for one principal. They make principals true: the sender is read from the subject.
//
// A worker acts for these apps only. Without any it may choose its app.
func Permissions(p bus.Principal, apps ...string) Permission {
	never := []string{"$SYS.>"}
	if p.Role == bus.Node {
		return Permission{Publish: Subjects{Allow: []string{">"}, Deny: never}, Subscribe: Subjects{Allow: []string{">"}, Deny: never}}
	}
	tenant, name := token(string(p.Tenant)), token(p.Name)
	if p.Name == AnyName {
		name = "*"
	}
	of := []string{none}
	if p.Role == bus.Worker {
		of = nil
		for _, app := range apps {
			of = append(of, token(app))
		}
		if len(apps) == 0 {
			of = []string{"*"}
		}
	}
	can := Permission{Publish: Subjects{Deny: never}, Subscribe: Subjects{Deny: never}}
	publish, subscribe := &can.Publish.Allow, &can.Subscribe.Allow
	for _, app := range of {
		self := tenant + "." + token(string(p.Role)) + "." + name + "." + app
		*publish = append(*publish, callRoot+"."+self+".*")
		*subscribe = append(*subscribe, inboxRoot+"."+self+".>")
		for _, t := range bus.Topics() {
			if t.MaySend(p.Role) {
				*publish = append(*publish, signalRoot+"."+tenant+"."+token(string(t))+".*."+self)
			}
		}
	}
	for _, t := range bus.Topics() {
		if t.MayReceive(p.Role) {
			*subscribe = append(*subscribe, signalRoot+"."+tenant+"."+token(string(t))+".>")
		}
	}
	if p.Role != bus.Worker {
		return can
	}
	// Answers to pushes have subjects of the worker's own. The server's permission to answer (allow_responses) would be
	// wider: it overrides what is denied, and covers any reply subject of a request.
	for _, app := range of {
		for _, address := range addressesOf(tenant, app, p.Name) {
			*subscribe = append(*subscribe, pushRoot+"."+address)
			*publish = append(*publish, answerRoot+"."+address+".*.*")
		}
	}
	return can
}

// addressesOf are the addresses of a principal's workers: of each of its starts, and of its bare name.
func addressesOf(tenant, app, name string) []string {
	of := tenant + "." + app + "."
	if name == AnyName {
		return []string{of + "*.*"}
	}
	all := []string{of + token(name) + ".*"}
	if bare, start := bus.CutWorker(name); start != "" {
		all = append(all, of+token(bare)+"."+token(start))
	}
	return all
}

// Grant is a user of a server: its name there, and its principal.
type Grant struct {
	User, Password string
	As             bus.Principal
	Apps           []string // of a worker, which chooses one of them; none = any
}

// Permission returns what the user may do.
func (g Grant) Permission() Permission { return Permissions(g.As, g.Apps...) }

// Check returns what a grant lacks, or nil.
func (g Grant) Check() error {
	switch {
	case g.User == "" || g.Password == "":
		return kernel.Invalid("user %q: a user and a password are needed", g.User)
	case g.As.Role != bus.Node && g.As.Role != bus.Worker && g.As.Role != bus.Client:
		return kernel.Invalid("user %q has the role %q: node, worker and client are roles", g.User, g.As.Role)
	case g.As.Name == "":
		return kernel.Invalid("user %q has no name: give one, or %q for any", g.User, AnyName)
	}
	return nil
}
