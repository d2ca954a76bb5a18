// Package api serves the scheduler over HTTP: JSON under /api/v1, described by OpenAPI 3.1.
//
// It is not promised to programs outside this module.
//
// Where to start: [New]. Wrap the handler in [Guard] and [Hosts], and serve it with [NewServer].
//
// It only translates: a request becomes a call of a verb in package ops, the result becomes JSON, and a refusal becomes
// a problem (RFC 9457) with a stable code. Only problem.go knows HTTP statuses.
//
// Sharp edges: internal errors never reach a client, and bodies are read strictly (strict.go). New sets process-wide
// hooks of the huma library (problem.go).
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Prefix is the path of the API.
const Prefix = "/api/v1"

// Config configures an API.
type Config struct {
	// Ops are the verbs.
	Ops *ops.Ops
	// Who authenticates a request (see Access). An error of jobs.Forbidden is answered by 401, one of TooMany by 429.
	// nil makes every caller an admin of the default tenant: for use within a process, and loopback. For a request that
	// waits or streams it is called again twice a second, with a context of metastore.FromCopy.
	Who func(*http.Request) (ops.Who, error)
	// Denied notes for the audit that a caller may not do something; nil means that it is not noted.
	Denied func(r *http.Request, who ops.Who, route, why string)
	// Base is the path under which the handler is mounted, such as "/jobs"; "" = at the root. The handler expects it to
	// be stripped (http.StripPrefix) already.
	Base string
	// Ready returns why this process should get no requests yet, for users, or nil. Default: the store answers, and a
	// leader is known (ops.Ready).
	Ready func(context.Context) error
	// Leads returns why this process does not lead, for users, or nil. Default: as Ready.
	Leads func(context.Context) error
	// Memory limits the memory of requests in process, as estimated from their bodies, and MemoryPerToken that of one
	// token's requests; both at least LeastMemory. Default: 1 GiB and 512 MiB. Without Who, only Memory applies.
	Memory, MemoryPerToken int64
	// Refused is called for each request that a memory limit refuses; nil = no call.
	Refused func(jobs.Tenant, error)
	// Logger gets internal errors; nil means discard.
	Logger *slog.Logger
}

// API serves the HTTP API.
type API struct {
	ops      *ops.Ops
	base     string
	who      func(*http.Request) (ops.Who, error)
	ready    func(context.Context) error
	leads    func(context.Context) error
	log      *slog.Logger
	episodes *episode.Log
	denied   func(r *http.Request, who ops.Who, route, why string)
	refused  func(jobs.Tenant, error)
	huma     huma.API
	mux      *http.ServeMux
	rules    map[string]rule     // by the pattern of a route: the roles that may use it
	long     map[string]bool     // by the pattern of a route: it ends when its sender may no longer use it
	queries  map[string][]string // by the pattern of a route: its query parameters
	rates    rates               // of requests, by principal
	edits    rates               // of changes of one job
	wrong    rates               // of feedback with a wrong signature, by address
	streams  streams
	memory   memory
	http.Handler
}

// Paths returns the patterns that New serves, for the mux that it is mounted in.
func Paths() []string {
	return []string{"/api/", "/livez", "/readyz", "/leaderz", "/openapi.json", "/openapi.yaml", "/openapi-3.0.json", "/docs", "/docs/"}
}

// New returns an API that serves everything under Paths.
func New(c Config) *API {
	teachHuma()
	a := &API{ops: c.Ops, base: strings.TrimSuffix(c.Base, "/"), who: c.Who, ready: c.Ready, leads: c.Leads, log: c.Logger, mux: http.NewServeMux(), rules: map[string]rule{}, long: map[string]bool{}, queries: map[string][]string{},
		rates: rates{rate: 2_000, burst: 4_000}, edits: rates{rate: 10, burst: 100},
		wrong:  rates{rate: 0.5, burst: 10},
		memory: memory{most: cmp.Or(c.Memory, defaultMemory), each: cmp.Or(c.MemoryPerToken, defaultMemoryPerToken)}}
	if a.who == nil {
		a.memory.each = a.memory.most // callers have no names, so there is no limit per token
		a.who = func(*http.Request) (ops.Who, error) { return ops.Who{Actor: "person:api", Role: ops.Admin}, nil }
	}
	if a.ready == nil {
		a.ready = a.ops.Ready
	}
	if a.leads == nil {
		a.leads = a.ready
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.refused = c.Refused; a.refused == nil {
		a.refused = func(jobs.Tenant, error) {}
	}
	if a.denied = c.Denied; a.denied == nil {
		a.denied = func(*http.Request, ops.Who, string, string) {}
	}
	a.episodes = episode.New(a.log)
	a.huma = humago.New(a.mux, description())
	a.routeJobs()
	a.routeDeclare()
	a.routeVersions()
	a.routeSeed()
	a.routeRuns()
	a.routeFamily()
	a.routeGraph()
	a.routeBatches()
	a.routeCheckIn()
	a.routeBackfill()
	a.routeSystem()
	a.routeTokens()
	a.routeTenants()
	a.routeCalendars()
	a.routeAlarms()
	a.routeOutbox()
	a.routeForecast()
	a.routeCluster()
	a.routeEvents()
	a.routeBackup()
	a.routeLedger()
	a.routeWorker()
	a.open("GET /livez", a.livez)
	a.open("GET /readyz", a.probe(a.ready))
	a.open("GET /leaderz", a.probe(a.leads))
	a.routeDocuments()
	a.open(feedbackRoute, a.feedback)
	a.open("/", nowhere(a.mux))
	a.Handler = a.ruled(a.Counted(strict(a.mux, a.checkedAgain)))
	return a
}

// description returns the OpenAPI document without its routes, and without huma's additions: a page that loads from
// other hosts, links in each response, routes for schemas, and documents that are written anew while others read them.
func description() huma.Config {
	c := huma.DefaultConfig("Carillon", "v1")
	c.Info.Description = about
	c.DocsPath, c.SchemasPath, c.OpenAPIPath, c.CreateHooks = "", "", "", nil
	c.RejectUnknownQueryParameters = true
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "A token of the role that the operation names under x-role, of one above it, or of one under x-also."},
		"session": {Type: "apiKey", In: "cookie", Name: SessionCookie, Description: "The session cookie that signing in at the dashboard sets."},
	}
	return c
}

// Route returns the pattern of the route that serves a request, such as "GET /api/v1/jobs/{key}".
func (a *API) Route(r *http.Request) string {
	_, pattern := a.mux.Handler(r)
	return pattern
}

// about introduces the OpenAPI document.
const about = "Jobs, their runs, and the settings of all jobs. " +
	"Errors are RFC 9457 problems with a stable code. " +
	"Roles: viewers read everything, the arguments and results of runs included; operators also trigger, cancel, run again, pause and resume; " +
	"admins also edit and delete jobs, change settings, create tokens and read the audit; workers only run jobs; " +
	"clients only start runs, and read those of the jobs that they may start. " +
	"More than 2,000 requests a second, or 10 changes of one job, are answered by 429 with Retry-After."

// OpenAPI returns the document that describes the API.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().MarshalJSON() }

// ruled passes a request on to its route if its sender is authorized and below the rate limits. It runs before the body
// is read: the body of an unauthenticated request is not worth reading.
func (a *API) ruled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		_, route := a.mux.Handler(r)
		if may, known := a.rules[route]; known && may.open() && !strings.HasPrefix(r.URL.Path, Prefix+"/") {
			a.mux.ServeHTTP(w, r) // none of these has a body
			return
		}
		if route == feedbackRoute { // requests are authenticated by the signature in the URL
			next.ServeHTTP(w, r)
			return
		}
		asker, err := a.who(r)
		if err != nil {
			a.refuse(r.Context(), err).write(w)
			return
		}
		if err := a.Admit(asker); err != nil {
			a.refuse(r.Context(), err).write(w)
			return
		}
		if p := a.permit(asker, route); p != nil {
			a.denied(r, asker, route, p.Detail)
			p.write(w)
			return
		}
		if p := a.checkNames(route, r.URL.Query()); p != nil {
			p.write(w)
			return
		}
		ctx := context.WithValue(r.Context(), whoKey{}, asker)
		ctx = context.WithValue(ctx, deniedKey{}, func(why string) { a.denied(r, asker, route, why) })
		if a.long[route] {
			var stop func()
			ctx, stop = a.whilePermitted(ctx, r, route)
			defer stop()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// permit returns why a caller may not use a route, or nil.
func (a *API) permit(asker ops.Who, route string) *Problem {
	may, known := a.rules[route]
	switch {
	case !known: // a route that was not made by register or open
		return problem(http.StatusForbidden, codeForbidden, "no role may use this route")
	case !may.open() && !may.permits(asker.Role):
		return problem(http.StatusForbidden, codeForbidden, fmt.Sprintf("this needs the role %s, and the token has the role %s", may, asker.Role))
	}
	return nil
}

// rule is which roles may use a route: need and the roles above it, and programs of the roles also.
type rule struct {
	need ops.Role // NoRole = no authentication
	also []ops.Role
}

func (r rule) open() bool { return r.need == ops.NoRole }

func (r rule) permits(role ops.Role) bool {
	return role.Covers(r.need) || slices.Contains(r.also, role)
}

// String returns the roles, the least first, such as "client or operator".
func (r rule) String() string {
	var names strings.Builder
	for _, role := range r.also {
		names.WriteString(role.String() + " or ")
	}
	return names.String() + r.need.String()
}

// queryOf lists the query parameters of an input.
func queryOf(input reflect.Type) (names []string) {
	for f := range input.Fields() {
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			names = append(names, queryOf(f.Type)...)
		}
		if name, _, _ := strings.Cut(f.Tag.Get("query"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// checkNames refuses a query parameter that a route does not have: under a misspelled filter a list would be of all.
func (a *API) checkNames(route string, query url.Values) *Problem {
	known, registered := a.queries[route]
	for name := range query {
		if registered && !slices.Contains(known, name) {
			want := "it has none"
			if len(known) > 0 {
				want = "want one of " + strings.Join(known, ", ")
			}
			detail := fmt.Sprintf("unknown query parameter %.40q of %s: %s", name, route, want)
			return problem(http.StatusUnprocessableEntity, codeInvalid, detail, Fault{Location: "query." + name, Message: "is unknown"})
		}
	}
	return nil
}

// deniedKey is the key of a func(why string) that notes a refused request.
type deniedKey struct{}

// Guarded passes requests on to a handler beside the API if their sender has the role and is of the default tenant: the
// handler does not separate tenants.
func (a *API) Guarded(need ops.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asker, err := a.who(r)
		if err != nil {
			a.refuse(r.Context(), err).write(w)
			return
		}
		why := ""
		switch {
		case !asker.Role.Covers(need):
			why = fmt.Sprintf("this needs the role %s, and the token has the role %s", need, asker.Role)
		case asker.Tenant != "" && asker.Tenant != jobs.DefaultTenant:
			why = fmt.Sprintf("tenant %s may not use this route: it shows all tenants", asker.Tenant)
		default:
			next.ServeHTTP(w, r)
			return
		}
		a.denied(r, asker, r.Method+" "+r.URL.Path, why)
		problem(http.StatusForbidden, codeForbidden, why).write(w)
	})
}

// refuse returns the problem of a request that is not authenticated.
func (a *API) refuse(ctx context.Context, err error) *Problem {
	if errors.Is(err, jobs.Forbidden) {
		p := problem(http.StatusUnauthorized, codeUnauthorized, "authentication required: send a valid, unexpired bearer token")
		p.header = map[string]string{"WWW-Authenticate": `Bearer realm="carillon"`}
		return p
	}
	return problemOf(ctx, a.episodes, err)
}

// open adds a route that needs no authentication.
func (a *API) open(pattern string, handler http.HandlerFunc) {
	a.rules[pattern] = rule{}
	a.mux.HandleFunc(pattern, handler)
}

// register adds a route that needs a role, or one of also, and whose errors become problems.
func register[I, O any](a *API, need ops.Role, op huma.Operation, handler func(context.Context, *I) (*O, error), also ...ops.Role) {
	op = a.rule(need, op, also...)
	a.queries[op.Method+" "+op.Path] = queryOf(reflect.TypeFor[I]())
	// Bodies have been read within their limits before huma sees them (strict.go).
	op.MaxBodyBytes, op.BodyReadTimeout = -1, -1
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			p := problemOf(ctx, a.episodes, err)
			if note, is := ctx.Value(deniedKey{}).(func(string)); is && p.Status == http.StatusForbidden {
				note(p.Detail)
			}
			return nil, p
		}
		return out, nil
	})
}

// rule records which roles may use an operation, and adds them to the operation's description.
func (a *API) rule(need ops.Role, op huma.Operation, also ...ops.Role) huma.Operation {
	if need == ops.NoRole {
		panic("api: " + op.OperationID + " needs a role")
	}
	op.Path = Prefix + op.Path
	a.rules[op.Method+" "+op.Path] = rule{need, also}
	op.Security = []map[string][]string{{"token": {}}, {"session": {}}}
	op.Extensions = map[string]any{"x-role": need.String()}
	if len(also) > 0 {
		names := make([]string, len(also))
		for i, role := range also {
			names[i] = role.String()
		}
		op.Extensions["x-also"] = names
	}
	return op
}

// attempt returns what workers reported about a run beyond what is stored.
func (a *API) attempt(run *kernel.Run) ops.Attempt {
	if run.State != jobs.Processing && !run.Lingering {
		return ops.Attempt{}
	}
	now, _ := a.ops.Live().Attempt(run.Tenant, run.ID)
	return now
}

// livez reports that the process runs. It checks nothing else: a restart does not help if the store is unavailable.
func (a *API) livez(w http.ResponseWriter, _ *http.Request) { ok(w) }

// probe answers whether something holds for this process: /readyz for requests, /leaderz for the lead.
func (a *API) probe(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := check(r.Context()); err != nil {
			a.log.DebugContext(r.Context(), "not ready", "err", err)
			NotReady(w, err.Error())
			return
		}
		ok(w)
	}
}

// IsProbe reports whether a path is that of a probe.
func IsProbe(path string) bool { return path == "/livez" || path == "/readyz" || path == "/leaderz" }

// Starting answers requests to a process whose store is not open yet: it lives, and is not ready.
func Starting(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/livez" {
		ok(w)
		return
	}
	NotReady(w, "the server is starting: it opens its store, or waits for other nodes; see its log")
}

// NotReady answers 503 with the reason.
func NotReady(w http.ResponseWriter, reason string) {
	problem(http.StatusServiceUnavailable, codeNotReady, reason).write(w)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
