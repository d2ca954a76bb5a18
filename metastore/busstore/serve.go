package busstore

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures Serve. The zero value works.
type Config struct {
	// Kept limits a worker to its own app, that of its principal, when it registers, creates, ends and reads:
	// for a bus that authenticates. Default: a worker may act in all apps of its tenant.
	Kept bool
	// Current returns an error while local reads may be stale, else nil. A read is then refused as jobs.Unavailable,
	// and the caller repeats it, with the new leader by then. Default: local reads are never stale.
	Current func(context.Context) error
	// Logger gets a line for requests refused as forbidden, at most one a second, with their count so far. Default:
	// none.
	Logger *slog.Logger
}

// Serve answers calls from a store until ctx ends. It returns as soon as it serves.
func Serve(ctx context.Context, calls bus.Calls, store metastore.Store, c Config) error {
	if c.Logger == nil {
		c.Logger = discard
	}
	s := &server{store: store, limit: calls.Limit(), Config: c, clock: newClock(), episodes: episode.New(c.Logger)}
	return calls.Serve(ctx, bus.ServiceStore, s.answer)
}

var discard = slog.New(slog.DiscardHandler)

// server is the side of the store.
type server struct {
	Config
	store metastore.Store
	limit int
	clock *clock

	likely atomic.Int64 // bytes that an answer to a command takes, as the last ones did
	// likelyBrief is likely for answers that are receipts.
	likelyBrief atomic.Int64
	episodes    *episode.Log // of refused requests
}

// refuse logs a request refused as forbidden.
func (s *server) refuse(what string, from bus.Principal, err error) {
	s.episodes.Failed(slog.LevelWarn, from.Actor(), "request refused", "cause", what, "actor", from.Actor(), "tenant", from.Tenant, "err", err)
}

// forbidden logs one of the commands that the rules refused as forbidden.
func (s *server) forbidden(from bus.Principal, answers []metastore.Result) {
	for i := range answers {
		if err := answers[i].Err; err != nil && from.Role != bus.Node && jobs.CodeOf(err) == jobs.Forbidden {
			s.refuse("commands", from, err)
			return
		}
	}
}

func (s *server) answer(ctx context.Context, from bus.Principal, request []byte) ([]byte, error) {
	v, body, err := opened(request)
	if err != nil {
		return nil, err
	}
	if v.commands() {
		return s.apply(ctx, from, v, body)
	}
	q, err := decodeQuestion(body)
	if err != nil {
		return nil, err
	}
	if err := reads(from, v, &q); err != nil {
		s.refuse("a read", from, err)
		return nil, err
	}
	if s.Current != nil {
		if err := s.Current(ctx); err != nil {
			return nil, err
		}
	}
	return s.read(ctx, from, v, q)
}

// apply refuses the commands that from may not send, and applies the rest as one batch.
func (s *server) apply(ctx context.Context, from bus.Principal, v verb, body []byte) ([]byte, error) {
	deadline, batch, err := decodeCommands(body, from.Role)
	if err != nil {
		return nil, err
	}
	late, known := s.clock.late(deadline)
	var refusals []error
	var answers []metastore.Result
	switch {
	case !known:
		batch = nil // the answer is only the time on this server's clock
	case late > 0:
		answers = metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: the request arrived %v after its sender had stopped waiting for an answer", late.Round(time.Millisecond)))
	default:
		if late < 0 { // the store that it is passed to has no longer
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, -late)
			defer cancel()
			ctx = unhurried{ctx}
		}
		var allowed []kernel.Envelope
		if refusals, allowed = s.judge(ctx, from, batch); len(allowed) > 0 {
			answers = s.store.Apply(ctx, allowed)
			s.forbidden(from, answers)
		}
	}
	var room room
	next := 0
	likely := &s.likely
	if v == askBrief {
		likely = &s.likelyBrief
	}
	b := encodeAnswers(len(batch), s.limit, int(likely.Load()), func(i int) (*kernel.Effect, error) {
		if refusals != nil && refusals[i] != nil {
			return nil, refusals[i]
		}
		answer := &answers[next]
		next++
		return room.trim(from, v, &answer.Effect), answer.Err
	})
	if n := len(batch); n > 0 {
		likely.Store(int64(len(b)/n + 16))
	}
	moment{s.clock.id, s.clock.now()}.put(b[1:])
	return b, nil
}

// unhurried hides the deadline of a context, which ends by it all the same. The sender of a request does not wait for
// this goroutine, so a commit may use it (see metastore.Group): its stack has grown, which a new one's has to at each
// commit.
type unhurried struct{ context.Context }

func (unhurried) Deadline() (time.Time, bool) { return time.Time{}, false }

// judge returns the commands that from may send as far as its connection and finished runs decide it, and a refusal for
// each of the others; no refusals if there are none. The rest is decided in the commit.
func (s *server) judge(ctx context.Context, from bus.Principal, batch []kernel.Envelope) (refusals []error, allowed []kernel.Envelope) {
	actor := from.Actor()
	own, unnamed := s.appOf(from)
	as := senderOf(from, own)
	var last, old error
	var parent jobs.ID // the last that was looked up: most of a batch have the same
	sure := s.Current == nil
	for i := range batch {
		err := cmp.Or(unnamed, sign(from, actor, as, &batch[i]))
		if err == nil {
			if err = s.parent(ctx, from, &batch[i], &parent); err != nil {
				if !sure { // the rows that it was looked up in may be stale
					sure, old = true, s.Current(ctx)
				}
				err = cmp.Or(old, err)
			}
		}
		if err != nil && refusals == nil {
			refusals = make([]error, len(batch))
			allowed = append(allowed, batch[:i]...)
		}
		switch {
		case err != nil:
			refusals[i], last = err, err
		case refusals != nil:
			allowed = append(allowed, batch[i])
		}
	}
	if refusals == nil {
		return nil, batch
	}
	s.refuse("commands", from, last)
	return refusals, allowed
}

// parent refuses a run whose parent cannot have enqueued it: one that does not exist, or one of another app than the
// worker's. A client may name any run of its tenant, since handlers enqueue through clients, too. It is no check of the
// commit, which does not know finished runs; no run changes its app, so nothing can come between.
func (s *server) parent(ctx context.Context, from bus.Principal, e *kernel.Envelope, known *jobs.ID) error {
	k, ok := e.Command.(kernel.Create)
	if !ok || from.Role == bus.Node || k.Parent.IsZero() || k.Parent == *known {
		return nil
	}
	own, err := s.appOf(from)
	if err != nil {
		return err
	}
	run, err := s.store.Run(ctx, from.Tenant, k.Parent)
	if jobs.CodeOf(err) == jobs.NotFound {
		return kernel.Refuse(jobs.Forbidden, "%s may not enqueue run %s as a child of run %s: there is no such run", from.Actor(), k.ID, k.Parent)
	}
	if err == nil {
		err = ofApp(from, own, run)
	}
	if err == nil {
		*known = k.Parent
	}
	return err
}

func (s *server) ownJob(ctx context.Context, from bus.Principal, own string, key jobs.Key) error {
	d, err := s.store.Definition(ctx, from.Tenant, key)
	if err == nil && d.App != own {
		err = kernel.Refuse(jobs.Forbidden, "%s belongs to app %s: job %s is of another", from.Actor(), own, key)
	}
	return err
}

// appOf is the app that from is limited to, "" for any.
func (s *server) appOf(from bus.Principal) (string, error) {
	if from.Role != bus.Worker || !s.Kept {
		return "", nil
	}
	if from.App == "" {
		return "", kernel.Refuse(jobs.Forbidden, "%s names no app: use a token of one app", from.Actor())
	}
	return from.App, nil
}

func ofApp(from bus.Principal, own string, run *kernel.Run) error {
	if own != "" && run.App != own {
		return kernel.Refuse(jobs.Forbidden, "%s belongs to app %s: run %s is of another", from.Actor(), own, run.ID)
	}
	return nil
}

func (s *server) read(ctx context.Context, from bus.Principal, v verb, q question) ([]byte, error) {
	own, err := s.appOf(from)
	if err != nil {
		return nil, err
	}
	switch v {
	case askDefinition:
		d, err := s.store.Definition(ctx, q.Tenant, q.Key)
		if err == nil && own != "" && d.App != own {
			err = kernel.Refuse(jobs.Forbidden, "%s belongs to app %s: job %s is of another", from.Actor(), own, q.Key)
		}
		return single(d, err, s.limit)
	case askDefinitions:
		return s.definitions(ctx, q)
	case askRun:
		run, err := s.store.Run(ctx, q.Tenant, q.ID)
		if err == nil {
			err = ofApp(from, own, run)
			run = visibleTo(from, run)
		}
		return single(run, err, s.limit)
	case askRuns:
		return s.runs(ctx, from, q)
	case askLedger:
		rows, err := s.store.Ledger(ctx, q.Tenant, q.ID, q.Limit)
		if err != nil {
			return nil, err
		}
		b, _ := encodeRows(reply{}, rows, s.limit)
		return b, nil
	case askCounts:
		c, err := s.store.Counts(ctx, q.counts())
		if err != nil {
			return nil, err
		}
		rows := make([]*kernel.Tally, len(c.Tallies))
		for i := range c.Tallies {
			rows[i] = &c.Tallies[i]
		}
		b, n := encodeRows(reply{Live: c.Live, Waiting: c.Waiting, Jobs: c.Jobs, Bytes: c.Bytes}, rows, s.limit)
		if n < len(rows) {
			return nil, kernel.Invalid("counts of %d hours and days are more than the bus carries: ask for a shorter time", len(rows))
		}
		return b, nil
	case askGlobal:
		g, err := s.store.Global(ctx, q.Tenant)
		return single(g, err, s.limit)
	case askTenants:
		rows, err := s.store.Tenants(ctx)
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askToken:
		t, err := s.store.Token(ctx, q.Tenant, q.Name)
		return single(t, err, s.limit)
	case askTokens:
		rows, err := s.store.Tokens(ctx, q.Tenant)
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askSession:
		found, err := s.store.Session(ctx, q.Tenant, q.Name)
		return single(found, err, s.limit)
	case askSessions:
		rows, err := s.store.Sessions(ctx, q.Tenant)
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askAlarmSettings:
		rows, err := s.store.AlarmSettings(ctx, q.Tenant)
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askAlarms:
		rows, err := s.store.Alarms(ctx, q.alarms())
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askHistory:
		h, err := s.store.History(ctx, q.Tenant, q.ID)
		return single(h, err, s.limit)
	case askCalendars:
		rows, err := s.store.Calendars(ctx, q.Tenant)
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askOccasions:
		rows, err := s.store.Occasions(ctx, q.Tenant, q.ID, q.Limit)
		if err != nil {
			return nil, err
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askBatches:
		rows, err := s.store.Batches(ctx, q.batches())
		if err != nil {
			return nil, err
		}
		if own != "" {
			for _, b := range rows {
				if err := s.ownJob(ctx, from, own, b.Then); err != nil {
					return nil, err
				}
			}
		}
		return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
	case askAudits:
		rows, err := s.store.Audits(ctx, q.audits())
		if err != nil {
			return nil, err
		}
		return part(rows, s.limit)
	}
	return nil, kernel.Invalid("busstore: question %d is not known to this version", v)
}

// single answers with one row.
func single[R kernel.Row](row R, err error, limit int) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	b, n := encodeRows(reply{}, []R{row}, limit)
	if n == 0 {
		return nil, kernel.Invalid("the row is larger than the bus carries")
	}
	return b, nil
}

func (s *server) definitions(ctx context.Context, q question) ([]byte, error) {
	want := q.definitions()
	if want.Limit > 0 {
		want.Limit += max(0, q.Skip)
	}
	rows, err := s.store.Definitions(ctx, want)
	if err != nil {
		return nil, err
	}
	return part(rows[min(max(0, q.Skip), len(rows)):], s.limit)
}

// part answers with as many of the rows as fit, and reports whether there are more.
func part[R kernel.Row](rows []R, limit int) ([]byte, error) {
	b, n := encodeRows(reply{}, rows, limit)
	if n == len(rows) {
		return b, nil
	}
	const spare = 64 // what "more" takes in the head
	b, n = encodeRows(reply{More: true}, rows, limit-spare)
	if n == 0 {
		return nil, kernel.Invalid("%s is larger than the bus carries", rows[0].Ref().Name)
	}
	return b, nil
}

// runs answers with a page. For one that is too large it reads a shorter one, because only the store knows where the
// next begins.
func (s *server) runs(ctx context.Context, from bus.Principal, q question) ([]byte, error) {
	if len(q.Args) > metastore.MaxArgs {
		return nil, kernel.Invalid("a list of runs by %d arguments, at most %d are allowed", len(q.Args), metastore.MaxArgs)
	}
	want := q.runs()
	for {
		page, err := s.store.Runs(ctx, want)
		if err != nil {
			return nil, err
		}
		for i, run := range page.Runs {
			page.Runs[i] = visibleTo(from, run)
		}
		b, n := encodeRows(reply{Next: page.Next, Searched: page.Searched}, page.Runs, s.limit)
		if n == len(page.Runs) {
			return b, nil
		}
		if n == 0 {
			return nil, kernel.Invalid("run %s is larger than the bus carries", page.Runs[0].ID)
		}
		want.Limit = n
	}
}
