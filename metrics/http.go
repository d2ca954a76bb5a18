package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Requests counts the requests that next answers. Its labels are the route's pattern, from the program, and the class
// of the status: nothing that a client sends.
func (m *Metrics) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := m.route(r)
		if route == "" {
			route = "(none)"
		}
		began := time.Now()
		seen := &answered{ResponseWriter: w, metrics: m}
		done := false
		defer func() {
			switch {
			case seen.status != 0:
			case done:
				seen.status = http.StatusOK
			default: // it panicked, and an outer handler answers
				seen.status = http.StatusInternalServerError
			}
			seen.count(route, began)
		}()
		next.ServeHTTP(seen, r)
		done = true
	})
}

// answered records the status of a response.
type answered struct {
	http.ResponseWriter
	metrics *Metrics
	status  int
	stream  bool
}

func (a *answered) count(route string, began time.Time) {
	m := a.metrics
	m.requests.WithLabelValues(route, strconv.Itoa(a.status/100)+"xx").Inc()
	if a.stream {
		m.streams.Dec()
		return
	}
	m.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
}

func (a *answered) begin(status int) {
	if a.status != 0 || status < http.StatusOK {
		return
	}
	a.status = status
	if strings.HasPrefix(a.Header().Get("Content-Type"), "text/event-stream") {
		a.stream = true
		a.metrics.streams.Inc()
	}
}

// WriteHeader sends the status.
func (a *answered) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *answered) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// FlushError sends what has been written, or the head alone.
func (a *answered) FlushError() error {
	a.begin(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController the original writer.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }
