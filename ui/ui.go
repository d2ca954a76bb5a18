// Package ui serves the dashboard: live pages about jobs and runs, and forms to act on them.
//
// It is not promised to programs outside this module.
//
// Where to start: [New], which lists the routes; frame.go for the common part of all pages; then one file, and one
// template, per page. static/style.css begins with a list of the parts of pages; package chart draws.
//
// Pages are rendered here, by embedded templates, and work without JavaScript. Small modules (static/live.js and
// others) listen to one stream of events and fetch the page's parts again after a change; an event has no data, so a
// page's data always passes the same handler and the same authorization. Writes are forms that call the verbs of
// package ops.
//
// Sharp edges: the policy in the header forbids inline scripts and styles. Sizes are attributes of SVG and progress
// elements. Users of the same role and scope share fragments for up to a second (fragment.go), so a page may depend
// on these, but not on the user.
package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/static"
)

//go:embed templates
var files embed.FS

// policy is the Content-Security-Policy: only resources and requests of this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types fragment"

// Config configures the pages.
type Config struct {
	// Ops are the verbs.
	Ops *ops.Ops
	// Base is the path under which the pages are mounted, such as "/jobs"; "" = at the root. The handler expects it to
	// have been stripped (http.StripPrefix).
	Base string
	// Who authenticates a request; an error of jobs.Forbidden redirects to the login page. Nil makes every caller an
	// anonymous user of the default tenant with all permissions.
	Who func(*http.Request) (ops.Who, error)
	// Admit refuses a request that exceeds its user's rate limit; nil admits all.
	Admit func(ops.Who) error
	// Access lets users sign in, and then Who may be left out; nil disables signing in.
	Access Access
	// SignIn lets users sign in at an identity provider, beside tokens; nil disables it. Not without Access.
	SignIn SignIn
	// Notice is a sentence at the top of every page, or "".
	Notice string
	// Bus is the NATS address in code to copy; "" = the default port.
	Bus string
	// About describes this process on the page of settings.
	About About
	// Logger gets internal errors; nil means discard.
	Logger *slog.Logger
}

// UI serves the dashboard.
type UI struct {
	ops       *ops.Ops
	base      string
	who       func(*http.Request) (ops.Who, error)
	admit     func(ops.Who) error
	access    Access
	signInAt  SignIn // nil = there is no identity provider
	open      bool   // the server requires no authentication
	notice    string
	bus       string
	about     About
	log       *slog.Logger
	episodes  *episode.Log
	pages     map[string]func() *template.Template // by page
	parts     map[string]func() *template.Template // the same for fragments, without relative times
	static    string                               // path of the static files, which changes when they do
	hub       hub
	fragments fragments
	sparks    sparks
	mux       *http.ServeMux
	http.Handler
}

// New returns the dashboard.
func New(c Config) *UI {
	u := &UI{ops: c.Ops, base: strings.TrimSuffix(c.Base, "/"), who: c.Who, admit: c.Admit, access: c.Access, signInAt: c.SignIn, notice: c.Notice, bus: c.Bus, about: c.About, log: c.Logger}
	if u.who == nil && c.Access != nil {
		u.who = c.Access.Who
	}
	if u.who == nil {
		u.open = true
		u.who = func(*http.Request) (ops.Who, error) { return ops.Who{Actor: nameless, Role: ops.Admin}, nil }
	}
	if u.log == nil {
		u.log = slog.New(slog.DiscardHandler)
	}
	u.episodes = episode.New(u.log)
	u.hub.ops = c.Ops
	u.static = "/static/" + fingerprint()
	u.parse()
	mux := http.NewServeMux()
	mux.Handle("GET "+u.static+"/", http.StripPrefix(u.static+"/", staticFiles()))
	mux.HandleFunc("GET /events", u.events)
	mux.HandleFunc("POST /theme", u.theme)
	mux.HandleFunc("GET /login", u.anyone(u.login))
	mux.HandleFunc("POST /login", u.anyone(u.signIn))
	mux.HandleFunc("GET /login/provider", u.anyone(u.leave))
	mux.HandleFunc("GET /login/callback", u.anyone(u.arrive))
	mux.HandleFunc("POST /logout", u.anyone(u.signOut))
	for _, r := range []struct {
		pattern string
		need    ops.Role
		do      handler
	}{
		{"GET /{$}", ops.Viewer, u.overview},
		{"GET /search", ops.Viewer, u.search},
		{"GET /runs", ops.Viewer, u.runs},
		{"POST /runs/bulk", ops.Operator, u.bulk},
		{"GET /bulk/jobs/pause", ops.Operator, u.manyJobs(ops.PauseJobs)},
		{"POST /bulk/jobs/pause", ops.Operator, u.manyJobs(ops.PauseJobs)},
		{"GET /bulk/jobs/resume", ops.Operator, u.manyJobs(ops.ResumeJobs)},
		{"POST /bulk/jobs/resume", ops.Operator, u.manyJobs(ops.ResumeJobs)},
		{"GET /bulk/jobs/trigger", ops.Operator, u.manyJobs(ops.TriggerJobs)},
		{"POST /bulk/jobs/trigger", ops.Operator, u.manyJobs(ops.TriggerJobs)},
		{"GET /bulk/jobs/delete", ops.Admin, u.manyJobs(ops.DeleteJobs)},
		{"POST /bulk/jobs/delete", ops.Admin, u.manyJobs(ops.DeleteJobs)},
		{"GET /bulk/runs/cancel", ops.Operator, u.manyRuns(ops.CancelRuns)},
		{"POST /bulk/runs/cancel", ops.Operator, u.manyRuns(ops.CancelRuns)},
		{"GET /bulk/runs/retry", ops.Operator, u.manyRuns(ops.RetryRuns)},
		{"POST /bulk/runs/retry", ops.Operator, u.manyRuns(ops.RetryRuns)},
		{"GET /runs/{id}", ops.Viewer, u.run},
		{"GET /runs/{id}/log", ops.Viewer, u.logFile},
		{"POST /runs/{id}/cancel", ops.Operator, u.cancel},
		{"POST /runs/{id}/again", ops.Operator, u.again},
		{"GET /jobs", ops.Viewer, u.jobs},
		{"GET /jobs/{key}", ops.Viewer, u.job},
		{"GET /jobs/{key}/run", ops.Operator, u.runForm},
		{"POST /jobs/{key}/trigger", ops.Operator, u.trigger},
		{"GET /jobs/{key}/pause", ops.Operator, u.pausePage},
		{"POST /jobs/{key}/pause", ops.Operator, u.pause},
		{"POST /jobs/{key}/resume", ops.Operator, u.resume},
		{"GET /jobs/{key}/backfill", ops.Operator, u.backfillPage},
		{"POST /jobs/{key}/backfill", ops.Operator, u.backfill},
		{"GET /new", ops.Admin, u.newHTTPPage},
		{"POST /new", ops.Admin, u.newHTTP},
		{"GET /new/command", ops.Admin, u.newCommandPage},
		{"POST /new/command", ops.Admin, u.newCommand},
		{"GET /jobs/{key}/new", ops.Admin, u.newJobPage},
		{"POST /jobs/{key}/new", ops.Admin, u.newJob},
		{"GET /jobs/{key}/edit", ops.Admin, u.editPage},
		{"POST /jobs/{key}/edit", ops.Admin, u.edit},
		{"GET /jobs/{key}/requests", ops.Admin, u.requestsPage},
		{"POST /jobs/{key}/requests", ops.Admin, u.editRequests},
		{"POST /jobs/{key}/follow", ops.Admin, u.follow},
		{"GET /jobs/{key}/versions", ops.Viewer, u.versions},
		{"GET /jobs/{key}/rollback", ops.Admin, u.rollbackForm},
		{"POST /jobs/{key}/rollback", ops.Admin, u.rollback},
		{"GET /jobs/{key}/delete", ops.Admin, u.deletePage},
		{"POST /jobs/{key}/delete", ops.Admin, u.delete},
		{"GET /workers", ops.Viewer, u.workers},
		{"POST /workers/{name}/drain", ops.Operator, u.drain(u.ops.Drain, true)},
		{"POST /workers/{name}/resume", ops.Operator, u.drain(u.ops.Drain, false)},
		{"POST /apps/{name}/drain", ops.Operator, u.drain(u.ops.DrainApp, true)},
		{"POST /apps/{name}/resume", ops.Operator, u.drain(u.ops.DrainApp, false)},
		{"GET /stats", ops.Viewer, u.stats},
		{"GET /forecast", ops.Viewer, u.forecast},
		{"GET /forecast/day", ops.Viewer, u.day},
		{"GET /calendars", ops.Viewer, u.calendars},
		{"GET /calendars/new", ops.Admin, u.newCalendar},
		{"POST /calendars", ops.Admin, u.setCalendar},
		{"GET /calendars/{name}", ops.Viewer, u.calendar},
		{"POST /calendars/{name}", ops.Admin, u.setCalendar},
		{"POST /calendars/{name}/delete", ops.Admin, u.dropCalendar},
		{"GET /alarms", ops.Viewer, u.alarms},
		{"POST /alarms/end", ops.Operator, u.endAlarm},
		{"GET /alarms/targets/new", ops.Admin, u.newAlarmTarget},
		{"POST /alarms/targets", ops.Admin, u.setAlarmTarget},
		{"GET /alarms/targets/{name}", ops.Viewer, u.alarmTarget},
		{"POST /alarms/targets/{name}", ops.Admin, u.setAlarmTarget},
		{"POST /alarms/targets/{name}/test", ops.Admin, u.testAlarmTarget},
		{"POST /alarms/targets/{name}/delete", ops.Admin, u.dropAlarmTarget},
		{"GET /alarms/rules/new", ops.Admin, u.newAlarmRule},
		{"POST /alarms/rules", ops.Admin, u.setAlarmRule},
		{"GET /alarms/rules/{name}", ops.Viewer, u.alarmRule},
		{"POST /alarms/rules/{name}", ops.Admin, u.setAlarmRule},
		{"POST /alarms/rules/{name}/delete", ops.Admin, u.dropAlarmRule},
		{"GET /batches", ops.Viewer, u.batches},
		{"POST /batches/{id}/close", ops.Operator, u.closeBatch},
		{"GET /outbox", ops.Viewer, u.outbox},
		{"POST /outbox", ops.Operator, u.changeRefused},
		{"GET /cluster", ops.Viewer, u.cluster},
		{"POST /cluster/transfer", ops.Admin, u.transfer},
		{"GET /settings", ops.Viewer, u.settings},
		{"POST /settings", ops.Admin, u.configure},
		{"POST /debug", ops.Admin, u.debug},
		{"POST /purge", ops.Admin, u.purge},
		{"GET /access", ops.Admin, u.tokens},
		{"POST /access", ops.Admin, u.grant},
		{"POST /access/{id}/revoke", ops.Admin, u.revoke},
		{"GET /tenants", ops.Admin, u.tenants},
		{"POST /tenants", ops.Admin, u.createTenant},
		{"GET /tenants/{name}", ops.Admin, u.tenant},
		{"POST /tenants/{name}", ops.Admin, u.changeTenant},
		{"POST /sessions/{id}/end", ops.Admin, u.endSession},
		{"GET /session", ops.Viewer, u.session},
		{"POST /session", ops.Viewer, u.switchTenant},
		{"GET /audit", ops.Admin, u.audit},
		{"GET /", ops.Viewer, func(*http.Request, visitor) (answer, error) {
			return answer{}, kernel.Refuse(jobs.NotFound, "page not found")
		}},
	} {
		mux.HandleFunc(r.pattern, u.route(r.need, r.do))
	}
	u.mux = mux
	u.Handler = u.headers(mux)
	return u
}

// parse prepares the templates: frame.gohtml and parts.gohtml are part of every page, each other file is a page of its
// own and defines "content". A page is read when it is first shown: all of them took half of the CPU time in which a
// node starts.
func (u *UI) parse() {
	u.pages, u.parts = map[string]func() *template.Template{}, map[string]func() *template.Template{}
	frame := sync.OnceValue(func() *template.Template {
		return template.Must(template.New("").Funcs(u.functions()).ParseFS(files, "templates/frame.gohtml", "templates/parts.gohtml"))
	})
	names, err := fs.Glob(files, "templates/*.gohtml")
	if err != nil {
		panic(err) // the pattern is fixed
	}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".gohtml")
		if page == "frame" || page == "parts" {
			continue
		}
		read := func(other template.FuncMap) func() *template.Template {
			return sync.OnceValue(func() *template.Template {
				return template.Must(template.Must(frame().Clone()).Funcs(other).ParseFS(files, name))
			})
		}
		u.pages[page], u.parts[page] = read(nil), read(timeless)
	}
}

// Route returns the pattern of the route that serves a request, such as "GET /runs/{id}".
func (u *UI) Route(r *http.Request) string {
	_, pattern := u.mux.Handler(r)
	return pattern
}

func (u *UI) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", u.policy())
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// policy returns the policy of all pages. The form that signs out may lead to the identity provider: browsers check
// redirects, too.
func (u *UI) policy() string {
	if u.signInAt != nil {
		return strings.Replace(policy, "form-action 'self'", "form-action 'self' "+strings.Join(u.signInAt.Origins(), " "), 1)
	}
	return policy
}

// staticFiles serves files that never change under their path, so browsers may cache them.
func staticFiles() http.Handler {
	serve := http.FileServerFS(static.Files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, r)
	})
}

// fingerprint returns a hash of the static files.
func fingerprint() string {
	hash := sha256.New()
	_ = fs.WalkDir(static.Files, ".", func(path string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			content, _ := static.Files.ReadFile(path)
			hash.Write(content)
		}
		return nil
	})
	return hex.EncodeToString(hash.Sum(nil)[:6])
}
