package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/ops"
)

// What stands between a socket and a handler: who asks, what a browser may do, what becomes of a panic.

type whoKey struct{}

// who is the caller of a request.
func who(ctx context.Context) ops.Who {
	w, _ := ctx.Value(whoKey{}).(ops.Who)
	return w
}

// Guard stands before everything that a process serves over HTTP, the API and the pages alike: a panic becomes a
// problem and a line in the log, and a page of another origin cannot act in a user's name.
func Guard(log *slog.Logger, next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(http.StatusForbidden, codeCrossOrigin, "the request comes from a page of another origin").write(w)
	}))
	return recovered(log, origin.Handler(next))
}

// LoopbackOnly answers requests for a loopback name only. A page of a stranger that lets its own name point here (DNS
// rebinding) is refused: to the browser it would be of the same origin.
func LoopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.Trim(host, "[]")
		if ip := net.ParseIP(host); !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
			problem(http.StatusMisdirectedRequest, codeHost, "this server answers on loopback names only, such as localhost").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic into a problem, if nothing has been sent yet.
func recovered(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &watched{ResponseWriter: w}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler {
				panic(cause)
			}
			log.ErrorContext(r.Context(), "request panicked", "method", r.Method, "path", r.URL.Path, "err", cause, "stack", string(debug.Stack()))
			if !sent.begun {
				internal().write(w)
			}
		}()
		next.ServeHTTP(sent, r)
	})
}

// watched remembers whether an answer has begun.
type watched struct {
	http.ResponseWriter
	begun bool
}

func (w *watched) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find what is below.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// nowhere answers where no route is: 405 with the methods that there are, or 404.
func nowhere(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, method+" ") {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 && !slices.Contains(allowed, r.Method) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			problem(http.StatusMethodNotAllowed, codeMethod, "this route takes "+strings.Join(allowed, ", ")).write(w)
			return
		}
		problem(http.StatusNotFound, codeNoRoute, "there is no such route").write(w)
	}
}

// NewServer is an http.Server with the limits that a server on a network needs. Handlers that stream lift the
// deadlines for themselves.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
