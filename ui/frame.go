package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// visitor is the user of a page. Views embed it, so that their templates can leave out forbidden actions.
type visitor struct{ Who ops.Who }

// Operator reports whether the visitor may act on jobs and runs.
func (v visitor) Operator() bool { return v.Who.Role.Covers(ops.Operator) }

// May reports whether the visitor may act on a job and its runs.
func (v visitor) May(d *kernel.Definition) bool { return v.Operator() && v.Who.May(d) }

// Everywhere reports whether the visitor may act on all jobs.
func (v visitor) Everywhere() bool { return v.Operator() && v.Who.Scope == nil }

// Admin reports whether the visitor may change settings.
func (v visitor) Admin() bool { return v.Who.Role.Covers(ops.Admin) }

// scope returns the jobs that the visitor may act on as a text; "" = all.
func (v visitor) scope() string {
	if v.Who.Scope == nil {
		return ""
	}
	return v.Who.Scope.String()
}

// Name returns the visitor's name.
func (v visitor) Name() string { return strings.TrimPrefix(v.Who.Actor, "person:") }

// handler serves a visitor whose role is sufficient.
type handler func(*http.Request, visitor) (answer, error)

// answer is a page, or a redirect.
type answer struct {
	page    string // its template
	title   string // "" on the overview
	data    any
	status  int                       // 0 = 200
	next    string                    // redirect to this path in this site; see goTo
	write   func(http.ResponseWriter) // or: the response without a page, such as a file
	away    string                    // redirect to this URL of the identity provider
	cookies []*http.Cookie            // for the browser
}

// goTo redirects after a change. did is a key of toasts, or "".
func goTo(path, did string) answer { return answer{next: withDid(path, did)} }

// withDid adds the key of a toast to a path.
func withDid(path, did string) string {
	switch {
	case did == "":
		return path
	case strings.Contains(path, "?"):
		return path + "&did=" + did
	}
	return path + "?did=" + did
}

// toasts are the messages after a change, by the key in the URL.
var toasts = map[string]string{
	"paused": "Paused.", "drained": "Drained: current runs finish, and no new ones start.", "resumed": "Resumed.", "backfilled": "Runs created.", "saved": "Saved.", "started": "Started.", "cancelled": "Cancelled.", "deleted": "Deleted.", "deleting": "The tenant is being deleted.", "alarm": "Alarm ended.",
	"follows": "The setting follows the code again.", "debug": "Debug mode changed.", "transfer": "Leadership transferred.", "revoked": "Token revoked.", "ended": "Session ended.", "settings": "Settings saved.", "purged": "Purge started.",
}

// route authenticates a request, checks the role, and calls do.
func (u *UI) route(need ops.Role, do handler) http.HandlerFunc {
	admitted := u.checked(do, true)
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := u.visitor(r)
		if err != nil {
			u.turnAway(w, r, err)
			return
		}
		if !v.Who.Role.Covers(need) {
			u.fail(w, r, v, kernel.Refuse(jobs.Forbidden, "this requires the role %s, yours is %s", need, v.Who.Role))
			return
		}
		admitted(w, r, v)
	}
}

// anyone calls do without authentication.
func (u *UI) anyone(do handler) http.HandlerFunc {
	admitted := u.checked(do, false)
	return func(w http.ResponseWriter, r *http.Request) {
		v, _ := u.visitor(r)
		admitted(w, r, v)
	}
}

// checked checks the form of a request and calls do. A form that arrives slowly is authenticated again: meanwhile the
// session may have ended.
func (u *UI) checked(do handler, authenticated bool) func(http.ResponseWriter, *http.Request, visitor) {
	return func(w http.ResponseWriter, r *http.Request, v visitor) {
		if r.Method == http.MethodPost {
			began := time.Now()
			r.Body = http.MaxBytesReader(w, r.Body, 2*kernel.MaxArgs)
			if err := r.ParseForm(); err != nil {
				u.fail(w, r, v, kernel.Invalid("the form is invalid or too large"))
				return
			}
			if authenticated && time.Since(began) >= stillEvery {
				if _, err := u.who(r); err != nil {
					u.turnAway(w, r, err)
					return
				}
			}
		}
		if isFragment(r) {
			u.fragment(w, r, v, do)
			return
		}
		a, err := do(r, v)
		for _, c := range a.cookies {
			http.SetCookie(w, c)
		}
		switch {
		case err != nil:
			u.fail(w, r, v, err)
		case a.write != nil:
			a.write(w)
		case a.away != "":
			http.Redirect(w, r, a.away, http.StatusSeeOther)
		case a.next != "":
			http.Redirect(w, r, u.base+a.next, http.StatusSeeOther)
		default:
			u.render(w, r, v, a)
		}
	}
}

func (u *UI) visitor(r *http.Request) (visitor, error) {
	who, err := u.who(r)
	if err == nil && u.admit != nil {
		err = u.admit(who)
	}
	return visitor{who}, err
}

// turnAway redirects unauthenticated browsers to the login page, and back afterwards. Scripts get a status.
func (u *UI) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case !errors.Is(err, jobs.Forbidden), u.access == nil: // signing in is not possible here
		u.fail(w, r, visitor{}, err)
	case r.Method == http.MethodGet && !isFragment(r):
		http.Redirect(w, r, u.base+"/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
	default:
		http.Error(w, "sign in first", http.StatusUnauthorized)
	}
}

// frame is the common part of all pages.
type frame struct {
	visitor
	Open    bool // the server requires no authentication
	Title   string
	Section string // first segment of the path
	Back    string // this page, for forms that return to it
	Answer  bool   // this page is the response to a form, so that it cannot be reloaded
	Theme   string // light, dark or "": the system's
	Notice  string
	Age     time.Duration // max age of the data, because it was read from a copy; 0 = current
	Toast   string
	Undo    string // path at which the change can be undone, or ""
	Leader  ops.Leader
	Debug   []debugBanner
	Content any
}

// themeCookie stores light or dark; without it the system's theme is used.
const themeCookie = "carillon_theme"

func (u *UI) frameOf(r *http.Request, v visitor, a answer) frame {
	f := frame{visitor: v, Open: u.open, Title: a.title, Notice: u.notice, Leader: u.ops.Live().Leader(), Content: a.data, Back: "/"}
	f.Section, _, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if r.Method == http.MethodGet {
		f.Back = r.URL.RequestURI()
	} else {
		f.Answer = true
	}
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		f.Theme = c.Value
	}
	f.Toast = toasts[r.URL.Query().Get("did")]
	if n, err := strconv.ParseUint(r.URL.Query().Get("undo"), 10, 64); err == nil && f.Toast != "" && v.Admin() && r.PathValue("key") != "" {
		f.Undo = fmt.Sprintf("/jobs/%s/rollback?to=%d", r.PathValue("key"), n)
	}
	if v.Who.Actor != "" {
		f.Debug = u.banners(r.Context(), v.Who)
	}
	f.Age = metastore.AgeOf(r.Context()) // of all reads for this page
	return f
}

// AgeText formats the age.
func (f frame) AgeText() string {
	return max(f.Age.Round(100*time.Millisecond), 100*time.Millisecond).String()
}

func (u *UI) render(w http.ResponseWriter, r *http.Request, v visitor, a answer) {
	var out bytes.Buffer
	if err := u.pages[a.page]().ExecuteTemplate(&out, "page", u.frameOf(r, v, a)); err != nil {
		u.log.ErrorContext(r.Context(), "cannot render page", "page", a.page, "err", err)
		http.Error(w, "internal error; the server log has details", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.Write(visible(out.Bytes())) // the browser may have gone
}

// failure is the page for an error.
type failure struct {
	Title   string
	Text    string
	Unknown bool // the request may have succeeded, fully or in part
}

// titles are the titles of errors, by status.
var titles = map[int]string{
	http.StatusNotFound: "404: not found", http.StatusUnprocessableEntity: "422: invalid input", http.StatusConflict: "409: conflict",
	http.StatusForbidden: "403: not allowed", http.StatusTooManyRequests: "429: limit reached", http.StatusServiceUnavailable: "503: unavailable",
	http.StatusGatewayTimeout: "504: outcome unknown", http.StatusInternalServerError: "500: internal error",
}

// statusClientClosed is the status of a request whose client did not wait for the page: it is in the metrics only.
const statusClientClosed = 499

// fail shows the page for an error. Only the texts of refusals are shown.
func (u *UI) fail(w http.ResponseWriter, r *http.Request, v visitor, err error) {
	if u.access != nil && v.Who.Actor != "" && errors.Is(err, jobs.Forbidden) {
		u.access.Denied(r, v.Who, u.Route(r), said(err))
	}
	u.render(w, r, v, u.failed(r.Context(), r.URL.Path, err))
}

func (u *UI) failed(ctx context.Context, path string, err error) answer {
	status := statusOf(err)
	page := failure{Title: titles[status], Text: said(err)}
	switch {
	case status >= http.StatusInternalServerError && context.Cause(ctx) == context.Canceled:
		status = statusClientClosed
	case status == http.StatusServiceUnavailable:
		u.episodes.Failed(slog.LevelWarn, "", "page failed: store unavailable", "path", path, "err", err)
		page.Text = "The scheduler is unavailable. Try again shortly."
	case status == http.StatusGatewayTimeout: // a reader of "failed" would send the request again
		u.episodes.Failed(slog.LevelWarn, "", "unknown outcome", "path", path, "err", err)
		page.Unknown = true
	case status == http.StatusInternalServerError:
		u.episodes.Failed(slog.LevelError, err.Error(), "page failed", "path", path, "err", err)
		page.Text = "Internal error. The server log has details."
	}
	return answer{page: "failure", title: page.Title, status: status, data: page}
}

// said returns the text of an error that a user's input caused.
func said(err error) string {
	if refusal, ok := errors.AsType[*kernel.Refusal](err); ok {
		return refusal.Text
	}
	return err.Error()
}

func statusOf(err error) int {
	switch jobs.CodeOf(err) {
	case jobs.NotFound:
		return http.StatusNotFound
	case jobs.BadInput:
		return http.StatusUnprocessableEntity
	case jobs.Conflict, jobs.Stale:
		return http.StatusConflict
	case jobs.Forbidden:
		return http.StatusForbidden
	case jobs.Exhausted:
		return http.StatusTooManyRequests
	case jobs.Unavailable:
		return http.StatusServiceUnavailable
	case jobs.Unknown:
		if _, ok := errors.AsType[*kernel.Refusal](err); ok { // CodeOf also returns a code for other errors
			return http.StatusGatewayTimeout
		}
	}
	return http.StatusInternalServerError
}

// search redirects to the run with an ID, to the job with a key, or to the list of jobs that match the text.
func (u *UI) search(r *http.Request, v visitor) (answer, error) {
	q := strings.TrimSpace(r.FormValue("q"))
	if id, err := jobs.ParseID(q); err == nil {
		return goTo("/runs/"+id.String(), ""), nil
	}
	if key := jobs.Key(q); key.Check() == nil {
		if _, err := u.ops.Job(r.Context(), v.Who, key, 0); err == nil {
			return goTo("/jobs/"+q, ""), nil
		}
	}
	return answer{next: "/jobs?q=" + url.QueryEscape(q)}, nil
}

// theme stores light or dark in a cookie, so that the page is rendered with it.
func (u *UI) theme(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	c := http.Cookie{Name: themeCookie, Value: r.PostFormValue("theme"), Path: u.base + "/", MaxAge: 400 * 24 * 3600, SameSite: http.SameSiteLaxMode}
	if c.Value != "light" && c.Value != "dark" {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(w, &c)
	http.Redirect(w, r, u.base+local(r.PostFormValue("back")), http.StatusSeeOther)
}

// local returns a path of this site, whatever the request contains.
func local(path string) string {
	if to, err := url.Parse(path); err != nil || to.IsAbs() || to.Host != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsRune(path, '\\') {
		return "/"
	}
	return path
}

// debugBanner shows that a debug mode is on.
type debugBanner struct {
	Kind string
	kernel.Debug
	Held int // runs that are held back
}

func (u *UI) banners(ctx context.Context, who ops.Who) []debugBanner {
	global, err := u.ops.Settings(ctx, who)
	if err != nil {
		return nil // the page itself shows it
	}
	var list []debugBanner
	for _, kind := range []kernel.Kind{kernel.Recurring, kernel.Triggered} {
		if debug := global.DebugOf(kind); debug.On {
			held, _ := u.ops.HeldBack(ctx, who, kind)
			list = append(list, debugBanner{Kind: kind.String(), Debug: debug, Held: held})
		}
	}
	return list
}
