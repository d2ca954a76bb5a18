// Package api is the scheduler over HTTP: JSON under /api/v1, described by OpenAPI 3.1.
//
// It translates and nothing else: a request becomes a call of a verb in package ops, the answer becomes JSON, a
// refusal becomes a problem (RFC 9457) with a code that stays the same. problem.go is the only place that knows HTTP
// statuses.
//
// Where to start: [New]. [Guard], [LoopbackOnly] and [NewServer] are what should stand around it on a socket.
//
// Sharp edges: no text of an internal error reaches a client, and bodies are read strictly (strict.go). Making an API
// sets hooks of the huma library that belong to the whole process (problem.go).
package api

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Prefix is where the API lives.
const Prefix = "/api/v1"

// Config is what the API stands on.
type Config struct {
	// Ops are the verbs.
	Ops *ops.Ops
	// Who says who sends a request; nil means a nameless caller of the default tenant.
	Who func(*http.Request) ops.Who
	// Ready says, in words for anybody, why this process should get no requests yet, or nil. Default: the store
	// answers, and somebody leads (ops.Ready).
	Ready func(context.Context) error
	// Logger gets what clients must not see; nil means discard.
	Logger *slog.Logger
}

// API answers requests.
type API struct {
	ops   *ops.Ops
	who   func(*http.Request) ops.Who
	ready func(context.Context) error
	log   *slog.Logger
	huma  huma.API
	http.Handler
}

// New makes the API. It answers /api/, /livez, /readyz and /openapi.json.
func New(c Config) *API {
	teachHuma()
	a := &API{ops: c.Ops, who: c.Who, ready: c.Ready, log: c.Logger}
	if a.who == nil {
		a.who = func(*http.Request) ops.Who { return ops.Who{Actor: "person:api"} }
	}
	if a.ready == nil {
		a.ready = a.ops.Ready
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	a.huma = humago.New(mux, description())
	a.routeJobs()
	a.routeInstances()
	a.routeSystem()
	mux.HandleFunc("GET /livez", a.livez)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("/", nowhere(mux))
	a.Handler = a.known(strict(mux))
	return a
}

// description is the OpenAPI document without its routes, and without what huma adds by itself: a page that loads from
// elsewhere, links in each answer, routes for schemas.
func description() huma.Config {
	c := huma.DefaultConfig("Carillon", "v1")
	c.Info.Description = "Jobs, their runs, and what holds for all of them. Problems are RFC 9457, with a code that stays the same."
	c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", nil
	c.RejectUnknownQueryParameters = true
	return c
}

// OpenAPI is the document that describes the API.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().MarshalJSON() }

// known puts who asks into the request.
func (a *API) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, a.who(r))))
	})
}

// register adds a route whose errors become problems.
func register[I, O any](a *API, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	op.Path = Prefix + op.Path
	// Bodies have been read within their limits before huma sees them (strict.go).
	op.MaxBodyBytes, op.BodyReadTimeout = -1, -1
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, problemOf(ctx, a.log, err)
		}
		return out, nil
	})
}

// attempt is what is known of a run beside what is stored.
func (a *API) attempt(in *jobs.Instance) ops.Attempt {
	if in.State != jobs.Processing && !in.Lingering {
		return ops.Attempt{}
	}
	now, _ := a.ops.Live().Attempt(in.ID)
	return now
}

// livez says that the process runs. It looks at nothing else: restarting helps no one whose store is away.
func (a *API) livez(w http.ResponseWriter, _ *http.Request) { ok(w) }

// readyz says whether to send requests here.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	if err := a.ready(r.Context()); err != nil {
		a.log.DebugContext(r.Context(), "not ready", "err", err)
		problem(http.StatusServiceUnavailable, codeNotReady, err.Error()).write(w)
		return
	}
	ok(w)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
