package embedded

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Admit authenticates a token: tenant and role of the principal, and for a worker the app that it is limited to, "" for
// any. Unknown and revoked tokens it refuses as jobs.Forbidden; any other error means that it cannot decide now.
type Admit func(ctx context.Context, token string) (as bus.Principal, app string, err error)

const (
	// lookAgain is the interval of checking every session's token again. A revoked token's connections end after that
	// time and the check's: within a second.
	lookAgain = 400 * time.Millisecond
	// looksAtOnce is how many tokens are checked again at the same time.
	looksAtOnce = 16
	// patience is how long it waits for an answer, and so for a store that is just starting. See longest, too.
	patience = 1500 * time.Millisecond
	// authTimeout is how long a connection may take to authenticate, and we to check that.
	authTimeout = 5 * time.Second
)

// authenticator authenticates connections to a server by their tokens. It is a [server.Authentication].
//
// A session's identity has three sources: the token carries tenant, role and perhaps app; the connection's name carries
// which of them it is and, for a worker, of which app (see natsbus.Introduced). The session gets the permissions of
// exactly that principal, whose app is in the subjects that it may use: so every receiver knows the identity from the
// subject, and no server has to remember or to be asked.
type authenticator struct {
	admit  Admit
	peers  func(ctx context.Context, token string) error // nil = there are none
	secret string                                        // of our own process
	log    *slog.Logger
	logins logins
	denied func(from string, err error) // nil = it is only logged

	connections connections

	mu       sync.Mutex
	sessions map[uint64]session  // by the number of the connection
	looks    map[string]struct{} // tokens that are being checked again
}

// connections are those of a server, by their numbers.
type connections interface {
	has(id uint64) bool
	end(id uint64)
}

// of returns the connections of the current server.
type of struct{ *atomic.Pointer[server.Server] }

func (s of) has(id uint64) bool { return s.Load().GetClient(id) != nil }

func (s of) end(id uint64) { _ = s.Load().DisconnectClientByID(id) } // it may have gone by itself

type session struct {
	as    bus.Principal
	token string
	from  string
}

func newAuthenticator(admit Admit, log *slog.Logger, nats *atomic.Pointer[server.Server]) *authenticator {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &authenticator{admit: admit, secret: rand.Text(), log: log, logins: newLogins(), connections: of{nats},
		sessions: map[uint64]session{}, looks: map[string]struct{}{}}
}

// ours reports whether a connection is our own process's.
func (d *authenticator) ours(from, secret string) bool {
	return from == "" && subtle.ConstantTimeCompare([]byte(secret), []byte(d.secret)) == 1
}

// Check accepts a session, or not. The server calls it in the connection's own goroutine.
func (d *authenticator) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	from := addressOf(c.RemoteAddress())
	switch {
	case d.ours(from, o.Token):
		c.RegisterUser(&server.User{Permissions: permissions(natsbus.Permissions(bus.Principal{Role: bus.Node}))})
		return true
	case d.known(c.GetID()):
		return true // the server has reloaded its options and asks again; watch checks the token
	}
	if !d.logins.begin(from) {
		return false
	}
	defer d.logins.end(from)
	g, err := d.ask(c.GetID(), from, o)
	if err != nil {
		if d.logins.logs(from) {
			d.log.Warn("bus connection refused", "address", from, "name", cut(o.Name), "err", err)
		}
		if !errors.Is(err, jobs.Forbidden) {
			d.connections.end(c.GetID()) // without an error: its token may be right
			return false
		}
		if d.denied != nil {
			d.denied(from, err)
		}
		time.Sleep(d.logins.failed(from)) // delays no other: the connection has this goroutine to itself
		return false
	}
	var apps []string
	if g.as.Role == bus.Worker {
		apps = []string{g.as.App}
	}
	// The user has no name: a server that reloads its options (see closeInvalid) closes the connections of named users
	// that these do not list.
	c.RegisterUser(&server.User{Permissions: permissions(natsbus.Permissions(g.as, apps...))})
	d.log.Debug("bus connection admitted", "address", from, "actor", g.as.Actor(), "tenant", g.as.Tenant, "app", g.as.App)
	return true
}

// isPeer reports whether a token is for another node, right or wrong.
func (d *authenticator) isPeer(token string) bool {
	return d.peers != nil && strings.HasPrefix(token, natsbus.PeerToken)
}

// check asks once which principal a token has: see Admit.
func (d *authenticator) check(ctx context.Context, token string) (as bus.Principal, app string, err error) {
	if d.isPeer(token) {
		return bus.Principal{Role: bus.Node}, "", d.peers(ctx, token)
	}
	return d.admit(ctx, token)
}

// known reports whether a connection was authenticated before.
func (d *authenticator) known(id uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.sessions[id]
	return is
}

// ask authenticates a connection, and records it.
func (d *authenticator) ask(id uint64, from string, o *server.ClientOpts) (session, error) {
	token := o.Token
	if token == "" {
		token = o.Password
	}
	if token == "" {
		return session{}, kernel.Refuse(jobs.Forbidden, "no token is given")
	}
	as, app, err := d.authenticate(token)
	if err != nil {
		return session{}, err
	}
	if d.isPeer(token) {
		return d.record(id, session{as: as, token: token, from: from}), nil
	}
	self, introduced := natsbus.Introduced(o.Name)
	switch {
	case introduced && self.Role != as.Role:
		return session{}, kernel.Refuse(jobs.Forbidden, "a token for a %s cannot be used by a %.20s", as.Role, self.Role)
	case introduced && self.Tenant != as.Tenant:
		return session{}, kernel.Refuse(jobs.Forbidden, "a token of tenant %s cannot be used in tenant %.40s", as.Tenant, self.Tenant)
	case introduced:
		as.Name = self.Name
	default:
		as.Name = o.Username // some other program's connection
	}
	if as.Role != bus.Worker && as.Role != bus.Client {
		return session{}, kernel.Refuse(jobs.Forbidden, "a token of role %s may not use the bus: use a worker's or a client's token", as.Role)
	}
	if err := kernel.CheckName("name of the connection", as.Name); err != nil {
		return session{}, kernel.Refuse(jobs.Forbidden, "%v", err)
	}
	if as.Role == bus.Worker {
		switch {
		case app == "":
			app = self.App
		case self.App != "" && self.App != app:
			return session{}, kernel.Refuse(jobs.Forbidden, "the token is for workers of app %s, and this one is of %s", app, self.App)
		}
		if app == "" {
			return session{}, kernel.Refuse(jobs.Forbidden, "the connection names no app for its worker, and the token is for any app")
		}
		as.App = app
	}
	return d.record(id, session{as: as, token: token, from: from}), nil
}

// record has watch check a session's token.
func (d *authenticator) record(id uint64, g session) session {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[id] = g
	return g
}

// authenticate asks which principal a token has. A store that is just starting has a moment to answer.
func (d *authenticator) authenticate(token string) (as bus.Principal, app string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		as, app, err = d.check(ctx, token)
		if err == nil || jobs.CodeOf(err) != jobs.Unavailable {
			return as, app, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return as, app, err
		}
	}
}

// clear forgets all sessions: the server that numbered their connections is gone.
func (d *authenticator) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.sessions)
}

// watch checks every session's token regularly, until stop is closed, and ends the connections of those that are not
// valid any more.
func (d *authenticator) watch(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	places := make(chan struct{}, looksAtOnce)
	var looks sync.WaitGroup
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			cancel()
			looks.Wait()
			return
		case now := <-tick.C:
			for _, token := range d.due() {
				looks.Go(func() {
					defer d.looked(token)
					select {
					case places <- struct{}{}:
						d.look(ctx, token)
						<-places
					case <-ctx.Done():
					}
				})
			}
			d.logins.forget(now)
		}
	}
}

// due returns the tokens of all sessions, but for those whose check still runs: one slow check must not delay the
// others.
func (d *authenticator) due() (tokens []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, g := range d.sessions {
		if !d.connections.has(id) {
			delete(d.sessions, id)
			continue
		}
		if _, looks := d.looks[g.token]; !looks {
			d.looks[g.token] = struct{}{}
			tokens = append(tokens, g.token)
		}
	}
	return tokens
}

func (d *authenticator) looked(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.looks, token)
}

// look checks a token, and ends its connections if it is not valid any more. A token that cannot be checked now counts
// as valid: an outage of the store must not empty the bus.
func (d *authenticator) look(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, _, err := d.check(ctx, token); !errors.Is(err, jobs.Forbidden) {
		return
	}
	out := map[uint64]session{}
	d.mu.Lock()
	for id, g := range d.sessions {
		if g.token == token {
			out[id] = g
			delete(d.sessions, id)
		}
	}
	d.mu.Unlock()
	for id, g := range out {
		d.connections.end(id)
		d.log.Warn("bus connection closed: its token was revoked or has expired", "address", g.from, "actor", g.as.Actor(), "tenant", g.as.Tenant)
	}
}

func permissions(can natsbus.Permission) *server.Permissions {
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: can.Publish.Allow, Deny: can.Publish.Deny},
		Subscribe: &server.SubjectPermission{Allow: can.Subscribe.Allow, Deny: can.Subscribe.Deny},
	}
}

// addressOf returns the machine at the other end, or "" for our own process.
func addressOf(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return ""
	}
	if tcp.IP.To4() == nil { // IPv6: a machine has a network of addresses
		return tcp.IP.Mask(net.CIDRMask(64, 128)).String() + "/64"
	}
	return tcp.IP.String()
}

// cut makes a stranger's text fit for a log: it may be a token.
func cut(s string) string { return redact(s[:min(len(s), 100)]) }
