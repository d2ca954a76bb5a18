package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// The handlers between a socket and a route: authentication, rules for browsers, and recovery from panics.

type whoKey struct{}

// who returns the caller of a request.
func who(ctx context.Context) ops.Who {
	w, _ := ctx.Value(whoKey{}).(ops.Who)
	return w
}

// Guard wraps all that a process serves over HTTP, the API and the pages: each request has an ID and, at debug, a log
// line; a panic becomes a problem and a log line; a page of another origin cannot act in a user's name; and no further
// request follows a chunked body on its connection. Page is the URL of the pages as users know it, or "": behind a
// proxy, the Host of a request may lack its port.
func Guard(log *slog.Logger, page string, next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	if u, err := url.Parse(page); err == nil && u.Host != "" {
		_ = origin.AddTrustedOrigin(u.Scheme + "://" + u.Host) // an invalid one is no origin of a browser
	}
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		detail := "the request comes from a page of another origin"
		if from := r.Header.Get("Origin"); from != "" {
			detail = fmt.Sprintf("the request comes from a page of %.200q, and this server is %.200q: open the URL in http.url, or set that to the URL that users open", from, r.Host)
		}
		problem(http.StatusForbidden, codeCrossOrigin, detail).write(w)
	}))
	return numbered(log, recovered(log, alone(upright(origin.Handler(next)))))
}

// alone closes the connection after a request with a chunked body. One that also has a Content-Length may end elsewhere
// for a proxy that obeys that header, and net/http drops it before a handler sees it. So the bytes after the body are
// never read as another request (request smuggling).
func alone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// upright answers 404 to paths with dot segments: a mux would redirect the client to the cleaned path.
func upright(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		climbs := func(part string) bool { up, err := url.PathUnescape(part); return err == nil && up == ".." }
		if strings.Contains(r.URL.Path, "..") && slices.ContainsFunc(strings.Split(r.URL.EscapedPath(), "/"), climbs) {
			problem(http.StatusNotFound, codeNoRoute, "no such route").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Hosts serves requests for these names only, for loopback names such as localhost, and for the address at which the
// request arrived. A foreign page that points its own name here (DNS rebinding) is refused: to the browser it would be
// of the same origin. "*" allows any name, for a server that authenticates every request. Headers of proxies about the
// host are ignored.
func Hosts(allowed []string, next http.Handler) http.Handler {
	if slices.Contains(allowed, "*") {
		return next
	}
	names := map[string]bool{"localhost": true}
	for _, name := range allowed {
		names[hostOf(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostOf(r.Host)
		if !names[name] && !isAddress(r, name) {
			problem(http.StatusMisdirectedRequest, codeHost, "the request names a host that this server does not serve: use localhost on its own machine, or add the name to http.url or http.hosts in its configuration").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// proxied are headers that only proxies send, in addition to X-Forwarded-*.
var proxied = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For", "X-Original-Host",
	"X-Envoy-External-Address", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip"}

// Direct refuses requests that a proxy forwards, by the headers that proxies add. It protects a server without
// authentication: behind a proxy on its machine, requests from anywhere arrive over loopback.
func Direct(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(proxied, name) {
				problem(http.StatusForbidden, codeProxied, fmt.Sprintf("authentication is off on this server, and a proxy forwarded the request (header %.60s): "+
					"set auth: on, or http.url to the URL that users open, and restart the server", name)).write(w)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isAddress reports whether a host is an address of loopback, or the one at which the request arrived.
func isAddress(r *http.Request, host string) bool {
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return ip != nil
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.Equal(ip)
}

// hostOf normalizes a host for comparison: lower case, without port, brackets and the final dot.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// requestID is the header with a request's ID; it is in responses and in the log.
const requestID = "X-Request-Id"

type requestKey struct{}

// numbered gives each request an ID: its sender's, if valid, or a new one.
func numbered(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestID)
		if len(id) > 64 || kernel.CheckName("request", id) != nil {
			id = rand.Text()
		}
		w.Header().Set(requestID, id)
		ctx := context.WithValue(r.Context(), requestKey{}, id)
		if !log.Enabled(ctx, slog.LevelDebug) {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		// The query is left out: it may contain secrets.
		seen, begun := &watched{ResponseWriter: w}, time.Now()
		next.ServeHTTP(seen, r.WithContext(ctx))
		log.DebugContext(ctx, "request", "request", id, "method", r.Method, "path", r.URL.Path, "status", seen.status, "bytes", seen.bytes,
			"took", time.Since(begun).Round(time.Microsecond), "address", r.RemoteAddr)
	})
}

// requestOf returns the ID of the request that a context belongs to.
func requestOf(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// recovered turns a panic into a problem, unless the response has started.
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
			log.ErrorContext(r.Context(), "request panicked", "request", requestOf(r.Context()), "method", r.Method, "path", r.URL.Path, "err", cause, "stack", string(debug.Stack()))
			if sent.status == 0 {
				internal().write(w)
			}
		}()
		next.ServeHTTP(sent, r)
	})
}

// watched records the status and size of a response.
type watched struct {
	http.ResponseWriter
	status int // 0 = nothing yet
	bytes  int64
}

func (w *watched) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController the original writer.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// nowhere answers requests without a route: 405 with the allowed methods, or 404.
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
			problem(http.StatusMethodNotAllowed, codeMethod, "this route allows "+strings.Join(allowed, ", ")).write(w)
			return
		}
		problem(http.StatusNotFound, codeNoRoute, "no such route").write(w)
	}
}

// unreadTime is how long the rest of a body may take that a handler has not read.
const unreadTime = time.Second

// drained limits how long the server waits for the rest of a body after the response. It then closes the connection.
func drained(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime))
		}
	})
}

// NewServer returns an http.Server with the limits that a server on a network needs. Handlers that stream lift the
// deadlines for themselves.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           drained(handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
