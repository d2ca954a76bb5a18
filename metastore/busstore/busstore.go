// Package busstore reaches a store over a bus: [New] makes a [metastore.Store] of calls, and [Serve] answers them
// from a real one. So a worker or a program needs only the address of the bus.
//
// It is not promised to programs outside this module.
//
// It carries commands and decides only who may send them: the server takes tenant and actor from the connection and
// has a table of commands and roles (authority.go).
//
// Sharp edges. A batch too large for one message becomes several commits. A request whose answer was lost is
// repeated, so Effect.Existing may be set although the command was this caller's and new. Workers and clients get
// shorter answers than nodes (see trim).
package busstore

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	// patience is how long requests are repeated. Stores recognize repetitions for twice as long (metastore:
	// KeepFinal).
	patience = 30 * time.Second
	// attempt is how long a call of a command may take before it is sent again. After soon of them, each next one may
	// take twice as long.
	attempt, soon = 3 * time.Second, 3
	// Between calls that failed, the client waits from firstPause to longestPause, doubling.
	firstPause, longestPause = 20 * time.Millisecond, 500 * time.Millisecond
	// inFlight is how many large requests of commands one client has under way. Small ones wait for each other and
	// grow (see metastore.Group): side by side, 256 callers got only 20k to 57k commands a second instead of 90k.
	inFlight = 3
	// maxCommands is the most commands in a request, whatever its bytes.
	maxCommands = 4096
)

// store is the client's side.
type store struct {
	calls bus.Calls
	as    bus.Principal
	group *metastore.Group
	wait  time.Duration // for the first answers: attempt
	heard atomic.Pointer[peerClocks]
	plain atomic.Bool // requests no receipts: this end is a node, or the server is too old for them
}

// New makes a store of the calls of a bus. Envelopes and queries that name no tenant or actor get those of as.
// Concurrent callers of Apply share requests.
func New(calls bus.Calls, as bus.Principal) metastore.Store {
	s := &store{calls: calls, as: as, wait: attempt}
	s.plain.Store(as.Role == bus.Node)
	s.group = metastore.NewGroup(maxCommands, inFlight, s.commit)
	return s
}

// Apply sends the batch to the server, and repeats it until it is answered, ctx ends or half a minute has passed.
// Commands that no server took are then refused as jobs.Unavailable; of those that may have been taken, the outcome
// is jobs.Unknown.
func (s *store) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Checked(s.signed(batch), func(batch []kernel.Envelope) []metastore.Result { return s.group.Apply(ctx, batch) })
}

// signed fills in the actor, in a copy if need be.
func (s *store) signed(batch []kernel.Envelope) []kernel.Envelope {
	whole := true
	for i := range batch {
		whole = whole && batch[i].Tenant != "" && batch[i].Actor != ""
	}
	if whole {
		return batch
	}
	batch = append([]kernel.Envelope(nil), batch...)
	for i := range batch {
		if batch[i].Tenant == "" {
			batch[i].Tenant = s.as.Tenant
		}
		if batch[i].Actor == "" {
			batch[i].Actor = s.as.Actor()
		}
	}
	return batch
}

// commit sends one commit's commands until each has its answer. It outlives the callers, which may give up earlier:
// their commands are under way all the same.
func (s *store) commit(batch []kernel.Envelope) []metastore.Result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n := len(batch)
	d := delivery{store: s, batch: batch, open: make([]int, n), maybe: make([]bool, n)}
	for i := range d.open {
		d.open[i] = i
	}
	d.carry(ctx)
	return d.results
}

// delivery is a commit's commands on their way.
type delivery struct {
	store   *store
	batch   []kernel.Envelope
	results []metastore.Result // nil until there is one
	open    []int              // those without a final answer, in order
	maybe   []bool             // by command: it may have been done
	closed  bool               // our end of the bus: nothing more can be sent
}

// carry repeats rounds until every command is answered or time is up.
func (d *delivery) carry(ctx context.Context) {
	var p pause
	for tries := 0; ; tries++ {
		before := len(d.open)
		d.round(ctx, tries)
		if len(d.open) == 0 || d.closed {
			return
		}
		if len(d.open) < before {
			p, tries = pause{}, 0
			continue
		}
		if !p.wait(ctx) {
			return
		}
	}
}

// round sends the open commands, in as many requests as it takes. It stops at the first that is not answered, so that
// the order is kept.
func (d *delivery) round(ctx context.Context, tries int) {
	open := d.open
	d.open = nil
	for len(open) > 0 {
		plain := d.store.plain.Load()
		request, n := d.request(open, plain)
		if n == 0 {
			d.result(open[0]).Err = kernel.Invalid("the command has %d bytes on the wire, the bus carries %d", len(request), d.store.calls.RequestLimit())
			open = open[1:]
			continue
		}
		asking := time.Now()
		answers, err := d.store.call(ctx, request, tries)
		code := refusal(err)
		if code == jobs.BadInput && !plain { // most likely the server is too old for receipts
			d.store.plain.Store(true)
			continue
		}
		asked := open[:n]
		open = open[n:]
		switch {
		case err == nil:
			if err = d.answered(asked, answers, asking); err == nil {
				continue
			}
			d.doubtful(asked, kernel.OutcomeUnknown("%v", err))
		case errors.Is(err, bus.ErrNoReceiver), code == jobs.Unavailable:
			d.undone(asked, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
		case code != jobs.Unknown: // the server refused the whole request
			for _, i := range asked {
				d.result(i).Err = err
			}
			continue
		default:
			d.closed = errors.Is(err, bus.ErrClosed)
			d.doubtful(asked, kernel.OutcomeUnknown("%v", err))
		}
		d.undone(open, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
		return
	}
}

// request is the wire form of as many of the commands as one message holds; 0 of them if not even the first fits.
func (d *delivery) request(open []int, plain bool) ([]byte, int) {
	ask := askBrief
	if plain {
		ask = askApply
	}
	n := min(len(open), maxCommands)
	for {
		part := d.batch
		if n < len(d.batch) {
			part = make([]kernel.Envelope, n)
			for i := range part {
				part[i] = d.batch[open[i]]
			}
		}
		b := appendApply(make([]byte, 0, 64+160*n), ask, part)
		switch {
		case len(b) <= d.store.calls.RequestLimit():
			return b, n
		case n == 1:
			return b, 0
		}
		n /= 2
	}
}

// answered notes the answers to the commands of one request. Missing ones did not fit, and "unknown" or "unavailable"
// is no answer: both are requested again.
func (d *delivery) answered(asked []int, answers []byte, asking time.Time) error {
	results, now, err := decodeAnswers(answers, len(asked))
	if err != nil {
		return err
	}
	d.store.heard.Store(d.store.heard.Load().after(now, asking))
	if d.results == nil && len(results) == len(d.batch) && !slices.ContainsFunc(results, unanswered) {
		d.results = results // as mostly
		return nil
	}
	for k, i := range asked[:len(results)] {
		switch r := results[k]; refusal(r.Err) {
		case jobs.Unknown:
			d.doubtful(asked[k:k+1], r.Err)
		case jobs.Unavailable:
			d.undone(asked[k:k+1], r.Err)
		default:
			*d.result(i) = r
		}
	}
	d.doubtful(asked[len(results):], kernel.OutcomeUnknown("no answer arrived"))
	return nil
}

// unanswered reports whether an answer is none.
func unanswered(r metastore.Result) bool {
	code := refusal(r.Err)
	return code == jobs.Unknown || code == jobs.Unavailable
}

// result is where the answer to a command is noted.
func (d *delivery) result(i int) *metastore.Result {
	if d.results == nil {
		d.results = make([]metastore.Result, len(d.batch))
	}
	return &d.results[i]
}

// undone keeps commands open that were certainly not done this time.
func (d *delivery) undone(which []int, err error) {
	for _, i := range which {
		if !d.maybe[i] {
			d.result(i).Err = err
		}
	}
	d.open = append(d.open, which...)
}

// doubtful keeps commands open that may have been done.
func (d *delivery) doubtful(which []int, err error) {
	for _, i := range which {
		d.maybe[i], d.result(i).Err = true, err
	}
	d.open = append(d.open, which...)
}

// call sends one request. The first times it waits for a few seconds: one of the nodes may be frozen or cut off, and
// the bus keeps choosing that one in turn until it notices. Then longer: more requests do not help a loaded store.
func (s *store) call(ctx context.Context, request []byte, tries int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait<<min(max(tries+1-soon, 0), 3))
	defer cancel()
	if !verb(request[1]).commands() {
		return s.calls.Call(ctx, bus.ServiceStore, request)
	}
	until, _ := ctx.Deadline()
	for range heardServers + 1 {
		heard := s.heard.Load()
		deadline := heard.deadline(until)
		deadline.put(request[2:])
		asking := time.Now()
		answer, err := s.calls.Call(ctx, bus.ServiceStore, request)
		now, unknown := deadline.unknownTo(answer)
		if err != nil || !unknown {
			return answer, err
		}
		s.heard.Store(heard.after(now, asking))
		request = bytes.Clone(request) // the bus may still have the other
	}
	return nil, kernel.Refuse(jobs.Unavailable, "each of %d requests reached another leader", heardServers+1)
}

func refusal(err error) jobs.Code {
	if err == nil {
		return ""
	}
	return jobs.CodeOf(err)
}

// pause is the wait between calls that failed. It is spread, so that the workers of a failed leader do not all return
// at once.
type pause struct{ next time.Duration }

// wait reports false if ctx ended first.
func (p *pause) wait(ctx context.Context) bool {
	p.next = min(max(firstPause, 2*p.next), longestPause)
	t := time.NewTimer(p.next/2 + rand.N(p.next/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
