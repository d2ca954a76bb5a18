// Package metrics exposes the state and the counters of one process to Prometheus.
//
// It is not promised to programs outside this module.
//
// Where to start: [New], then collect.go. docs/metrics.md lists every metric; a test compares the list with what is
// exposed.
//
// Sharp edges: only requests are counted here; the parts maintain their own counters, which are read at each scrape.
// Labels have few values. A job's key is one only for the jobs of [Config.Jobs], because a million jobs would be a
// million time series; the pages and the API show which jobs fail.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Plane is the part of a control plane that is watched.
type Plane interface {
	Totals() controlplane.Totals
	Workers(jobs.Tenant) []controlplane.Member
	Backlog(context.Context) ([]controlplane.Backlog, error)
	ClockOff() time.Duration
	Purging() controlplane.Purging
	Leading() (term uint64, since time.Time)
}

// Config is the sources of the metrics. Plane and Rows are required.
type Config struct {
	Version string // of the program
	Plane   Plane
	Rows    Rows
	Jobs    []string                     // keys or patterns of jobs with series of their own
	Store   metastore.Measured           // nil = no metrics of the store
	Ready   func(context.Context) error  // nil = always ready
	Extra   func(add func(Value))        // further values of the process; nil = none
	Route   func(r *http.Request) string // default: discard
	Logger  *slog.Logger                 // default: discard
}

// Value is one further value: a counter if its name ends in _total, a gauge otherwise.
type Value struct {
	Name, Help string
	Value      float64
}

// Metrics collects the metrics. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	route    func(*http.Request) string
	log      *slog.Logger
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	streams  prometheus.Gauge
}

// namespace is the prefix of all names.
const namespace = "carillon_"

// New returns the metrics of a process.
func New(c Config) *Metrics {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Route == nil {
		c.Route = func(*http.Request) string { return "" }
	}
	m := &Metrics{registry: prometheus.NewRegistry(), route: c.Route, log: c.Logger,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + "http_requests_total",
			Help: "Requests answered, by the pattern of their route and the class of the answer's status."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: namespace + "http_request_seconds",
			Help: "Duration of requests, without streams.", Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10}}, []string{"route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: namespace + "http_streams", Help: "Streams of events that are open."}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.streams, &collector{Config: c},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves all metrics, in the format of Prometheus, without authentication.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}
