// Package ui is the live page: what goes on, what comes next, what went wrong, and a few buttons.
//
// Pages are rendered here, by templates that are part of the program, and are whole without JavaScript. A small
// module (static/live.js) listens to one stream of events and fetches the page's parts again when something has
// changed; an event never carries data, so what a page shows always comes through the same handler and the same
// rights. Writes are forms that call the verbs of package ops.
//
// Where to start: [New]; then home.go and run.go, one per page.
//
// Sharp edges: nothing on a page may be inline script or style, the policy in the header forbids it. Sizes are
// attributes of SVG and progress elements.
package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"

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
	// Who says who sends a request; nil means a nameless person of the default tenant.
	Who func(*http.Request) ops.Who
	// Notice is a sentence that stands on top of every page, or "".
	Notice string
	// Logger gets what went wrong inside; nil means discard.
	Logger *slog.Logger
}

// UI answers the requests of browsers.
type UI struct {
	ops     *ops.Ops
	base    string
	who     func(*http.Request) ops.Who
	notice  string
	log     *slog.Logger
	pages   *template.Template
	static  string // path of the static files, which changes when they do
	streams chan struct{}
	http.Handler
}

// New makes the pages.
func New(c Config) *UI {
	u := &UI{ops: c.Ops, base: strings.TrimSuffix(c.Base, "/"), who: c.Who, notice: c.Notice, log: c.Logger, streams: make(chan struct{}, maxStreams)}
	if u.who == nil {
		u.who = func(*http.Request) ops.Who { return ops.Who{Actor: "person:page"} }
	}
	if u.log == nil {
		u.log = slog.New(slog.DiscardHandler)
	}
	u.static = "/static/" + fingerprint()
	u.pages = template.Must(template.New("").Funcs(u.functions()).ParseFS(files, "templates/*.gohtml"))
	mux := http.NewServeMux()
	mux.Handle("GET "+u.static+"/", http.StripPrefix(u.static+"/", staticFiles()))
	mux.HandleFunc("GET /events", u.events)
	mux.HandleFunc("GET /{$}", u.page(u.home))
	mux.HandleFunc("GET /runs/{id}", u.page(u.run))
	mux.HandleFunc("POST /runs/{id}/cancel", u.action(u.cancel))
	mux.HandleFunc("POST /runs/{id}/again", u.action(u.again))
	mux.HandleFunc("POST /jobs/{key}/trigger", u.action(u.trigger))
	mux.HandleFunc("POST /jobs/{key}/pause", u.action(u.pause))
	mux.HandleFunc("POST /jobs/{key}/resume", u.action(u.resume))
	mux.HandleFunc("POST /debug", u.action(u.debug))
	mux.HandleFunc("GET /", u.page(func(*http.Request) (string, any, error) {
		return "", nil, jobs.Refuse(jobs.NotFound, "there is no such page")
	}))
	u.Handler = headers(http.NewCrossOriginProtection().Handler(mux))
	return u
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

// page renders a view: as a whole page, or, for live.js, the parts that may change.
func (u *UI) page(view func(*http.Request) (name string, data any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, data, err := view(r)
		if err != nil {
			u.fail(w, r, err)
			return
		}
		u.render(w, r, http.StatusOK, name, data)
	}
}

// frame is what stands around every page.
type frame struct {
	Name    string
	Title   string
	Notice  string
	Leader  ops.Leader
	Debug   []debugBanner
	Content any
}

func (u *UI) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	f := frame{Name: name, Notice: u.notice, Leader: u.ops.Live().Leader(), Content: data}
	if titled, ok := data.(interface{ title() string }); ok {
		f.Title = titled.title()
	}
	f.Debug = u.banners(r.Context(), u.who(r))
	template := "page"
	if r.Header.Get("X-Fragment") != "" {
		template = "fragment"
	}
	var out bytes.Buffer
	if err := u.pages.ExecuteTemplate(&out, template, f); err != nil {
		u.log.ErrorContext(r.Context(), "page cannot be rendered", "page", name, "err", err)
		http.Error(w, "something went wrong on our side; it has been logged", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the browser may have gone
}

// action does what a form asks for and leads on to a page.
func (u *UI) action(do func(*http.Request) (next string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 2*jobs.MaxArgs)
		if err := r.ParseForm(); err != nil {
			u.fail(w, r, jobs.Invalid("the form cannot be read, or is too large"))
			return
		}
		next, err := do(r)
		if err != nil {
			u.fail(w, r, err)
			return
		}
		http.Redirect(w, r, u.base+next, http.StatusSeeOther)
	}
}

// failure is the page that says what is wrong.
type failure struct{ Text string }

func (failure) title() string { return "Not done" }

// fail says why not. Only refusals carry their text out.
func (u *UI) fail(w http.ResponseWriter, r *http.Request, err error) {
	text := err.Error()
	if refusal, ok := errors.AsType[*jobs.Refusal](err); ok {
		text = refusal.Text
	}
	switch jobs.CodeOf(err) {
	case jobs.NotFound:
		u.render(w, r, http.StatusNotFound, "failure", failure{text})
	case jobs.BadInput:
		u.render(w, r, http.StatusUnprocessableEntity, "failure", failure{text})
	case jobs.Conflict, jobs.Stale, jobs.Forbidden:
		u.render(w, r, http.StatusConflict, "failure", failure{text})
	case jobs.Unavailable:
		u.log.WarnContext(r.Context(), "page could not be answered", "path", r.URL.Path, "err", err)
		u.render(w, r, http.StatusServiceUnavailable, "failure", failure{"The scheduler cannot answer now. Try again in a moment."})
	default:
		if !errors.Is(err, context.Canceled) {
			u.log.ErrorContext(r.Context(), "page failed", "path", r.URL.Path, "err", err)
		}
		u.render(w, r, http.StatusInternalServerError, "failure", failure{"Something went wrong on our side; it has been logged."})
	}
}
