//go:build linux

package processtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// scrapes are the values of series, as Prometheus stores them.
type scrapes map[string]float64

// scrape reads the metrics of all nodes, at a moment at which none is behind, if there is one soon: a follower applies a
// commit up to a heartbeat later.
func (s *scene) scrape() (all scrapes) {
	for range 20 {
		all = s.scrapeOnce()
		indexes := map[float64]bool{}
		for series, v := range all {
			if strings.HasPrefix(series, "carillon_store_log_applied_index{") {
				indexes[v] = true
			}
		}
		if len(indexes) <= 1 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return all
}

func (s *scene) scrapeOnce() scrapes {
	all := scrapes{}
	for _, n := range s.cluster {
		labels := fmt.Sprintf(`instance=%q,job="carillon"`, n.name)
		status, text := n.ask(http.MethodGet, "/metrics", "", answers)
		up := 0.
		if status == http.StatusOK {
			up = 1
		}
		all["up{"+labels+"}"] = up
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			at := strings.LastIndexByte(line, ' ')
			if status != http.StatusOK || at < 0 || line[0] == '#' {
				continue
			}
			name, value := line[:at], line[at+1:]
			if v, err := strconv.ParseFloat(value, 64); err == nil && v == v {
				name, rest, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
				all[name+"{"+strings.TrimPrefix(rest+","+labels, ",")+"}"] = v
			}
		}
	}
	return all
}

var firing = regexp.MustCompile(`alertname="(\w+)"\} 1`)

// ringing returns which alerts of deploy/alerts.yml ring in the twenty minutes that a situation lasts, if the metrics
// stay as they are in it.
func ringing(t *testing.T, before, during scrapes) []string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		tests.Missing(t, "promtool is not installed (Debian: prometheus)")
	}
	rules, err := filepath.Abs("../../../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var series, at []object
	names := map[string]bool{}
	for _, of := range []scrapes{before, during} {
		for name := range of {
			metric, _, _ := strings.Cut(name, "{")
			if !names[name] && regexp.MustCompile(`\b`+metric+`\b`).Match(text) {
				names[name] = true
				series = append(series, object{"series": name, "values": value(before, name, 1) + " " + value(during, name, 20)})
			}
		}
	}
	for _, minute := range []int{3, 8, 13, 20} {
		at = append(at, object{"expr": `group by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": fmt.Sprint(minute, "m"), "exp_samples": []any{}})
	}
	raw, err := json.Marshal(object{"rule_files": []string{rules}, "evaluation_interval": "1m",
		"tests": []object{{"interval": "1m", "input_series": series, "promql_expr_test": at}}})
	file := filepath.Join(t.TempDir(), "alerts.json")
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "test", "rules", file).CombinedOutput()
	var alerts []string // promtool prints those that ring, since the test expects none
	for _, found := range firing.FindAllStringSubmatch(string(out), -1) {
		alerts = append(alerts, strings.TrimPrefix(found[1], "Carillon"))
	}
	if err != nil && len(alerts) == 0 {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	slices.Sort(alerts)
	return slices.DeleteFunc(slices.Compact(alerts), func(a string) bool { return a == "NoWorkers" }) // a scene has none
}

// value writes a series of equal values, which promtool reads without an exponent; "_" is none.
func value(of scrapes, name string, times int) string {
	v, is := of[name]
	if !is {
		return fmt.Sprintf("_x%d", times)
	}
	return fmt.Sprintf("%sx%d", strconv.FormatFloat(v, 'f', -1, 64), times)
}

// mustRing is whether an alert rings in an outcome, for those that each situation decides. alone: there is no other node
// that leads.
func (want outcome) mustRing(alone bool) map[string]bool {
	switch want {
	case away:
		return map[string]bool{"NoLeader": true, "NotReady": true}
	case cutOff:
		return map[string]bool{"NoLeader": false, "NotReady": true}
	case ends:
		return map[string]bool{"NoLeader": alone, "NodeDown": true}
	default:
		return map[string]bool{"NoLeader": false, "NotReady": false, "NodeDown": false, "MemoryFull": want == refuses}
	}
}

// wrongAlerts returns which alerts ring and should not, or should and do not.
func (want outcome) wrongAlerts(alone bool, ring []string) (wrong []string) {
	for alert, must := range want.mustRing(alone) {
		if slices.Contains(ring, alert) != must {
			wrong = append(wrong, fmt.Sprintf("%s rings: %v, want %v", alert, !must, must))
		}
	}
	slices.Sort(wrong)
	return wrong
}
