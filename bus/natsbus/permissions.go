package natsbus

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// AnyName is the name of a principal that may take any name of its role and tenant: many workers that share a user.
// They can then speak for each other.
const AnyName = "*"

// Subjects are what a user may use and what, of that, he may not, in the notation of a NATS server's configuration.
type Subjects struct {
	Allow []string
	Deny  []string
}

// Permission is what a user of a NATS server may do.
type Permission struct {
	Publish   Subjects
	Subscribe Subjects
}

// Permissions are what the server must allow the user that a principal connects as, and no more. They are what makes
// a principal true: it is read from the subject of what he sends.
//
// A worker speaks for these apps and takes their offers only. Without any it may say of which it is, and take offers of
// all apps and (since a consumer's name is one token of a subject) of all tenants: it sees their ids and keys, and can
// claim none of those of other tenants.
func Permissions(p bus.Principal, apps ...string) Permission {
	never := []string{"$SYS.>"}
	if p.Role == bus.Node {
		return Permission{Publish: Subjects{Allow: []string{">"}, Deny: never}, Subscribe: Subjects{Allow: []string{">"}, Deny: never}}
	}
	tenant, role, name := token(string(p.Tenant)), token(string(p.Role)), token(p.Name)
	if p.Name == AnyName {
		name = "*"
	}
	self := tenant + "." + role + "." + name
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
	var say, hear []string
	for _, app := range of {
		say = append(say, "call."+self+"."+app+".*", "signal."+tenant+".*.*."+self+"."+app)
		hear = append(hear, "inbox."+self+"."+app+".>")
	}
	can := Permission{
		Publish: Subjects{
			Allow: say,
			// Only a control plane ends what others run, and makes or deletes streams.
			Deny: append([]string{"signal.*." + token(string(bus.TopicCancel)) + ".>", "$JS.API.STREAM.>"}, never...),
		},
		Subscribe: Subjects{
			Allow: append(hear, "signal."+tenant+".>"),
			// What handlers log, which offers go back, and what nodes say of themselves is for nodes.
			Deny: append([]string{"signal.*." + token(string(bus.TopicLog)) + ".>", "signal.*." + token(string(bus.TopicBack)) + ".>",
				"signal.*." + token(string(bus.TopicNode)) + ".>"}, never...),
		},
	}
	if p.Role != bus.Worker {
		return can
	}
	// The answer to a list handed over goes to a node's inbox. Whoever writes there without having been asked is not
	// heard: he would have to guess the inbox. The server's own permission to answer (allow_responses) would be wider: it
	// overrides what is denied, and whoever signals a worker chooses the subject of the answer, so two of them together
	// could write anywhere.
	can.Publish.Allow = append(can.Publish.Allow, "inbox.*."+token(string(bus.Node))+".>")
	for _, app := range apps {
		can.Publish.Allow = append(can.Publish.Allow, pullsOf(consumerName(p.Tenant, app))...)
		can.Subscribe.Allow = append(can.Subscribe.Allow, lanesOf(tenant, token(app), p.Name)...)
	}
	if len(apps) == 0 {
		can.Publish.Allow = append(can.Publish.Allow, pullsOf("*")...)
		can.Subscribe.Allow = append(can.Subscribe.Allow, lanesOf(tenant, "*", p.Name)...)
	}
	return can
}

// lanesOf are the personal lanes of a principal's workers: of each of its starts, and of its bare name.
func lanesOf(tenant, app, name string) []string {
	to := "to." + tenant + "." + app + "."
	if name == AnyName {
		return []string{to + "*.*"}
	}
	lanes := []string{to + token(name) + ".*"}
	if bare, start := bus.CutWorker(name); start != "" {
		lanes = append(lanes, to+token(bare)+"."+token(start))
	}
	return lanes
}

// pullsOf are the subjects on which one asks a consumer for offers, and tells it what became of them. Servers have
// two forms of the latter.
func pullsOf(consumer string) []string {
	return []string{
		"$JS.API.CONSUMER.MSG.NEXT.*." + consumer,
		"$JS.ACK.*." + consumer + ".>",
		"$JS.ACK.*.*.*." + consumer + ".>",
	}
}

// Grant is a user of a server: who he is to it, and to us.
type Grant struct {
	User, Password string
	As             bus.Principal
	Apps           []string // of a worker, which says one of them; none = any
}

// Permission is what the user may do.
func (g Grant) Permission() Permission { return Permissions(g.As, g.Apps...) }

// Check says what a grant lacks, or nil.
func (g Grant) Check() error {
	switch {
	case g.User == "" || g.Password == "":
		return jobs.Invalid("user %q: a user and a password are needed", g.User)
	case g.As.Role != bus.Node && g.As.Role != bus.Worker && g.As.Role != bus.Client:
		return jobs.Invalid("user %q has the role %q: node, worker and client are roles", g.User, g.As.Role)
	case g.As.Name == "":
		return jobs.Invalid("user %q has no name: give one, or %q for any", g.User, AnyName)
	}
	return nil
}
