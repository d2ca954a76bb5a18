package carillon

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/ui/static"
	"github.com/carillon-scheduler/carillon/worker"
)

// HandlerConfig configures Handler. The zero value works.
type HandlerConfig struct {
	// Dashboard is the address of the server's pages, such as https://jobs.example.com: runs and jobs link to it. Default
	// no links.
	Dashboard string
}

// Handler returns the page of a worker for the program's own HTTP server: its jobs, its runs, those that finished lately
// and its state. Links are relative, so it works below any path:
//
//	mux.Handle("/worker/", carillon.Handler(w, carillon.HandlerConfig{}))
//
// Below the same path, health is a readiness probe in JSON: 200 while the worker takes runs, otherwise 503. Do not use
// it as a liveness probe: without a control plane, all workers would restart.
//
// The page changes nothing and shows no arguments, results, logs or texts of errors, but the progress that handlers
// report. It has no authentication: mount it where the program's other internal pages are.
func Handler(w interface{ Status() worker.Status }, cfg HandlerConfig) http.Handler {
	// Parsed here, so that programs without the page do not link the templates.
	page := template.Must(template.New("page").Funcs(pageFunctions()).Parse(workerPage))
	style, err := static.Files.ReadFile("style.css")
	if err != nil {
		panic(err) // it is part of the program
	}
	sum := sha256.Sum256(style)
	h := &pageHandler{worker: w, dashboard: strings.TrimRight(cfg.Dashboard, "/"), page: page, style: style, version: hex.EncodeToString(sum[:6])}
	return http.HandlerFunc(h.serve)
}

//go:embed handler.gohtml
var workerPage string

// pagePolicy allows the style sheet and the icon of the page, and nothing else.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// mostRunning bounds the attempts on the page: a worker without a limit may have thousands.
const mostRunning = 100

type pageHandler struct {
	worker    interface{ Status() worker.Status }
	dashboard string
	page      *template.Template
	style     []byte
	version   string // of the style sheet, so that browsers may keep it
}

// serve selects by the last element of the path, so it works with and without http.StripPrefix.
func (h *pageHandler) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: this page only reads", http.StatusMethodNotAllowed)
		return
	}
	switch _, last := path.Split(r.URL.Path); last {
	case "":
		h.servePage(w, r)
	case "health":
		h.serveHealth(w)
	case "style.css":
		h.serveFile(w, "text/css; charset=utf-8", h.style)
	case "bell.svg":
		icon, _ := static.Files.ReadFile(last)
		h.serveFile(w, "image/svg+xml", icon)
	default:
		http.NotFound(w, r)
	}
}

func (h *pageHandler) serveFile(w http.ResponseWriter, kind string, content []byte) {
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(content) // the browser may have gone
}

// health is the response to a probe.
type health struct {
	Status    worker.State `json:"status"`
	Worker    string       `json:"worker"`
	App       string       `json:"app"`
	Version   string       `json:"version,omitempty"`
	Heartbeat *time.Time   `json:"heartbeat,omitempty"`
	Running   int          `json:"running"`
	Slots     int          `json:"slots,omitempty"`
}

func (h *pageHandler) serveHealth(w http.ResponseWriter) {
	s := h.worker.Status()
	answer := health{Status: s.State, Worker: s.Name, App: s.App, Version: s.Version, Running: s.Stats.Running, Slots: s.Slots}
	if !s.Heartbeat.IsZero() {
		answer.Heartbeat = new(s.Heartbeat.UTC())
	}
	w.Header().Set("Content-Type", "application/json")
	if s.State != worker.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer) // the prober may have gone
}

// pageView is what the template shows.
type pageView struct {
	worker.Status
	Dashboard string // "" = unknown
	Style     string
	Still     bool // the page does not refresh itself
	More      int  // attempts at work that are not shown
	now       time.Time
}

func (h *pageHandler) servePage(w http.ResponseWriter, r *http.Request) {
	v := pageView{Status: h.worker.Status(), Dashboard: h.dashboard, Style: h.version, Still: r.URL.Query().Has("still"), now: time.Now()}
	v.More = max(0, len(v.Running)-mostRunning)
	v.Running = v.Running[:len(v.Running)-v.More]
	var out bytes.Buffer
	if err := h.page.Execute(&out, v); err != nil {
		http.Error(w, "internal error: the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // the browser may have gone
}

// attemptView is an attempt with what its links need.
type attemptView struct {
	worker.Attempt
	Dashboard string
}

// Of returns an attempt for the template of its names.
func (v pageView) Of(a worker.Attempt) attemptView { return attemptView{a, v.Dashboard} }

// Tone is the colour of the state.
func (v pageView) Tone() string {
	switch v.State {
	case worker.Ready:
		return "good"
	case worker.Disconnected, worker.Stopped:
		return "bad"
	}
	return "warn"
}

// Why explains a state other than ready.
func (v pageView) Why() string {
	return map[worker.State]string{
		worker.Starting:     "Its jobs are not registered yet: it takes no runs.",
		worker.Disconnected: "No control plane answers. Current runs continue, and their results are sent when one answers.",
		worker.Drained:      "It was asked to take no new runs. Resume it on the server's page of workers.",
		worker.Leaving:      "The program is shutting down: it takes no new runs.",
		worker.Stopped:      "It has left: it takes no runs.",
	}[v.State]
}

// Failures is how many attempts failed since the start.
func (v pageView) Failures() uint64 {
	f := v.Stats.Finished
	return f["error"] + f["fatal"] + f["timeout"]
}

// Ago formats how long ago a time was, or in what time it is.
func (v pageView) Ago(t time.Time) string {
	switch d := t.Sub(v.now); {
	case d >= time.Second:
		return "in " + roughly(d)
	case d > -time.Second:
		return "now"
	default:
		return roughly(-d) + " ago"
	}
}

// Since formats how long something has taken.
func (v pageView) Since(t time.Time) string { return roughly(v.now.Sub(t)) }

func pageFunctions() template.FuncMap {
	return template.FuncMap{
		"stamp":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"took":     func(a worker.Attempt) string { return roughly(a.Returned.Sub(a.Started)) },
		"duration": roughly,
		"tone":     toneOf,
	}
}

// toneOf is the colour of an outcome.
func toneOf(outcome string) string {
	switch outcome {
	case "success":
		return "good"
	case "error", "fatal", "timeout", "lost", "unknown":
		return "bad"
	}
	return "calm"
}

// roughly formats a duration in its two largest units.
func roughly(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Millisecond:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return inTwo(int(d.Seconds()), 60, "min", "s")
	case d < 24*time.Hour:
		return inTwo(int(d.Minutes()), 60, "h", "min")
	}
	return inTwo(int(d.Hours()), 24, "d", "h")
}

// inTwo formats n of the smaller unit; each of the larger one has size of them.
func inTwo(n, size int, larger, smaller string) string {
	text := fmt.Sprintf("%d %s", n/size, larger)
	if rest := n % size; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smaller)
	}
	return text
}
