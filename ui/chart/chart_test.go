package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

func minutes(n int) []time.Time {
	at := make([]time.Time, n)
	for i := range at {
		at[i] = time.Date(2026, 11, 21, 12, i, 0, 0, time.UTC)
	}
	return at
}

const ms = time.Millisecond

// The drawings are what they were; look at the difference before updating them.
func TestDrawings(t *testing.T) {
	for name, got := range map[string]template.HTML{
		"stack": Stack{Title: "Ended by minute", At: minutes(4), Series: []Series{
			{"succeeded", "good", []int64{10, 0, 70, 1}}, {"failed", "warn", []int64{0, 0, 5, 0}}, {"terminated", "bad", []int64{0, 0, 2, 1}}}}.HTML(),
		"stack-empty": Stack{Title: "Ended by minute", At: minutes(2), Series: []Series{{"succeeded", "good", []int64{0, 0}}}}.HTML(),
		"band": Band{Title: "Lateness", At: minutes(6), LowName: "p50", HighName: "p99", Known: []bool{true, true, false, true, false, false},
			Low: []time.Duration{ms, 2 * ms, 0, 3 * ms, 0, 0}, High: []time.Duration{4 * ms, 130 * ms, 0, 9 * ms, 0, 0}}.HTML(),
		"share": Share{Title: "Runs now", Parts: []Part{{"running", "busy", 3, "/runs?state=Processing"}, {"waiting", "wait", 0, ""}, {"later", "calm", 100_000, ""}}}.HTML(),
		"graph": Graph{Title: "Runs of one occasion", More: 3, Nodes: []Node{{ID: "1", Name: "billing.extract", Text: "Succeeded", Class: "succeeded", Href: "/runs/1"},
			{ID: "2", Name: `billing.<b>"a-name-that-is-too-long"`, Text: "Terminated", Class: "terminated", Here: true}, {ID: "3", Name: "billing.report", Text: "no run yet", Href: "/jobs/billing.report"}},
			Edges: []Edge{{From: "1", To: "2", Text: "after success", Kind: EdgeSuccess, Done: true}, {From: "2", To: "3", Text: "after any end", Kind: EdgeEnd}, {From: "1", To: "3", Text: "after failure", Kind: EdgeFailure}}}.HTML(),
		"heat":  Heat{Title: "Planned", What: "planned", From: minutes(31)[30], Usual: 1, Minutes: append(slices.Repeat([]int{1}, 40), 0, 0, 2, 3, 9, 40, 1, 1)}.HTML(),
		"spark": Spark("last runs", []Run{{"succeeded", 20 * ms, "Succeeded in 20 ms", minutes(1)[0], "/runs/1"}, {"terminated", 80 * ms, `Terminated "<b>`, minutes(2)[1], ""}}),
	} {
		path := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is drawn\n%s\nwant\n%s", name, got, want)
		}
		if err := wellFormed(string(got)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(string(got), "NaN") || strings.Contains(string(got), "Inf") || strings.Contains(string(got), "%!") || strings.Contains(string(got), "style=") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func wellFormed(markup string) error {
	d := xml.NewDecoder(strings.NewReader("<x>" + strings.ReplaceAll(strings.ReplaceAll(markup, " data-minute", ""), "<br>", "") + "</x>"))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Scales end at round numbers, and nothing that is there is too small to be seen.
func TestScale(t *testing.T) {
	for v, want := range map[float64]float64{0: 4, 4: 4, 5: 8, 9: 20, 21: 40, 39: 40, 41: 80, 100: 200, 1e6: 2e6} {
		if got := nice(v, 4); got < v || got != want {
			t.Errorf("the scale for %v ends at %v, want %v", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 2.5: "2.5", 950: "950", 1200: "1.2k", 50_000: "50k", 3e6: "3M"} {
		if got := short(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 µs", 500 * time.Microsecond: "500 µs", 20 * ms: "20 ms", 2 * time.Second: "2 s", 90 * time.Minute: "1.5 h"} {
		if got := length(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := (Stack{}).HTML() + (Band{}).HTML(); got != "" {
		t.Errorf("nothing is drawn as %q", got)
	}
	drawn := string(Stack{At: minutes(2), Series: []Series{{"few", "bad", []int64{1, 0}}, {"many", "good", []int64{1_000_000, 0}}}}.HTML())
	if !strings.Contains(drawn, `height="1.50"`) {
		t.Errorf("one of a million is not seen: %s", drawn)
	}
}
