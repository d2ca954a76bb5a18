package embed

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
)

// road connects processes that share only a database. Each has a NATS server, of which the leader's listens; the
// database says where, and every process connects there. One that cannot, or before there is a leader, is connected to
// its own server, where nothing answers: its requests then go through the database.
type road struct {
	store    *sqlstore.Store
	server   *embedded.Server
	token    string // by which this process connects to others
	host     string // of this process, for others; "" = where the server listens
	local    string // the address by which this machine reaches the database
	log      *slog.Logger
	episodes *episode.Log
	stop     context.CancelFunc
	watching sync.WaitGroup

	mu    sync.Mutex
	leads bool
	out   bool           // connections go to the leader's server, and not to this process's
	since time.Time      // when they began to, or when the last of them was there
	rest  time.Time      // when they may be tried again that could not be made
	known sqlstore.Road  // announced by the leader
	buses []*natsbus.Bus // the first one is the node's

	services map[string]*bus.Handler // that this process serves, as the leader
}

const (
	roadPoll = 250 * time.Millisecond  // how often a process looks for the leader's bus while it is not connected
	roadLook = time.Second             // and while it is; and a leader at its certificate
	roadStay = 15 * time.Second        // how often a process renews the permission of its token
	roadLost = 1500 * time.Millisecond // how long it tries to connect to a leader's bus before it does without
	roadRest = 10 * time.Second        // and then does without, although it answers
	roadOpen = 2 * time.Second         // how long a new leader waits for its own connection
	roadEnd  = 500 * time.Millisecond  // and a former one for the database
)

// openRoad opens a process's way to others. server is its NATS server, started shut; nil = one is made for it.
func openRoad(ctx context.Context, cfg Config, store *sqlstore.Store, admit func(context.Context, string) error) (*road, error) {
	r := &road{store: store, server: cfg.Server, token: natsbus.PeerToken + rand.Text(), host: cfg.Advertise, local: store.LocalHost(), log: cfg.Logger, episodes: episode.New(cfg.Logger), services: map[string]*bus.Handler{}}
	own := r.server == nil
	listen := r.local
	if r.host != "" {
		listen = "0.0.0.0" // it may be the address of any interface; the token and the certificate protect it
	}
	if own {
		secure, err := embedded.SelfSigned()
		if err != nil {
			return nil, err
		}
		r.server, err = embedded.Start(embedded.Config{Name: cfg.Node, Host: listen, Shut: true, TLS: secure, Admit: refuseAll, Peers: admit, Logger: cfg.Logger})
		if err != nil {
			return nil, err
		}
	}
	if err := r.stay(ctx); err != nil {
		if own {
			err = errors.Join(err, r.server.Stop())
		}
		return nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = func() {
		stop()
		r.watching.Wait()
		r.episodes.Reset()
		if own {
			_ = r.server.Stop()
		}
	}
	r.turn(ctx)
	r.watching.Go(func() { r.watch(watching) })
	return r, nil
}

// refuseAll admits no token: the server is for processes of one program.
func refuseAll(context.Context, string) (bus.Principal, string, error) {
	return bus.Principal{}, "", kernel.Refuse(jobs.Forbidden, "this server is for the processes of one program")
}

// AdmitPeer returns nil for the token of a process with the same Database: for Config.Server. Refused as
// jobs.Forbidden.
func (s *Scheduler) AdmitPeer(ctx context.Context, token string) error {
	if s.database == nil {
		return kernel.Refuse(jobs.Forbidden, "this node has no database")
	}
	_, err := s.database.Peer(ctx, token)
	return err
}

// connect opens a bus that goes to the leader, whichever process that is.
func (r *road) connect(ctx context.Context, as bus.Principal) (bus.Bus, error) {
	before := r.outside()
	b, err := natsbus.Connect(ctx, "", natsbus.Config{As: as, Logger: r.log, Way: r.way})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buses = append(r.buses, b)
	if r.out != before {
		redial(b) // it may have gone where the way led before
	}
	return &roadBus{b, r, as}, nil
}

// way leads to the leader's server, or to that of this process.
func (r *road) way() (natsbus.Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out {
		return natsbus.Place{Address: r.known.Address, Token: r.token, Certificate: r.known.Certificate}, nil
	}
	return natsbus.Place{Inside: r.server}, nil
}

// watch looks for the leader's bus until ctx ends.
func (r *road) watch(ctx context.Context) {
	tick := time.NewTicker(roadPoll)
	defer tick.Stop()
	looked, stayed := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		settled, since := r.settled(), time.Since(stayed)
		// Not connected, its token may be the reason: a database that has lost its end does not know it.
		if (since >= roadStay || since >= roadLook && !settled) && r.stay(ctx) == nil {
			stayed = time.Now()
		}
		if !settled || time.Since(looked) >= roadLook {
			looked = time.Now()
			r.turn(ctx)
		}
	}
}

// turn reads where the leader's bus is, and connects there if it can.
func (r *road) turn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	now, err := r.store.Announced(ctx)
	if err != nil {
		return // it stays as it was
	}
	r.mu.Lock()
	was := r.known
	r.known = now
	moved := now.Term != was.Term || now.Address != was.Address // another certificate is for the next connection
	lost := r.out && !moved && r.lost()
	stay := r.leads || now.Term == 0 && !r.out || r.out && !moved && !lost || !moved && time.Now().Before(r.rest)
	r.mu.Unlock()
	if stay {
		return
	}
	// The library holds a lock while it connects, so that all else would wait for an address that does not answer.
	reached := now.Term > 0 && !lost && answers(ctx, now.Address)
	if reached {
		_ = r.stay(ctx) // a database that was replaced may not know the token; if this fails, the next time does it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if lost {
		r.rest = time.Now().Add(roadRest)
	}
	if !r.leads && (reached || r.out) {
		r.out, r.since = reached, time.Now()
		redial(r.buses...)
	}
}

// stay lets this process connect to others by its token.
func (r *road) stay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return r.store.StayPeer(ctx, r.token)
}

// outside reports whether connections go to the leader's server.
func (r *road) outside() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out
}

// answers reports whether a server answers at an address.
func answers(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, natsbus.ReachTime)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// lost reports whether the node's bus has not reached the leader's server for too long. mu is locked.
func (r *road) lost() bool {
	if len(r.buses) > 0 && !r.buses[0].Connected() {
		return time.Since(r.since) > roadLost
	}
	r.since = time.Now()
	return false
}

// redial has connections go where the way leads now. It waits for none: the library may hold a lock while it asks for
// the way, which takes the road's lock.
func redial(all ...*natsbus.Bus) {
	for _, b := range all {
		go b.Redial()
	}
}

// settled reports whether this process is connected to the leader's server, or is the leader.
func (r *road) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads || !r.out {
		return r.leads
	}
	for _, b := range r.buses {
		if !b.Connected() {
			return false
		}
	}
	r.since = time.Now()
	return true
}

// blocked reports whether there is a leader that this process is not connected to.
func (r *road) blocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads || r.out || r.known.Term == 0 {
		r.episodes.End("", "the leader's bus cannot be reached, requests go through the database")
		return false
	}
	r.episodes.Failed(slog.LevelWarn, "", "the leader's bus cannot be reached, requests go through the database", "node", r.known.Node, "address", r.known.Address)
	return true
}

// open makes this process's server that of all processes, for a term; shut ends that.
func (r *road) open(ctx context.Context, term uint64) (shut func(), err error) {
	if err := r.server.Unlock(); err != nil {
		return nil, err
	}
	place, err := r.server.Place(r.host, r.local)
	if err != nil {
		return nil, errors.Join(err, r.server.Lock())
	}
	announced := sqlstore.Road{Term: term, Node: r.store.Node(), Address: place.Address, Certificate: place.Certificate}
	r.lead(true)
	closed := func() {
		r.lead(false) // which Lock makes the connections notice
		if err := r.server.Lock(); err != nil {
			r.log.Error("the bus was not closed", "err", err)
		}
	}
	if err := r.settle(ctx); err != nil {
		closed()
		return nil, err
	}
	if err := r.store.Announce(ctx, announced); err != nil {
		closed()
		return nil, err
	}
	r.log.Info("the bus is open", "address", place.Address)
	renewing, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	renewed := make(chan struct{})
	work.Go(func() { defer close(renewed); r.renew(renewing, announced) })
	work.Go(func() { r.store.Answer(renewing, r.answer) })
	return sync.OnceFunc(func() {
		stop()
		work.Go(func() {
			<-renewed // or it would announce the address again
			r.withdraw(ctx, term)
		})
		closed()
		work.Wait()
	}), nil
}

// withdraw spares other processes an address that does not answer any more.
func (r *road) withdraw(ctx context.Context, term uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roadEnd)
	defer cancel()
	_ = r.store.Withdraw(ctx, term) // they notice that it does not answer
}

// lead notes whether this process leads, and has its connections come here.
func (r *road) lead(here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads = here; r.out {
		r.out = false
		redial(r.buses...)
	}
}

// settle waits for the node's own connection, on which the control plane works. Other connections are of workers, those
// of HTTP workers among them: a leader needs them no more than those of workers elsewhere, which come by themselves.
func (r *road) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roadOpen)
	defer cancel()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for !r.inside() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("connect to the bus of this process: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// inside reports whether the node's connection goes to this process's own server.
func (r *road) inside() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.buses) == 0 || r.buses[0].Inside()
}

// renew announces a leader's certificate again when it has another.
func (r *road) renew(ctx context.Context, announced sqlstore.Road) {
	tick := time.NewTicker(roadLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		place, err := r.server.Place(r.host, r.local)
		if err != nil || bytes.Equal(place.Certificate, announced.Certificate) {
			continue
		}
		next := announced
		next.Certificate = place.Certificate
		if r.store.Announce(ctx, next) == nil {
			announced = next
		}
	}
}

// answer answers a request that came through the database.
func (r *road) answer(ctx context.Context, service string, from bus.Principal, request []byte) ([]byte, error) {
	r.mu.Lock()
	fn := r.services[service]
	r.mu.Unlock()
	if fn == nil {
		return nil, kernel.Refuse(jobs.Unavailable, "the leader does not serve %.40q now", service)
	}
	return (*fn)(ctx, from, request)
}

// reaches returns nil if this process can connect to the leader's bus, or is the leader.
func (r *road) reaches() error {
	if r.blocked() {
		return kernel.Refuse(jobs.Unavailable, "this node cannot connect to the bus of the leader: send the request to the leader")
	}
	return nil
}

// leader is the process that has announced its bus last.
func (r *road) leader() sqlstore.Road {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// roadBus is a bus on the road.
type roadBus struct {
	*natsbus.Bus
	road *road
	as   bus.Principal
}

// Close ends the connection.
func (b *roadBus) Close() error {
	b.road.mu.Lock()
	b.road.buses = slices.DeleteFunc(b.road.buses, func(o *natsbus.Bus) bool { return o == b.Bus })
	b.road.mu.Unlock()
	return b.Bus.Close()
}

// throughDatabase are the services that a node reaches through the database, too.
var throughDatabase = []string{bus.ServiceStore, bus.ServiceLive, bus.ServiceCluster}

// Call asks over the bus, or through the database if the bus cannot be reached.
func (b *roadBus) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	answer, err := b.Bus.Call(ctx, service, request)
	if !errors.Is(err, bus.ErrNoReceiver) || b.as.Role != bus.Node || !slices.Contains(throughDatabase, service) || !b.road.blocked() {
		return answer, err
	}
	return b.road.store.Ask(ctx, service, request)
}

// Serve answers calls, and those that come through the database.
func (b *roadBus) Serve(ctx context.Context, service string, fn bus.Handler) error {
	if err := b.Bus.Serve(ctx, service, fn); err != nil {
		return err
	}
	if slices.Contains(throughDatabase, service) {
		b.road.mu.Lock()
		defer b.road.mu.Unlock()
		b.road.services[service] = &fn
		context.AfterFunc(ctx, func() {
			b.road.mu.Lock()
			defer b.road.mu.Unlock()
			if b.road.services[service] == &fn { // and not that of a later term
				delete(b.road.services, service)
			}
		})
	}
	return nil
}

// opening opens the road while this process leads.
type opening struct {
	controlplane.Elector
	road *road
}

func (o opening) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	return o.Elector.Lead(ctx, func(ctx context.Context, term uint64) error {
		shut, err := o.road.open(ctx, term)
		if err != nil {
			o.road.episodes.Failed(slog.LevelWarn, "", "the bus of this process was not opened", "err", err)
			return replica.ErrAgain
		}
		o.road.episodes.End("", "the bus of this process was not opened")
		defer shut()
		// A duty that does not end must not keep workers here: another node may lead.
		defer context.AfterFunc(ctx, func() { time.AfterFunc(roadEnd, shut) })()
		return lead(ctx, term)
	})
}
