package embed_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// Queries of deploy/: those of the board, of the alerts and of the scalers.

// promtool runs the checker of Prometheus.
func promtool(t *testing.T, args ...string) (out string, ok bool) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		tests.Missing(t, "promtool is not installed (Debian: prometheus)")
	}
	text, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(text), err == nil
}

func loadYAML(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

// Each rule fires when it should and is silent otherwise, as deploy/alerts_test.yml plays it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	if out, ok := promtool(t, "test", "rules", "../deploy/alerts_test.yml"); !ok {
		t.Errorf("deploy/alerts_test.yml:\n%s", out)
	}
	var rules alertRules
	loadYAML(t, "../deploy/alerts.yml", &rules)
	var cases struct {
		Tests []struct {
			Rules []struct {
				Alert string           `yaml:"alertname"`
				Fires []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	loadYAML(t, "../deploy/alerts_test.yml", &cases)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, r := range c.Rules {
			fires[r.Alert] = fires[r.Alert] || len(r.Fires) > 0
			silent[r.Alert] = silent[r.Alert] || len(r.Fires) == 0
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("deploy/alerts_test.yml has no case in which %s fires, or none in which it is silent", r.Alert)
			}
			if r.Annotations["summary"] == "" || r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
				t.Errorf("%s lacks a summary or a severity", r.Alert)
			}
			delete(fires, r.Alert)
		}
	}
	if len(fires) > 0 {
		t.Errorf("deploy/alerts_test.yml plays rules that there are not: %q", slices.Sorted(maps.Keys(fires)))
	}
}

// panel is a panel of a Grafana board, as far as this test looks.
type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Datasource               struct{ UID string }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

type grafana struct {
	SchemaVersion int
	Panels        []panel
	Annotations   struct {
		List []struct{ Expr, TextFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func board(t *testing.T) (b grafana) {
	t.Helper()
	raw, err := os.ReadFile("../deploy/grafana/carillon.json")
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The board is well laid out: no panel covers another, and each says what it shows.
func TestBoard(t *testing.T) {
	t.Parallel()
	b := board(t)
	if len(b.Panels) < 50 || b.SchemaVersion < 36 {
		t.Fatalf("%d panels, schema version %d", len(b.Panels), b.SchemaVersion)
	}
	ids, taken, rows := map[int]string{}, map[[2]int]string{}, 0
	for _, p := range b.Panels {
		if other, there := ids[p.ID]; there || p.ID <= 0 {
			t.Errorf("the panels %q and %q have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		g := p.GridPos
		if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("the panel %q is outside the grid: %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, there := taken[[2]int{x, y}]; there {
					t.Fatalf("the panels %q and %q overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows++
			continue
		}
		if p.Title == "" || p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("the panel %q lacks a description, the data source of the board or a query", p.Title)
		}
		if p.Type != "table" && p.Type != "heatmap" && p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("the panel %q has no unit", p.Title)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" {
				t.Errorf("two queries of the panel %q have the name %q", p.Title, q.RefID)
			}
			refs[q.RefID] = true
		}
	}
	var names []string
	for _, v := range b.Templating.List {
		names = append(names, v.Name)
	}
	if want := []string{"datasource", "job", "tenant", "app", "instance"}; !slices.Equal(names, want) {
		t.Errorf("the variables are %q, want %q", names, want)
	}
	if rows < 10 {
		t.Errorf("%d rows", rows)
	}
}

// query is a query of a file, with the text that shows its labels.
type query struct{ where, expr, legend string }

// queries are all of deploy/, as Prometheus gets them.
func queries(t *testing.T) (all []query) {
	t.Helper()
	filled := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h", "$job", "carillon", "$tenant", ".*", "$app", ".*", "$instance", ".*")
	b := board(t)
	for _, p := range b.Panels {
		for _, q := range p.Targets {
			all = append(all, query{"board, " + p.Title, filled.Replace(q.Expr), q.LegendFormat})
		}
	}
	for _, a := range b.Annotations.List {
		if a.Expr != "" {
			all = append(all, query{"board, annotations", filled.Replace(a.Expr), a.TextFormat})
		}
	}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("what is the variable %q?", v.Definition)
		}
		all = append(all, query{"board, variable " + v.Name, "group by (" + m[2] + ") (" + filled.Replace(m[1]) + ")", ""})
	}
	var rules alertRules
	loadYAML(t, "../deploy/alerts.yml", &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			legend := strings.ReplaceAll(r.Annotations["summary"], "$labels.", "")
			all = append(all, query{r.Alert, r.Expr, legend})
		}
	}
	for _, q := range scalers(t) {
		all = append(all, query{"keda", q, ""})
	}
	return all
}

// scalers are the queries that KEDA and prometheus-adapter send.
func scalers(t *testing.T) []string {
	t.Helper()
	var object struct {
		Spec struct {
			Triggers []struct {
				Type     string
				Metadata map[string]string
			}
		}
	}
	loadYAML(t, "../deploy/keda/scaledobject.yaml", &object)
	var adapter struct {
		Rules struct {
			External []struct {
				Series  string `yaml:"seriesQuery"`
				Metrics string `yaml:"metricsQuery"`
				Name    struct{ As string }
			}
		}
	}
	loadYAML(t, "../deploy/keda/prometheus-adapter.yaml", &adapter)
	var hpa struct {
		Spec struct {
			Metrics []struct {
				External struct{ Metric struct{ Name string } }
			}
		}
	}
	loadYAML(t, "../deploy/keda/hpa.yaml", &hpa)
	if len(object.Spec.Triggers) != 1 || len(adapter.Rules.External) != 1 || len(hpa.Spec.Metrics) != 1 || object.Spec.Triggers[0].Type != "prometheus" {
		t.Fatalf("want one trigger, one rule and one metric: %+v %+v %+v", object, adapter, hpa)
	}
	rule := adapter.Rules.External[0]
	if rule.Name.As != hpa.Spec.Metrics[0].External.Metric.Name {
		t.Errorf("hpa.yaml reads %q, and prometheus-adapter.yaml makes %q", hpa.Spec.Metrics[0].External.Metric.Name, rule.Name.As)
	}
	if rule.Metrics != object.Spec.Triggers[0].Metadata["query"] {
		t.Error("prometheus-adapter.yaml and scaledobject.yaml have different queries")
	}
	return []string{rule.Metrics, rule.Series}
}

// scraped are labels that Prometheus adds to what it scrapes.
var scraped = []string{"instance", "job"}

// exported are the labels of each metric: Carillon's as docs/metrics.md lists them, which TestMetricsAreDocumented
// compares with a server, and those of Go and the process from a server.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"up": nil}
	for name, m := range documentedMetrics(t) {
		all[name] = m.labels
		if m.kind == "histogram" {
			all[name+"_bucket"] = append(slices.Clone(m.labels), "le")
			all[name+"_sum"], all[name+"_count"] = m.labels, m.labels
			delete(all, name)
		}
	}
	_, url := busy(t)
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^((?:go|process)_\w+)(?:\{(\w+)=)?`).FindAllStringSubmatch(string(body), -1) {
		if all[m[1]] = nil; m[2] != "" {
			all[m[1]] = []string{m[2]}
		}
	}
	return all
}

var (
	texts    = regexp.MustCompile(`"[^"]*"`)
	selector = regexp.MustCompile(`\b((?:carillon|go|process)_\w+|up)\b(?:\{([^}]*)\})?`)
	grouping = regexp.MustCompile(`\b(by|on|without|ignoring|group_left|group_right) ?\(([^()]*)\)`)
	shownAs  = regexp.MustCompile(`\{\{ *(\w+)[^}]*\}\}`)
	labels   = regexp.MustCompile(`\w+`)
)

// Each query of deploy/ can be read by Prometheus, and has only metrics and labels that a server exports.
func TestQueriesNameWhatIsExported(t *testing.T) {
	there, all := exported(t), queries(t)
	var rules strings.Builder
	rules.WriteString("groups:\n- name: all\n  rules:\n")
	for i, q := range all {
		fmt.Fprintf(&rules, "  - {record: q%d, expr: %q}\n", i, q.expr)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		expr := texts.ReplaceAllString(q.expr, `""`)
		has, metrics := slices.Clone(scraped), 0
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			of, known := there[m[1]]
			if !known {
				t.Errorf("%s: no server exports %s: %s", q.where, m[1], q.expr)
			}
			metrics++
			has = append(has, of...)
			for _, l := range regexp.MustCompile(`(\w+) *[=!]`).FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(of, l[1]) && !slices.Contains(scraped, l[1]) {
					t.Errorf("%s: %s has no label %s, but %q: %s", q.where, m[1], l[1], of, q.expr)
				}
			}
		}
		if metrics == 0 {
			t.Errorf("%s names no metric: %s", q.where, q.expr)
		}
		var kept []string
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			for _, l := range labels.FindAllString(g[2], -1) {
				if !slices.Contains(has, l) {
					t.Errorf("%s: no metric has the label %s: %s", q.where, l, q.expr)
				}
			}
			if g[1] == "by" {
				kept = append(kept, labels.FindAllString(g[2], -1)...)
			}
		}
		if kept != nil {
			has = kept
		}
		for _, l := range shownAs.FindAllStringSubmatch(q.legend, -1) {
			if l[1] != "value" && !slices.Contains(has, l[1]) {
				t.Errorf("%s shows the label %s, and the query leaves %q: %s", q.where, l[1], has, q.expr)
			}
		}
	}
	if out, ok := promtool(t, "check", "rules", file); !ok {
		t.Errorf("Prometheus cannot read these queries: %s", out)
	}
}

// Scalers count the backlog and the runs on workers; an app without either needs none, and without a leader the query
// has no result.
func TestScalersQuery(t *testing.T) {
	t.Parallel()
	cases := fmt.Sprintf(`
evaluation_interval: 1m
tests:
- name: a backlog and runs
  interval: 1m
  input_series:
  - {series: 'carillon_backlog_runs{tenant="default",app="demo"}', values: '7x9'}
  - {series: 'carillon_worker_runs{tenant="default",app="demo"}', values: '4x9'}
  - {series: 'carillon_backlog_runs{tenant="default",app="other"}', values: '99x9'}
  - {series: 'carillon_leader{instance="n1"}', values: '1x9'}
  promql_expr_test: [{eval_time: 5m, expr: %[1]q, exp_samples: [{value: 11}]}]
- name: neither
  interval: 1m
  input_series: [{series: 'carillon_leader{instance="n1"}', values: '1x9'}, {series: 'carillon_leader{instance="n2"}', values: '0x9'}]
  promql_expr_test: [{eval_time: 5m, expr: %[1]q, exp_samples: [{value: 0}]}]
- name: no leader
  interval: 1m
  input_series: [{series: 'carillon_leader{instance="n1"}', values: '0x9'}]
  promql_expr_test: [{eval_time: 5m, expr: %[1]q}]
`, scalers(t)[0])
	file := filepath.Join(t.TempDir(), "tests.yml")
	if err := os.WriteFile(file, []byte(cases), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, ok := promtool(t, "test", "rules", file); !ok {
		t.Errorf("%s", out)
	}
}
