package httpjob

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// App is the default worker group of HTTP jobs.
const App = "http"

// Store is the part of a store that HTTP jobs need.
type Store interface {
	metastore.Applier
	Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error)
	Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error)
}

// The time for one call: the default, and the most.
const (
	CallTimeout    = 60 * time.Second
	MaxCallTimeout = time.Hour
)

// Config bounds what HTTP jobs may do where they run. The zero value calls public addresses, and knows no services.
type Config struct {
	App       string // the worker group whose jobs are run; default App
	Guard     Guard
	Breaker   Breaker
	Services  httpspec.Services
	Variables map[string]string // that templates may name
	Secrets   httpspec.Secrets  // that templates may name, each with the hosts that it may be sent to
	// FeedbackURL is where services reach the API of a node, such as https://jobs.example.com: asynchronous jobs get it
	// to report their progress. InnerFeedbackURL is the same from within the cluster's network, where that differs.
	// Without any, asynchronous jobs need a checkUrl.
	FeedbackURL, InnerFeedbackURL string
	// CallTimeout bounds one call; default [CallTimeout]. Longer work must be asynchronous.
	CallTimeout time.Duration
}

// Runner runs HTTP jobs. Any number of goroutines may share it.
type Runner struct {
	cfg      Config
	store    Store
	client   *http.Client
	breakers *breakers

	mu    sync.Mutex
	plans map[identity]known
}

// identity is what a job is remembered by. Its key alone may be another tenant's, and tomorrow that of another job.
type identity struct {
	tenant jobs.Tenant
	key    jobs.Key
	job    jobs.ID
}

func identityOf(at jobs.AttemptInfo) identity { return identity{at.Tenant, at.Key, at.Job} }

// known is what a job is to do, as it was last read.
type known struct {
	raw    []byte
	plan   *httpspec.Plan
	err    error
	hidden []string // secrets that it names
}

// maxPlans bounds how many are remembered.
const maxPlans = 10_000

// New makes a runner.
func New(store Store, c Config) (*Runner, error) {
	if err := cmp.Or(c.Services.Check(), c.Secrets.Check()); err != nil {
		return nil, err
	}
	for _, base := range []string{c.FeedbackURL, c.InnerFeedbackURL} {
		if u, err := url.Parse(base); base != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil) {
			return nil, kernel.Invalid("feedback URL %.100q: it must be a URL such as https://jobs.example.com", base)
		}
	}
	if c.CallTimeout < 0 || c.CallTimeout > MaxCallTimeout {
		return nil, kernel.Invalid("invalid call timeout %v: want more than 0 and at most %v", c.CallTimeout, MaxCallTimeout)
	}
	c.App, c.CallTimeout = cmp.Or(c.App, App), cmp.Or(c.CallTimeout, CallTimeout)
	return &Runner{cfg: c, store: store, client: c.Guard.client(), breakers: newBreakers(c.Breaker), plans: map[identity]known{}}, nil
}

// notOurs is how long a run waits whose job makes no requests: for a worker with its code.
const notOurs = 30 * time.Second

// Run runs an attempt of any HTTP job: use it as worker.Config.Others.
func (r *Runner) Run(ctx context.Context, args []byte) error {
	k, err := r.plan(ctx, jobs.Attempt(ctx))
	if err != nil {
		return err
	}
	if k.plan == nil {
		jobs.Log(ctx).Warn("the job makes no HTTP requests: its run waits for a worker that has its code")
		return jobs.Snooze(notOurs)
	}
	return r.run(ctx, k, args)
}

// Check returns what is wrong with an HTTP job, and where, before it is stored. For a job that runs here it also
// returns which services, secrets and variables are missing.
func (c *Config) Check(app string, raw []byte) (place string, err error) {
	if c == nil || app != cmp.Or(c.App, App) {
		return httpspec.Check(raw)
	}
	return httpspec.CheckFor(raw, c.Services, c.Secrets, c.Variables)
}

// unread is how long a run waits whose job cannot be read now. It uses up no retry.
const unread = 5 * time.Second

// plan returns what a job is to do now; without a plan if it is no HTTP job. What is remembered is no substitute: a store
// that was restored gives revisions again. It is for runs that outlive their job, which do what was last read.
func (r *Runner) plan(ctx context.Context, at jobs.AttemptInfo) (known, error) {
	d, err := r.store.Definition(ctx, at.Tenant, at.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.plans[identityOf(at)]
	switch code := jobs.CodeOf(err); {
	case code == jobs.Unavailable:
		jobs.Log(ctx).Warn("the requests of the job cannot be read now: the run waits", "err", err)
		return known{}, jobs.Snooze(unread)
	case err == nil && d.UID == at.Job:
		if ok && bytes.Equal(k.raw, d.Policy.HTTP) {
			return k, k.err
		}
	case ok && (err == nil || code == jobs.NotFound):
		return k, k.err
	case err == nil:
		return known{}, jobs.NoRetry(fmt.Errorf("job %s of this run was deleted, and another one has its key", at.Key))
	default:
		return known{}, fmt.Errorf("read the job's definition: %w", err)
	}
	k = known{raw: d.Policy.HTTP}
	if !kernel.NoWork(d.Policy.HTTP) {
		if k.plan, k.err = httpspec.Parse(d.Policy.HTTP); k.err != nil {
			k.err = jobs.NoRetry(k.err)
		} else {
			k.hidden = k.plan.Hidden(r.cfg.Secrets)
		}
	}
	if len(r.plans) >= maxPlans {
		clear(r.plans)
	}
	r.plans[identityOf(at)] = k
	return k, k.err
}
