package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// TestMain lets the test binary be the worker processes, too.
func TestMain(m *testing.M) {
	if os.Getenv(handEnv) != "" || os.Getenv(natsEnv) != "" || os.Getenv(workEnv) != "" || os.Getenv(floodEnv) != "" { // else it would test, and start such processes, without end
		if err := begin(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	window, grace, idleFor = 2*time.Second, 3*time.Second, time.Second
	mercy, togetherIn, ahead = time.Minute, 30*time.Second, 30*time.Second // other tests may have the processor for seconds
	*count, *pace = 200, 300
	flag.Parse()
	_ = flag.Set("test.parallel", "12") // they mostly wait
	os.Exit(m.Run())
}

// Each system does each measurement once, with a few jobs: the checks within the measurements are what is tested.
func TestSmoke(t *testing.T) {
	t.Parallel()
	for _, e := range systems {
		t.Run(e.name, func(t *testing.T) {
			if what := e.missing(); what != "" {
				tests.Missing(t, what)
			}
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			err := e.with(ctx, 1, func(s system) error {
				for _, m := range measures {
					switch m.name {
					case "x64", "latency2000", "herd", "second1000", "second10000": // the same code as others
						continue
					case "fires", "together": // longer than the others
						continue
					case "second100":
						m.n = 10
					default:
						m.n = 100
					}
					l, ok := entry{name: e.name, slow: 1}.measure(ctx, s, m)
					if !ok {
						continue
					}
					if l.Failed != "" {
						return fmt.Errorf("%s: %s", m.name, l.Failed)
					}
					if strings.HasPrefix(e.name, "carillon") && (l.Figures["early"] != 0 || l.Figures["missed"] != 0 || l.Figures["doubled"] != 0) {
						return fmt.Errorf("%s: %v", m.name, l.Figures)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What goes on for seconds does so with a few jobs: nothing is missed, and the server reports what it has fired. Starts
// that were late are measured again: for a moment the machine may have had no time for them.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string]string{"fires": "fires_per_s", "together": "created_s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			m := measures[slices.IndexFunc(measures, func(m measure) bool { return m.name == name })]
			m.n = 5
			err := systems[0].with(ctx, 1, func(s system) error {
				for {
					l, ok := systems[0].measure(ctx, s, m)
					if !ok || l.Failed != "" || l.Figures["early"] != 0 || l.Figures["missed"] != 0 || l.Figures["doubled"] != 0 || l.Figures[wants] <= 0 && ctx.Err() != nil {
						t.Errorf("%+v", l)
						return nil
					}
					if l.Figures[wants] > 0 {
						return nil
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Each scenario that draws a curve has a figure for each of its points, an idle server is watched, and every run starts
// beside slow and dead workers.
func TestCurves(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string][]string{"sizes": {at(1), at(1000)}, "payloads": {at(100), at(100_000)}, "backlog": {at(0), at(2000)}, "idle": {"definitions"},
		"uneven": {"jobs", "start_p99_ms"}, "deadhost": {"jobs", "start_p99_ms"}, "flooded": {"jobs", "flood_s"}, "tenants": {"jobs", "alone_p99_ms", "start_p99_ms"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			h, err := build(ctx, setup{memory: name != "tenants", auth: name == "tenants"}) // a server that requires tokens stores them
			if err != nil {
				t.Fatal(err)
			}
			defer h.close()
			figures, err := scenarios[name](ctx, h)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range wants {
				if figures[want] <= 0 {
					t.Errorf("%s is not in %v", want, figures)
				}
			}
		})
	}
}

// Each scenario about a database has its figures.
func TestDatabases(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  string
		wants []string
	}{
		"takeover":   {"mariadb", []string{"warm_enqueues_s", "cold_enqueues_s"}},
		"held":       {"mariadb", []string{"before_p99_ms", "held_p99_ms"}},
		"listsdb":    {"postgres", []string{"runs_all_p50_ms", "tenants_p99_ms", "filled_s"}},
		"tenmillion": {"postgres", []string{"before_jobs_per_s", "after_jobs_per_s", "bytes_per_row"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := find(map[string]string{"mariadb": "mariadbd", "postgres": "postgres"}[c.kind]); err != nil {
				tests.Missing(t, err.Error())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			h, err := buildOn(ctx, c.kind, filled[name])
			if err != nil {
				t.Fatal(err)
			}
			defer h.close()
			figures, err := scenarios[name](ctx, h)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if figures[want] <= 0 {
					t.Errorf("%s is not in %v", want, figures)
				}
			}
		})
	}
}

// A soak of some seconds sends at its rate, and has sampled everything. One with too few samples after a stall is
// repeated.
func TestSoak(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var l line
	for l.Figures["runs"] < 300 || len(l.Trends) != len(soaking) {
		err := systems[0].with(ctx, 1, func(s system) (err error) {
			was := l
			if l, err = s.(*ours).soak(ctx, 5*time.Second); err != nil {
				return fmt.Errorf("%w; before: %+v", err, was)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tr := range l.Trends {
		if tr.Median <= 0 {
			t.Errorf("%+v", tr)
		}
	}
}

// The HTTP scenario makes each request once, with a worker that is a program of ours.
func TestHTTPJobs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	h, err := build(ctx, setup{memory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	figures, err := httpJobs(ctx, h)
	if err != nil || figures["jobs_per_s"] <= 0 || figures["cpu_us_per_job"] <= 0 {
		t.Errorf("%v, %v", figures, err)
	}
}
