// Package ui is the live page: what goes on, what comes next, what went wrong, and what can be done about it.
//
// Pages are rendered here, by templates that are part of the program, and are whole without JavaScript. Small modules
// (static/live.js and its neighbours) listen to one stream of events and fetch the page's parts again when something
// has changed; an event never carries data, so what a page shows always comes through the same handler and the same
// rights. Writes are forms that call the verbs of package ops.
//
// Where to start: [New], which lists the routes; frame.go for what all pages have in common; then one file, and one
// template, per page. static/style.css begins with a list of the parts that pages are made of; package chart draws.
//
// Sharp edges: nothing on a page may be inline script or style, the policy in the header forbids it. Sizes are
// attributes of SVG and progress elements. Fragments are shared between readers of the same role for up to a second
// (fragment.go), so a page may not depend on who reads it, only on what they may do.
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

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

//go:embed templates static
var files embed.FS

// policy is what a page may do: show what it was sent, and talk to where it came from.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types fragment"

// Config is what the pages stand on.
type Config struct {
	// Ops are the verbs.
	Ops *ops.Ops
	// Base is the path under which the pages are mounted, such as "/jobs"; "" = at the root. The handler expects it to
	// have been stripped (http.StripPrefix).
	Base string
	// Who says who sends a request; an error of jobs.Forbidden leads to the login page. Nil means a nameless person of
	// the default tenant who may do everything.
	Who func(*http.Request) (ops.Who, error)
	// Admit refuses a request that comes too soon after others of the same person; nil means that none does.
	Admit func(ops.Who) error
	// Access lets people sign in, and then Who may be left out; nil means that nobody can.
	Access Access
	// Notice is a sentence that stands on top of every page, or "".
	Notice string
	// Bus is the NATS address that the pages put into code to copy; "" = the default port.
	Bus string
	// About is what the page of settings says about this process.
	About About
	// Logger gets what went wrong inside; nil means discard.
	Logger *slog.Logger
}

// UI answers the requests of browsers.
type UI struct {
	ops       *ops.Ops
	base      string
	who       func(*http.Request) (ops.Who, error)
	admit     func(ops.Who) error
	access    Access
	open      bool // nobody is asked who they are
	notice    string
	bus       string
	about     About
	log       *slog.Logger
	pages     map[string]*template.Template // by the name of the page
	parts     map[string]*template.Template // the same for fragments, without words that change by themselves
	static    string                        // path of the static files, which changes when they do
	hub       hub
	fragments fragments
	sparks    sparks
	mux       *http.ServeMux
	http.Handler
}

// New makes the pages.
func New(c Config) *UI {
	u := &UI{ops: c.Ops, base: strings.TrimSuffix(c.Base, "/"), who: c.Who, admit: c.Admit, access: c.Access, notice: c.Notice, bus: c.Bus, about: c.About, log: c.Logger}
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
	u.hub.ops = c.Ops
	u.static = "/static/" + fingerprint()
	u.parse()
	mux := http.NewServeMux()
	mux.Handle("GET "+u.static+"/", http.StripPrefix(u.static+"/", staticFiles()))
	mux.HandleFunc("GET /events", u.events)
	mux.HandleFunc("POST /theme", u.theme)
	mux.HandleFunc("GET /login", u.anyone(u.login))
	mux.HandleFunc("POST /login", u.anyone(u.signIn))
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
		{"GET /jobs/{key}/edit", ops.Admin, u.editPage},
		{"POST /jobs/{key}/edit", ops.Admin, u.edit},
		{"POST /jobs/{key}/follow", ops.Admin, u.follow},
		{"GET /jobs/{key}/versions", ops.Viewer, u.versions},
		{"POST /jobs/{key}/rollback", ops.Admin, u.rollback},
		{"GET /jobs/{key}/delete", ops.Admin, u.deletePage},
		{"POST /jobs/{key}/delete", ops.Admin, u.delete},
		{"GET /workers", ops.Viewer, u.workers},
		{"POST /workers/{name}/drain", ops.Operator, func(r *http.Request, v visitor) (answer, error) { return u.drain(r, v, true) }},
		{"POST /workers/{name}/resume", ops.Operator, func(r *http.Request, v visitor) (answer, error) { return u.drain(r, v, false) }},
		{"GET /forecast", ops.Viewer, u.forecast},
		{"GET /calendars", ops.Viewer, u.calendars},
		{"GET /calendars/new", ops.Admin, u.newCalendar},
		{"POST /calendars", ops.Admin, u.setCalendar},
		{"GET /calendars/{name}", ops.Viewer, u.calendar},
		{"POST /calendars/{name}", ops.Admin, u.setCalendar},
		{"POST /calendars/{name}/delete", ops.Admin, u.dropCalendar},
		{"GET /cluster", ops.Viewer, u.cluster},
		{"POST /cluster/transfer", ops.Admin, u.transfer},
		{"GET /settings", ops.Viewer, u.settings},
		{"POST /settings", ops.Admin, u.configure},
		{"POST /debug", ops.Admin, u.debug},
		{"POST /clean", ops.Admin, u.clean},
		{"GET /access", ops.Admin, u.tokens},
		{"POST /access", ops.Admin, u.grant},
		{"POST /access/{id}/revoke", ops.Admin, u.revoke},
		{"GET /audit", ops.Admin, u.audit},
		{"GET /", ops.Viewer, func(*http.Request, visitor) (answer, error) {
			return answer{}, kernel.Refuse(jobs.NotFound, "page not found")
		}},
	} {
		mux.HandleFunc(r.pattern, u.route(r.need, r.do))
	}
	u.mux = mux
	u.Handler = headers(http.NewCrossOriginProtection().Handler(mux))
	return u
}

// parse reads the templates: frame.gohtml and parts.gohtml are part of every page, each other file is a page of its
// own and defines "content".
func (u *UI) parse() {
	u.pages, u.parts = map[string]*template.Template{}, map[string]*template.Template{}
	frame := template.Must(template.New("").Funcs(u.functions()).ParseFS(files, "templates/frame.gohtml", "templates/parts.gohtml"))
	names, err := fs.Glob(files, "templates/*.gohtml")
	if err != nil {
		panic(err) // the pattern is fixed
	}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".gohtml")
		if page == "frame" || page == "parts" {
			continue
		}
		whole := template.Must(template.Must(frame.Clone()).ParseFS(files, name))
		u.parts[page] = template.Must(whole.Clone()).Funcs(timeless)
		u.pages[page] = whole
	}
}

// Route is the pattern of the route that answers a request, such as "GET /runs/{id}".
func (u *UI) Route(r *http.Request) string {
	_, pattern := u.mux.Handler(r)
	return pattern
}

func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// staticFiles never change under their path, so browsers may keep them.
func staticFiles() http.Handler {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	serve := http.FileServerFS(static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, r)
	})
}

// fingerprint of the static files.
func fingerprint() string {
	hash := sha256.New()
	_ = fs.WalkDir(files, "static", func(path string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			content, _ := files.ReadFile(path)
			hash.Write(content)
		}
		return nil
	})
	return hex.EncodeToString(hash.Sum(nil)[:6])
}
