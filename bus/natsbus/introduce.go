package natsbus

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A connection's name carries its identity, which is also how operators see it. A token carries tenant and role; which
// of its many workers or clients this is, and for a worker which app's, only the connection claims. A server that
// authenticates by tokens (package embedded) accepts that, and grants the permissions of exactly that one.

const introduced = "carillon"

// introduction returns the name of a connection: "carillon worker:default/billing.h1 of billing".
func introduction(as bus.Principal) string {
	s := introduced + " " + string(as.Role) + ":" + string(as.Tenant) + "/" + as.Name
	if as.App != "" {
		s += " of " + as.App
	}
	return s
}

// Introduced returns the identity in a connection's name. false: this package has not written the name.
func Introduced(connection string) (as bus.Principal, ok bool) {
	fields := strings.Split(connection, " ")
	if len(fields) != 2 && (len(fields) != 4 || fields[2] != "of") || fields[0] != introduced {
		return bus.Principal{}, false
	}
	role, rest, _ := strings.Cut(fields[1], ":")
	tenant, name, _ := strings.Cut(rest, "/")
	if kernel.CheckName("tenant", tenant) != nil || kernel.CheckName("name", name) != nil {
		return bus.Principal{}, false
	}
	app := ""
	if len(fields) == 4 {
		if app = fields[3]; kernel.CheckName("app", app) != nil {
			return bus.Principal{}, false
		}
	}
	return bus.Principal{Tenant: jobs.Tenant(tenant), Role: bus.Role(role), Name: name, App: app}, true
}

// refusedBy makes a refusal of an error of the server's authentication.
func refusedBy(err error) error {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
		return kernel.Refuse(jobs.Forbidden, "%v: the token or user is missing, wrong, expired, revoked, or for another app", err)
	}
	if errors.Is(err, nats.ErrNoServers) {
		return kernel.Refuse(jobs.Unavailable, "nothing answers (%v)", err)
	}
	return err
}
