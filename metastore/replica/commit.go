package replica

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures a replica. Machine and Log are required.
type Config struct {
	Machine *Machine
	Log     Log
	// Now is the clock that stamps commits. Default time.Now.
	Now func() time.Time
	// MayRaise returns why the version of the rules cannot be raised to another; nil = it can. No node may begin to
	// follow the log until done was called. Default: only this program must know it.
	MayRaise func(ctx context.Context, to uint32) error
	// Raising, if not nil, is held while the version of the rules is raised.
	Raising sync.Locker
	// MaxEntry is how many bytes an entry may have, unless one command has more. Default 4 MiB.
	MaxEntry int
	// Largest is how many bytes the log takes in an entry; 0 = any. A command that needs more is refused.
	Largest int
}

// reads is the reads of the rows.
type reads interface {
	metastore.Reader
	metastore.Agenda
}

// Replica is a store: the rows of a machine, and the log that this node appends its commands to while it leads.
type Replica struct {
	reads
	cfg   Config
	group *metastore.Group

	order sync.Mutex // orders stamps like the log
	room  []byte     // where entries are encoded; guarded by order
	last  time.Time  // of the last commit
}

var _ metastore.Full = (*Replica)(nil)

// New makes a replica.
func New(c Config) *Replica {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxEntry <= 0 {
		c.MaxEntry = defaultEntry
	}
	r := &Replica{reads: c.Machine.Engine, cfg: c}
	r.group = metastore.NewGroup(maxCommands, commitsInFlight, r.commit)
	return r
}

// Apply applies a batch of commands. Concurrent callers share entries of the log.
func (r *Replica) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Admitted(batch, metastore.Archived(ctx, r, r.cfg.Now()), func(batch []kernel.Envelope) []metastore.Result {
		return r.allowed(ctx, batch, func(batch []kernel.Envelope) []metastore.Result { return r.group.Apply(ctx, batch) })
	})
}

// allowed refuses what the version of the rules in force does not allow.
func (r *Replica) allowed(ctx context.Context, batch []kernel.Envelope, apply func([]kernel.Envelope) []metastore.Result) []metastore.Result {
	rules := metastore.Rules{Known: r.cfg.Machine.cfg.Knows, InForce: func(needed uint32) (uint32, error) {
		if inForce := r.cfg.Machine.InForce(); inForce >= needed {
			return inForce, nil
		}
		err := r.cfg.Log.Linearizable(ctx) // a new leader may not have applied the raised version yet
		return r.cfg.Machine.InForce(), err
	}}
	if r.cfg.MayRaise != nil {
		rules.MayRaise = func(to uint32) error { return r.cfg.MayRaise(ctx, to) }
	}
	if r.cfg.Raising != nil && slices.ContainsFunc(batch, func(e kernel.Envelope) bool { return e.Command.Verb() == kernel.VerbFinalizeUpgrade }) {
		r.cfg.Raising.Lock()
		defer r.cfg.Raising.Unlock()
	}
	return rules.Allowed(batch, apply)
}

// proposed is a part of a batch that the log has been given.
type proposed struct {
	batch []kernel.Envelope
	entry []byte
	Pending
}

// commit stamps a batch, logs it and answers when it is applied. Of two at once, the one that is stamped first is
// logged first.
func (r *Replica) commit(batch []kernel.Envelope) []metastore.Result {
	r.order.Lock()
	r.last = metastore.Stamp(batch, r.cfg.Now(), r.last)
	parts := r.propose(nil, batch)
	r.order.Unlock()
	if len(parts) == 1 {
		return r.answer(parts[0])
	}
	results := make([]metastore.Result, 0, len(batch))
	for _, p := range parts {
		results = append(results, r.answer(p)...)
	}
	return results
}

// propose gives a batch to the log, in as few entries as their limit allows.
func (r *Replica) propose(parts []proposed, batch []kernel.Envelope) []proposed {
	if len(batch) <= maxCommands {
		r.room = AppendEntry(r.room[:0], r.cfg.Machine.InForce(), batch)
		if len(r.room) <= r.cfg.MaxEntry || len(batch) == 1 {
			if n := len(r.room); r.cfg.Largest > 0 && n > r.cfg.Largest {
				return append(parts, proposed{batch: batch, Pending: tooLarge{n, r.cfg.Largest}})
			}
			entry := bytes.Clone(r.room)
			r.cfg.Machine.own.note(entry, batch)
			return append(parts, proposed{batch, entry, r.cfg.Log.Append(entry)})
		}
	}
	half := len(batch) / 2
	return r.propose(r.propose(parts, batch[:half]), batch[half:])
}

// tooLarge is an entry that the log does not take.
type tooLarge struct{ size, most int }

func (l tooLarge) Wait() (any, error) {
	return nil, kernel.Exhausted(kernel.BoundLogEntry, "not done: the change needs %d bytes in the log, and the store takes at most %d: ask for less at once, "+
		"or raise max_allowed_packet of the database and restart the servers", l.size, l.most)
}

// answer waits for the outcome of a part.
func (r *Replica) answer(p proposed) []metastore.Result {
	answer, err := p.Wait()
	if err != nil {
		if p.entry != nil {
			r.cfg.Machine.own.take(p.entry) // a later apply decodes the entry
		}
		return metastore.Refused(p.batch, err)
	}
	switch a := answer.(type) {
	case []metastore.Result:
		return a
	case error:
		return metastore.Refused(p.batch, kernel.OutcomeUnknown("%v", a))
	}
	return metastore.Refused(p.batch, kernel.OutcomeUnknown("no answer to the log entry"))
}

// Stats returns measurements of commits.
func (r *Replica) Stats() metastore.Stats { return r.group.Stats() }

// ApplyVersion is the version of the rules in force, as far as this node has applied its log.
func (r *Replica) ApplyVersion() uint32 { return r.cfg.Machine.InForce() }
