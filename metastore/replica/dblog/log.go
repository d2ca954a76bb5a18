package dblog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// Config configures a log. Database and Machine are required.
type Config struct {
	Database Database
	Machine  *replica.Machine
	Node     string // this node's name
	Logger   *slog.Logger
	// Forget is called when the rows are replaced because the database has lost entries that they had: what the
	// history has of them is to be dropped, too. Default: nothing.
	Forget func()
	// Applying is called before an entry is applied. By the hash of its row, what is made of it is bound to the log that
	// has that row. Default: nothing.
	Applying func(seq uint64, hash Hash)
	// Settled returns when the history has all runs that had ended when a snapshot was captured. Default: at once.
	Settled func(ctx context.Context) error
	// Alone reports whether no other node can have taken the lease before its end, for databases that allow that.
	// Default: none can.
	Alone func() bool
	// Statement is how many bytes of entries are written at once, unless one entry has more. Default 4 MiB, and not more.
	Statement int
	// Lease is how long a leader leads without an answer of the database. Default DefaultLease.
	Lease time.Duration
}

// DefaultLease is how long a lease lasts.
const DefaultLease = 4 * time.Second

const (
	margin    = 500 * time.Millisecond // by which a leader gives up before its lease ends
	renewTime = time.Second
	// releaseTime is how long the end of a term waits for the database: without an answer its lease runs out.
	releaseTime = time.Second
	tryTime     = 100 * time.Millisecond // how often a node that does not lead tries to
	restTime    = time.Second            // how long one does not try whose term ended without an answer of the database
	pollTime    = 50 * time.Millisecond  // how often it reads what the leader has written
	againTime   = 50 * time.Millisecond  // after an error
	atOnce      = 4 << 20                // bytes of entries that are read at once
	partSize    = 1 << 20
)

// Log is a node's view of the log.
type Log struct {
	cfg      Config
	db       Database
	nonce    string
	episodes *episode.Log

	turn  turn   // of who applies entries, or replaces the rows
	seq   uint64 // of the last entry that was applied
	hash  Hash
	clock clock
	seen  atomic.Uint64 // the highest term of an entry that was applied, whatever became of it

	following atomic.Bool // the machine has the rows
	wrong     atomic.Bool // the rows are not those of the log
	unable    atomic.Bool // the last term ended because the database did not answer this node

	mu        sync.Mutex
	term      uint64 // in which this node may append; 0 = it does not lead, or cannot yet
	confirmed confirmation
	fresh     time.Time       // when the end of the log was last asked for that was then applied
	writable  context.Context // of the term's statements that write; nil = there is no term
	depose    func(error)     // ends the term
	queue     []*pending
	writing   bool

	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	duties sync.WaitGroup
}

var _ replica.Log = (*Log)(nil)

// confirmation is a moment at which this node had the lease of a term.
type confirmation struct {
	term uint64
	at   time.Time
}

var (
	errClosed  = kernel.Refuse(jobs.Unavailable, "not done: the store is closed")
	errDeposed = kernel.Refuse(jobs.Unavailable, "not done: another node leads")
	errNoRows  = kernel.Refuse(jobs.Unavailable, "this node does not follow the log")
	errWrong   = kernel.Refuse(jobs.Unavailable, "not done: the rows of this node are wrong, it reads them again")
	errNoLead  = kernel.Refuse(jobs.Unavailable, "not done: this node does not lead")
)

// New makes a log that does nothing before Follow.
func New(c Config) *Log {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Forget == nil {
		c.Forget = func() {}
	}
	if c.Applying == nil {
		c.Applying = func(uint64, Hash) {}
	}
	if c.Settled == nil {
		c.Settled = func(context.Context) error { return nil }
	}
	if c.Alone == nil {
		c.Alone = func() bool { return true }
	}
	c.Lease, c.Statement = cmp.Or(c.Lease, DefaultLease), min(cmp.Or(c.Statement, atOnce), atOnce)
	l := &Log{cfg: c, db: c.Database, nonce: rand.Text(), turn: make(turn, 1), episodes: episode.New(c.Logger)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Follow restores the machine and returns when it has all that was in the log. It then follows the log until Close.
// After an error it may be called again.
func (l *Log) Follow(ctx context.Context) error {
	l.cfg.Forget() // what an attempt before has read
	err := l.load(ctx)
	if err == nil {
		err = l.catchUp(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	l.following.Store(true)
	l.duties.Go(l.follow)
	l.duties.Go(l.keepShort)
	return nil
}

// Open makes a log and follows it.
func Open(ctx context.Context, c Config) (*Log, error) {
	l := New(c)
	if err := l.Follow(ctx); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// Close ends the log. Entries whose outcome is unknown by then stay so.
func (l *Log) Close() error {
	l.stop()
	l.lose(errClosed)
	l.duties.Wait()
	l.episodes.Reset()
	return nil
}

// pending is an entry that waits to be written, or for the outcome.
type pending struct {
	log    *Log // of the one whose Wait writes; nil = another one does
	entry  []byte
	done   chan struct{}
	answer any
	err    error
}

// Append queues an entry. The first Wait in a row writes the queue: switching to another goroutine and back would take
// longer than all but the database.
func (l *Log) Append(entry []byte) replica.Pending {
	p := &pending{entry: entry, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
		p.end(nil, errClosed)
	case l.term == 0:
		p.end(nil, errNoLead)
	default:
		l.queue = append(l.queue, p)
		if !l.writing {
			l.writing, p.log = true, l
		}
	}
	return p
}

func (p *pending) end(answer any, err error) {
	p.answer, p.err = answer, err
	close(p.done)
}

// Wait waits for the entry to be applied.
func (p *pending) Wait() (any, error) {
	if p.log != nil {
		p.log.write()
	}
	<-p.done
	return p.answer, p.err
}

// write writes what is queued, and has another goroutine go on with what is queued meanwhile. It ends with the lease:
// its callers must not wait for the database.
func (l *Log) write() {
	l.mu.Lock()
	ctx := l.writable
	l.mu.Unlock()
	if ctx != nil && l.turn.take(ctx) == nil {
		if term, batch := l.next(); len(batch) > 0 {
			l.insert(ctx, term, batch)
		}
		l.turn.give()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.writing = false
		return
	}
	go l.write()
}

// next is the part of the queue that is written at once, and the term.
func (l *Log) next() (uint64, []*pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.queue) && (n == 0 || size+len(l.queue[n].entry) <= l.cfg.Statement) {
		size += len(l.queue[n].entry)
		n++
	}
	batch := l.queue[:n:n]
	l.queue = l.queue[n:]
	return l.term, batch
}

// insert writes entries, until it is known whether they are in the log or ctx ends, and applies them if they are. The caller has the turn.
func (l *Log) insert(ctx context.Context, term uint64, batch []*pending) {
	rows, prev := make([]Row, len(batch)), l.hash
	for i, p := range batch {
		seq := l.seq + 1 + uint64(i)
		rows[i] = Row{Seq: seq, Term: term, Prev: prev, Hash: hashed(prev, seq, term, l.nonce, p.entry), Entry: p.entry}
		prev = rows[i].Hash
	}
	done, err := l.settle(ctx, rows)
	switch {
	case err != nil:
		// The log decides later: if it has the entries, this node applies them as any other. The next entry of any
		// leader follows them, or takes their place and keeps them out.
		endAll(batch, err)
	case !done:
		l.lose(errDeposed)
		endAll(batch, errDeposed)
	default:
		for i, p := range batch {
			answer := l.apply(rows[i])
			l.moved(rows[i])
			p.end(answer, nil)
		}
	}
}

// settle inserts rows, again and again until the database has answered or ctx ends with the lease: a leader that cannot
// commit lets go, whatever is unknown. A term without an answer for as long as a lease is over, too, so that
// another node can lead.
func (l *Log) settle(ctx context.Context, rows []Row) (done bool, err error) {
	began := time.Now()
	for again := false; ; again = true {
		sent := time.Now()
		done, now, err := l.db.Insert(ctx, rows)
		if err == nil && !done && again {
			// An earlier attempt may have written them.
			done, err = l.has(ctx, rows[len(rows)-1])
		}
		if err == nil {
			l.episodes.End("", "an entry was not written")
			l.clock.learn(now, sent)
			return done, nil
		}
		if ctx.Err() == nil {
			l.episodes.Failed(slog.LevelWarn, "", "an entry was not written", "err", err)
			if time.Since(began) <= l.cfg.Lease {
				pause(ctx, againTime)
				continue
			}
			l.unable.Store(true)
			l.lose(errNoLead)
		}
		return false, kernel.OutcomeUnknown("this node no longer leads, and the database had not answered: %v", err)
	}
}

// has reports whether the log has a row.
func (l *Log) has(ctx context.Context, row Row) (bool, error) {
	if row.Seq == 0 {
		return true, nil
	}
	found, err := l.db.Rows(ctx, row.Seq-1, 1)
	return len(found) > 0 && found[0].Seq == row.Seq && found[0].Hash == row.Hash, err
}

// apply applies the entry of a row.
func (l *Log) apply(r Row) any {
	l.cfg.Applying(r.Seq, r.Hash)
	return l.cfg.Machine.Apply(r.Seq, r.Entry)
}

// moved notes that a row was applied.
func (l *Log) moved(r Row) {
	l.seq, l.hash = r.Seq, r.Hash
	l.seen.Store(max(l.seen.Load(), r.Term))
}

func endAll(batch []*pending, err error) {
	for _, p := range batch {
		p.end(nil, err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// lose ends the term of this node, for a reason, and what is queued.
func (l *Log) lose(why error) {
	l.mu.Lock()
	depose, queue := l.depose, l.queue
	l.term, l.writable, l.depose, l.queue = 0, nil, nil, nil
	l.mu.Unlock()
	if depose != nil {
		depose(why)
	}
	endAll(queue, why)
}

// Now is the database's time, as far as this node has learned it; its own before that.
func (l *Log) Now() time.Time { return l.clock.Now() }

// Linearizable returns when the machine has applied all that any node has acknowledged before the call. On a node that
// does not lead it asks the database for the end of the log, and follows to it.
func (l *Log) Linearizable(ctx context.Context) error {
	if !l.following.Load() {
		return errNoRows
	}
	l.mu.Lock()
	current := time.Now().Before(l.leased())
	l.mu.Unlock()
	if current {
		return nil // no other node has acknowledged anything since the first entry of the term
	}
	if err := l.catchUp(ctx); err != nil {
		return kernel.Refuse(jobs.Unavailable, "cannot read the end of the log: %v", err)
	}
	return nil
}

// leased is until when no other node leads: to the end of the lease of the term in which this one does, or to the last
// moment that is certain. Zero if this node does not lead. mu is locked.
func (l *Log) leased() time.Time {
	switch {
	case l.term == 0 || l.confirmed.term != l.term:
		return time.Time{}
	case !l.cfg.Alone():
		return l.confirmed.at
	}
	return l.confirmed.at.Add(l.cfg.Lease - margin)
}

// Age is how old the rows of this node may be: the time since it last knew that no other had acknowledged more.
func (l *Log) Age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.fresh
	if until := l.leased(); until.After(fresh) {
		fresh = until
	}
	return max(0, time.Since(fresh))
}

// Term is the highest term of an entry that this node has applied.
func (l *Log) Term() uint64 { return l.seen.Load() }

// Confirmed returns when the lease of a term was last asked for that the database has granted.
func (l *Log) Confirmed(term uint64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.confirmed.term == term {
		return l.confirmed.at
	}
	return time.Time{}
}

// ReadAgain replaces the rows of the machine by those of the log, because they are wrong for a reason: memory was
// damaged, say. A leader loses its term before.
func (l *Log) ReadAgain(why error) {
	if !l.following.Load() {
		return // they have just been read, and a leader of the past was wrong
	}
	l.cfg.Logger.Error("the rows of this node are wrong: it reads them again from the log. If that repeats, restart the leader", "err", why)
	l.wrong.Store(true)
	l.lose(errWrong)
}

var errLost = errors.New("leadership was lost")

// turn is a lock that can be waited for in vain.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }
