package embed_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// metric is one metric, as a scrape shows it.
type metric struct {
	kind   string
	labels map[string]bool
	values map[string]string // by labels, as they are written; of histograms only the count
}

var sample = regexp.MustCompile(`^([a-z_0-9]+)(?:\{(.*)\})? (\S+)$`)

// scrape reads all metrics of Carillon, and fails if there are none of the Go runtime.
func scrape(t *testing.T, url string) map[string]*metric {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("status %d, %v: %.300s", answer.StatusCode, err, body)
	}
	if !strings.Contains(string(body), "\ngo_goroutines ") || !strings.Contains(string(body), "\nprocess_cpu_seconds_total ") {
		t.Error("the runtime and the process are missing")
	}
	all := map[string]*metric{}
	var m *metric
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
			m = nil
			if strings.HasPrefix(fields[2], "carillon_") {
				m = &metric{kind: fields[3], labels: map[string]bool{}, values: map[string]string{}}
				all[fields[2]] = m
			}
			continue
		}
		if strings.HasPrefix(line, "#") || m == nil {
			continue
		}
		found := sample.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("what is %q?", line)
		}
		for _, l := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(found[2], -1) {
			if l[1] != "le" {
				m.labels[l[1]] = true
			}
		}
		if m.kind != "histogram" || strings.HasSuffix(found[1], "_count") {
			m.values[found[2]] = found[3]
		}
	}
	return all
}

// busy is a scheduler on disk in which some things have happened.
func busy(t *testing.T) (s *embed.Scheduler, url string) {
	t.Helper()
	bad := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return errors.New("no") }), jobs.Options{Key: "demo.bad"})
	s, err := embed.Start(t.Context(), embed.Config{Dir: t.TempDir(), Version: "v1.2.3", MetricsJobs: []string{"demo.*"}, Worker: worker.Config{App: "demo", Slots: 4}}, greet(), bad)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, request := range []jobs.Request{{Key: "demo.greet", Args: []byte(`{"Name":"Ann"}`)}, {Key: "demo.bad"}} {
		runs, err := s.Client().Enqueue(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client().Wait(t.Context(), runs[0].ID); err != nil && !errors.As(err, new(*jobs.RunError)) {
			t.Fatal(err)
		}
	}
	if _, err := s.Client().Enqueue(t.Context(), jobs.Request{Key: "demo.greet", Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	for _, path := range []string{"/api/v1/jobs/demo.bad", "/api/v1/jobs/demo.none", "/", "/nowhere/at/all", "/readyz"} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	return s, server.URL
}

// What happened can be read.
func TestMetrics(t *testing.T) {
	_, url := busy(t)
	all := scrape(t, url)
	for name, want := range map[string]map[string]string{
		"carillon_ready":                  {``: "1"},
		"carillon_job_runs":               {`app="demo",key="demo.greet",state="scheduled",tenant="default"`: "1", `app="demo",key="demo.bad",state="processing",tenant="default"`: "0"},
		"carillon_job_paused":             {`app="demo",key="demo.bad",tenant="default"`: "0"},
		"carillon_leader":                 {``: "1"},
		"carillon_runs":                   {`state="scheduled",tenant="default"`: "1", `state="processing",tenant="default"`: "0"},
		"carillon_runs_created_total":     {`kind="triggered",tenant="default"`: "3", `kind="recurring",tenant="default"`: "0"},
		"carillon_runs_ended_total":       {`kind="triggered",state="succeeded",tenant="default"`: "1", `kind="triggered",state="terminated",tenant="default"`: "1"},
		"carillon_attempts_ended_total":   {`kind="triggered",outcome="error",tenant="default"`: "1", `kind="triggered",outcome="lost",tenant="default"`: "0"},
		"carillon_start_lateness_seconds": {`kind="triggered"`: "2"},
		"carillon_attempt_seconds":        {`kind="triggered"`: "2", `kind="recurring"`: "0"},
		"carillon_due_times_missed_total": {`reason="missed"`: "0"},
		"carillon_commands_refused_total": {`code="not_found"`: "0", `code="internal"`: "0"},
		"carillon_workers":                {`app="demo",tenant="default"`: "1"},
		"carillon_worker_slots":           {`app="demo",tenant="default"`: "4"},
		"carillon_backlog_runs":           {`app="demo",tenant="default"`: "0"},
		"carillon_http_requests_total":    {`route="GET /api/v1/jobs/{key}",status="2xx"`: "1", `route="GET /api/v1/jobs/{key}",status="4xx"`: "1"},
		"carillon_http_streams":           {``: "0"},
		"carillon_store_log_term":         nil,
		"carillon_store_commit_seconds":   nil,
		"carillon_due_times_fired_total":  {``: "0"},
		"carillon_attempts_started_total": {`kind="triggered",tenant="default"`: "2"},
	} {
		m := all[name]
		if m == nil {
			t.Errorf("%s is not there", name)
			continue
		}
		for labels, value := range want {
			if m.values[labels] != value {
				t.Errorf("%s{%s} is %q, want %s; there are %v", name, labels, m.values[labels], value, m.values)
			}
		}
	}
	for labels := range all["carillon_http_requests_total"].values {
		if strings.Contains(labels, "nowhere") || strings.Contains(labels, "demo.") {
			t.Errorf("what a client sent is in a label: %s", labels)
		}
	}
	if info := slices.Collect(maps.Keys(all["carillon_build_info"].values)); len(info) != 1 || !strings.Contains(info[0], `version="v1.2.3"`) {
		t.Errorf("the build is %q", info)
	}
}

// On each body, runs that find no slot are the backlog until they have one.
func TestBacklog(t *testing.T) {
	t.Parallel()
	for body, config := range map[string]func(*testing.T) embed.Config{
		"memory":     func(*testing.T) embed.Config { return embed.Config{} },
		"raft":       func(t *testing.T) embed.Config { return embed.Config{Dir: t.TempDir()} },
		"PostgreSQL": func(t *testing.T) embed.Config { return embed.Config{Database: sqltest.Postgres.New(t)} },
		"MariaDB":    func(t *testing.T) embed.Config { return embed.Config{Database: sqltest.MariaDB.New(t)} },
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			if body == "MariaDB" {
				tests.Long(t)
			}
			cfg, release := config(t), make(chan struct{})
			cfg.Worker = worker.Config{App: "demo", Slots: 1}
			s, err := embed.Start(t.Context(), cfg, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error {
				<-release
				return nil
			}), jobs.Options{Key: "demo.slow"}))
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(s.Handler())
			defer server.Close()
			free := sync.OnceFunc(func() { close(release) })
			defer func() {
				free()
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			var ids []jobs.ID
			for range 4 {
				runs, err := s.Client().Enqueue(t.Context(), jobs.Request{Key: "demo.slow"})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, runs[0].ID)
			}
			shown := func(name string) float64 {
				m := scrape(t, server.URL)[name]
				if m == nil {
					t.Fatalf("%s is not there", name)
				}
				v, err := strconv.ParseFloat(m.values[`app="demo",tenant="default"`], 64)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return v
			}
			if cfg.Database != "" {
				all := scrape(t, server.URL)
				for _, name := range append([]string{"carillon_store_log_applied_index", "carillon_store_rows_age_seconds"}, ofDatabases...) {
					if all[name] == nil || all[name].kind != "gauge" {
						t.Errorf("%s is not there", name)
					}
				}
			}
			eventually(t, "one run is claimed, and three wait", func() bool { return shown("carillon_backlog_runs") == 3 })
			before := shown("carillon_backlog_oldest_seconds")
			eventually(t, "the age grows", func() bool { return shown("carillon_backlog_oldest_seconds") >= before+0.05 })
			free()
			for _, id := range ids {
				if _, err := s.Client().Wait(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if n, age := shown("carillon_backlog_runs"), shown("carillon_backlog_oldest_seconds"); n != 0 || age != 0 {
				t.Errorf("after the work, %v runs wait, the oldest for %v s", n, age)
			}
		})
	}
}

// rare are the metrics that need not be there.
var rare = append([]string{"carillon_store_log_snapshot_timestamp_seconds"}, ofDatabases...)

// ofDatabases are the metrics of a store in a database only.
var ofDatabases = []string{"carillon_store_unwritten_runs", "carillon_store_unwritten_bytes"}

// documentedMetric is a row of docs/metrics.md.
type documentedMetric struct {
	kind   string
	labels []string
}

func documentedMetrics(t *testing.T) map[string]documentedMetric {
	t.Helper()
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]documentedMetric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(carillon_[a-z_]+)` \\| (\\w+) \\| ([^|]*)\\| \\S.* \\|$").FindAllStringSubmatch(string(page), -1) {
		m := documentedMetric{kind: row[2]}
		for _, l := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[3], -1) {
			m.labels = append(m.labels, l[1])
		}
		if _, twice := documented[row[1]]; twice {
			t.Errorf("%s is documented twice", row[1])
		}
		slices.Sort(m.labels)
		documented[row[1]] = m
	}
	return documented
}

// docs/metrics.md lists what there is, with type and labels, and nothing else.
func TestMetricsAreDocumented(t *testing.T) {
	_, url := busy(t)
	all, documented := scrape(t, url), documentedMetrics(t)
	for name, want := range documented {
		m := all[name]
		if m == nil {
			if !slices.Contains(rare, name) {
				t.Errorf("%s is documented, but not there", name)
			}
			continue
		}
		if there := slices.Sorted(maps.Keys(m.labels)); m.kind != want.kind || !slices.Equal(want.labels, there) {
			t.Errorf("%s is documented as a %s with the labels %q, and is a %s with %q", name, want.kind, want.labels, m.kind, there)
		}
	}
	for name, m := range all {
		if _, there := documented[name]; !there {
			t.Errorf("%s (%s) is not documented", name, m.kind)
		}
		if strings.HasSuffix(name, "_total") != (m.kind == "counter") {
			t.Errorf("%s is a %s", name, m.kind)
		}
	}
}

// The metrics cover all tenants, so only tokens of the default tenant may read them.
func TestMetricsAreTheDefaultTenants(t *testing.T) {
	t.Parallel()
	s, err := embed.Open(t.Context(), embed.Config{Who: func(r *http.Request) (ops.Who, error) {
		return ops.Who{Tenant: jobs.Tenant(r.Header.Get("Tenant")), Actor: "person:ann", Role: ops.Viewer}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for tenant, want := range map[string]int{"": 200, string(jobs.DefaultTenant): 200, "acme": 403} {
		request := httptest.NewRequest("GET", "/metrics", http.NoBody)
		request.Header.Set("Tenant", tenant)
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, request)
		if answer.Code != want || want == 403 && !strings.Contains(answer.Body.String(), "tenant acme may not use this route") {
			t.Errorf("tenant %q: %d %.300s", tenant, answer.Code, answer.Body)
		}
	}
}
