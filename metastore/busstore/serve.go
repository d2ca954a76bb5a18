package busstore

import (
	"context"
	"log/slog"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config says how a store is served. The zero value works.
type Config struct {
	// App is the app a worker's principal belongs to; "" for any. With it, a worker registers, claims and reads in
	// its own app only. Nil: a worker may do so in all apps of its tenant.
	App func(worker bus.Principal) string
	// Logger gets a line for each request of which something was refused as forbidden. Default: nowhere.
	Logger *slog.Logger
}

// Serve answers calls from a store until ctx ends. It returns once it serves.
func Serve(ctx context.Context, calls bus.Calls, store metastore.Store, c Config) error {
	if c.Logger == nil {
		c.Logger = discard
	}
	s := &server{store: store, limit: calls.Limit(), Config: c}
	return calls.Serve(ctx, bus.ServiceStore, s.answer)
}

var discard = slog.New(slog.DiscardHandler)

// server is the side of the store.
type server struct {
	Config
	store metastore.Store
	limit int
}

func (s *server) answer(ctx context.Context, from bus.Principal, request []byte) ([]byte, error) {
	v, body, err := opened(request)
	if err != nil {
		return nil, err
	}
	if v == askApply {
		return s.apply(ctx, from, body)
	}
	q, err := decodeQuestion(body)
	if err != nil {
		return nil, err
	}
	if err := reads(from, v, &q); err != nil {
		s.Logger.Warn("read refused", "from", from.Actor(), "tenant", from.Tenant, "err", err)
		return nil, err
	}
	return s.read(ctx, from, v, q)
}

// apply puts aside what from may not say, and has the rest applied as one batch.
func (s *server) apply(ctx context.Context, from bus.Principal, body []byte) ([]byte, error) {
	batch, err := decodeCommands(body)
	if err != nil {
		return nil, err
	}
	results := make([]metastore.Result, len(batch))
	allowed := make([]jobs.Envelope, 0, len(batch))
	var refused error
	for i := range batch {
		err := authorize(from, &batch[i])
		if err == nil {
			err = s.ownApp(ctx, from, &batch[i])
		}
		if err == nil {
			allowed = append(allowed, batch[i])
			continue
		}
		results[i].Err, refused = err, err
	}
	if refused != nil {
		s.Logger.Warn("commands refused", "from", from.Actor(), "tenant", from.Tenant, "count", len(batch)-len(allowed), "err", refused)
	}
	var answers []metastore.Result
	if len(allowed) > 0 {
		answers = s.store.Apply(ctx, allowed)
	}
	next := 0
	for i := range results {
		if results[i].Err == nil {
			results[i] = answers[next]
			results[i].Effect = trim(from, batch[i].Command, results[i].Effect)
			next++
		}
	}
	return encodeAnswers(results, s.limit), nil
}

// ownApp refuses what a worker wants in an app that is not its own.
func (s *server) ownApp(ctx context.Context, from bus.Principal, e *jobs.Envelope) error {
	own := s.appOf(from)
	if own == "" {
		return nil
	}
	switch k := e.Command.(type) {
	case jobs.Register:
		if k.App != own {
			return jobs.Refuse(jobs.Forbidden, "%s belongs to app %s and may not register jobs of app %.60q", from.Actor(), own, k.App)
		}
	case jobs.Claim:
		in, err := s.store.Instance(ctx, from.Tenant, k.ID)
		if err != nil {
			return err
		}
		return ofApp(from, own, in)
	}
	return nil
}

func (s *server) appOf(from bus.Principal) string {
	if from.Role != bus.Worker || s.App == nil {
		return ""
	}
	return s.App(from)
}

func ofApp(from bus.Principal, own string, in *jobs.Instance) error {
	if own != "" && in.App != own {
		return jobs.Refuse(jobs.Forbidden, "%s belongs to app %s: run %s is of another", from.Actor(), own, in.ID)
	}
	return nil
}

func (s *server) read(ctx context.Context, from bus.Principal, v verb, q question) ([]byte, error) {
	switch v {
	case askDefinition:
		d, err := s.store.Definition(ctx, q.Tenant, q.Key)
		if own := s.appOf(from); err == nil && own != "" && d.App != own {
			err = jobs.Refuse(jobs.Forbidden, "%s belongs to app %s: job %s is of another", from.Actor(), own, q.Key)
		}
		return single(d, err, s.limit)
	case askDefinitions:
		return s.definitions(ctx, q)
	case askInstance:
		in, err := s.store.Instance(ctx, q.Tenant, q.ID)
		if err == nil {
			err = ofApp(from, s.appOf(from), in)
		}
		return single(in, err, s.limit)
	case askInstances:
		return s.instances(ctx, q)
	case askLedger:
		rows, err := s.store.Ledger(ctx, q.Tenant, q.ID, q.Limit)
		if err != nil {
			return nil, err
		}
		b, _ := encodeRows(reply{}, rows, s.limit)
		return b, nil
	case askCounts:
		c, err := s.store.Counts(ctx, metastore.CountQuery{Tenant: q.Tenant, Job: q.Key, From: q.From, To: q.To})
		if err != nil {
			return nil, err
		}
		hours := make([]*jobs.Tally, len(c.Hours))
		for i := range c.Hours {
			hours[i] = &c.Hours[i]
		}
		b, n := encodeRows(reply{Live: c.Live}, hours, s.limit)
		if n < len(hours) {
			return nil, jobs.Invalid("counts of %d hours and states are more than the bus carries: ask for a shorter time", len(hours))
		}
		return b, nil
	case askGlobal:
		g, err := s.store.Global(ctx, q.Tenant)
		return single(g, err, s.limit)
	}
	return nil, jobs.Invalid("busstore: question %d is not known to this version", v)
}

// single answers with one row.
func single[R jobs.Row](row R, err error, limit int) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	b, n := encodeRows(reply{}, []R{row}, limit)
	if n == 0 {
		return nil, jobs.Invalid("the row is larger than the bus carries")
	}
	return b, nil
}

func (s *server) definitions(ctx context.Context, q question) ([]byte, error) {
	want := metastore.DefinitionQuery{Tenant: q.Tenant, Keys: q.Keys, App: q.App, Since: q.Since, After: q.After, Limit: q.Limit}
	if want.Limit > 0 {
		want.Limit += max(0, q.Skip)
	}
	rows, err := s.store.Definitions(ctx, want)
	if err != nil {
		return nil, err
	}
	rows = rows[min(max(0, q.Skip), len(rows)):]
	b, n := encodeRows(reply{}, rows, s.limit)
	if n == len(rows) {
		return b, nil
	}
	const spare = 64 // what "more" takes in the head
	b, n = encodeRows(reply{More: true}, rows, s.limit-spare)
	if n == 0 {
		return nil, jobs.Invalid("job %s is larger than the bus carries", rows[0].Key)
	}
	return b, nil
}

// instances answers with a page. One that is too large is asked for again as a shorter one, because only the store
// can say where the next begins.
func (s *server) instances(ctx context.Context, q question) ([]byte, error) {
	want := metastore.InstanceQuery{Tenant: q.Tenant, Job: q.Key, State: q.State, Worker: q.Worker, Parent: q.Parent,
		Origin: q.Origin, From: q.From, To: q.To, Cursor: q.Cursor, Limit: q.Limit}
	for {
		page, err := s.store.Instances(ctx, want)
		if err != nil {
			return nil, err
		}
		b, n := encodeRows(reply{Next: page.Next, Searched: page.Searched}, page.Instances, s.limit)
		if n == len(page.Instances) {
			return b, nil
		}
		if n == 0 {
			return nil, jobs.Invalid("run %s is larger than the bus carries", page.Instances[0].ID)
		}
		want.Limit = n
	}
}
