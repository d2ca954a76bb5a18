package natsbus

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Whoever connects says who it is in the connection's name, which is also how operators see it. A token says which
// tenant and role; which of its many workers or clients this is, and for a worker which app's, is the connection's
// own word. A server that lets users in by tokens (package embedded) takes it, and grants the permissions of exactly
// that one.

const introduced = "carillon"

// introduction is the name of a connection: "carillon worker:default/billing.h1 of billing".
func introduction(as bus.Principal) string {
	s := introduced + " " + string(as.Role) + ":" + string(as.Tenant) + "/" + as.Name
	if as.App != "" {
		s += " of " + as.App
	}
	return s
}

// Introduced is what a connection's name says about who it is. A name that this package has not written says
// nothing: false.
func Introduced(connection string) (as bus.Principal, ok bool) {
	words := strings.Split(connection, " ")
	if len(words) != 2 && (len(words) != 4 || words[2] != "of") || words[0] != introduced {
		return bus.Principal{}, false
	}
	role, rest, _ := strings.Cut(words[1], ":")
	tenant, name, _ := strings.Cut(rest, "/")
	if kernel.CheckName("tenant", tenant) != nil || kernel.CheckName("name", name) != nil {
		return bus.Principal{}, false
	}
	app := ""
	if len(words) == 4 {
		if app = words[3]; kernel.CheckName("app", app) != nil {
			return bus.Principal{}, false
		}
	}
	return bus.Principal{Tenant: jobs.Tenant(tenant), Role: bus.Role(role), Name: name, App: app}, true
}

// refusedBy makes a refusal of what a server says that does not let us in.
func refusedBy(err error) error {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
		return kernel.Refuse(jobs.Forbidden, "%v: the server does not let this token or user in: it is missing or wrong, "+
			"its time is over, it was revoked, or it is for another app", err)
	}
	if errors.Is(err, nats.ErrNoServers) {
		return kernel.Refuse(jobs.Unavailable, "nothing answers (%v)", err)
	}
	return err
}
