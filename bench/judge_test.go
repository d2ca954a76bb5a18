package main

import (
	"bytes"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the pictures of testdata")

func nanos(seconds float64) int64 { return int64(seconds * 1e9) }

func TestJudge(t *testing.T) {
	from, to := time.Unix(100, 0), time.Unix(103, 0)
	for _, c := range []struct {
		name                                       string
		starts                                     []start
		delivered, missed, doubled, early, lateMax float64
	}{
		{"all of them", []start{{0, nanos(100), nanos(100.01)}, {0, nanos(101), nanos(101.01)}, {0, nanos(102), nanos(102.25)}}, 3, 0, 0, 0, 250},
		{"one is missed, one comes twice, one early", []start{{0, nanos(100), nanos(100.01)}, {0, nanos(100), nanos(100.02)}, {0, nanos(102), nanos(101.9)}}, 2, 1, 1, 1, 10},
		{"outside of the window", []start{{0, nanos(99), nanos(100.5)}, {0, nanos(103), nanos(103.1)}}, 0, 3, 0, 0, -1},
		{"without due times, from before the window", []start{{0, 0, nanos(99.1)}, {0, 0, nanos(100.1)}, {0, 0, nanos(101.1)}, {0, 0, nanos(102.1)}}, 3, 0, 0, 0, 100},
		{"without due times, one second is missing", []start{{0, 0, nanos(99.1)}, {0, 0, nanos(100.1)}, {0, 0, nanos(102.1)}}, 2, 1, 0, 0, 1100},
	} {
		f := judge(c.starts, 1, from, to)
		for name, want := range map[string]float64{"expected": 3, "delivered": c.delivered, "missed": c.missed, "doubled": c.doubled, "early": c.early, "late_max_ms": c.lateMax} {
			if f[name] != want {
				t.Errorf("%s: %s is %g, want %g", c.name, name, f[name], want)
			}
		}
	}
}

func TestEachOnce(t *testing.T) {
	for name, starts := range map[string][]start{"one is missing": {{N: 0}}, "one ran twice": {{N: 0}, {N: 0}}, "one that was not asked for": {{N: 0}, {N: 2}}} {
		if eachOnce(starts, 2) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := eachOnce([]start{{N: 1}, {N: 0}}, 2); err != nil {
		t.Error(err)
	}
}

// three rounds of us and River, of which one of River's failed.
var three = results{
	{Part: "short", Scenario: "batch", System: "carillon", Round: 1, Figures: map[string]float64{"jobs_per_s": 64_000, "enqueued_per_s": 70_000}},
	{Part: "short", Scenario: "batch", System: "river tuned", Round: 1, Figures: map[string]float64{"jobs_per_s": 10_000, "enqueued_per_s": 10_000}},
	{Part: "short", Scenario: "batch", System: "river tuned", Round: 2, Figures: map[string]float64{"jobs_per_s": 8_000}},
	{Part: "short", Scenario: "batch", System: "carillon", Round: 2, Figures: map[string]float64{"jobs_per_s": 32_000}},
	{Part: "short", Scenario: "batch", System: "carillon", Round: 3, Figures: map[string]float64{"jobs_per_s": 90_000}},
	{Part: "short", Scenario: "batch", System: "river tuned", Round: 3, Failed: "no jobs"},
	{Part: "short", Scenario: "batch", System: "carillon", Round: 1, Workers: 2, Figures: map[string]float64{"jobs_per_s": 1}},
	{Part: "short", Scenario: "delayed", System: "carillon", Round: 1, Figures: map[string]float64{"early": 0, "late_p99_ms": 2}},
	{Part: "short", Scenario: "delayed", System: "carillon", Round: 2, Figures: map[string]float64{"early": 1, "late_p99_ms": 2}},
	{Part: "short", Scenario: "delayed", System: "river tuned", Round: 2, Figures: map[string]float64{"early": 0, "late_p99_ms": 1}},
	{Part: "another day", Scenario: "delayed", System: "river tuned", Round: 1, Figures: map[string]float64{"early": 0, "late_p99_ms": 1000}},
	{Part: "short", Scenario: "batch", System: "carillon postgres", Round: 1, Figures: map[string]float64{"jobs_per_s": 9_000}},
	{Part: "short", Scenario: "fires", System: "carillon", Round: 1, Figures: map[string]float64{"fires_per_s": 30_000}},
	{Part: "short", Scenario: "fires", System: "carillon", Round: 2, Figures: map[string]float64{"fires_per_s": 8_999}},
	{Part: "short", Scenario: "idle", System: "carillon", Figures: map[string]float64{"cores": 0.013}},
}

func TestVerdicts(t *testing.T) {
	if f, _ := three.ratio("carillon", "batch", "jobs_per_s", "river tuned"); f != 5.2 { // the median of 6.4 and 4: pairs of one round
		t.Errorf("ratio %g", f)
	}
	got := map[string]string{}
	for _, v := range three.verdicts() {
		got[v.goal] = v.reached + " " + v.met
	}
	for goal, want := range map[string]string{
		"batch jobs_per_s at least 5 times as good as river tuned (stretch: 12)":                         "5.20 met",
		"batch enqueued_per_s at least 4 times as good as river tuned (stretch: 10)":                     "7.00 met",
		"delayed late_p99_ms at least 8 times as good as river tuned (stretch: 12)":                      "0.50 **missed**", // of the rounds of one day
		"delayed early at most 0, in each round":                                                         "1 **missed**",
		"carillon postgres: batch jobs_per_s at least 1.50 times as good as river tuned (stretch: 2.50)": "0.90 **missed**",
		"fires fires_per_s at least 9000, in each round (stretch: 30,000)":                               "8999 **missed**",
		"idle cores at most 0.02, in each round":                                                         "0.013 met",
	} {
		if got[goal] != want {
			t.Errorf("%s: %q, want %q", goal, got[goal], want)
		}
	}
	if len(got) != 7 {
		t.Errorf("verdicts about what was not measured: %v", got)
	}
	if d := three.doubts(); len(d) != 1 || !strings.Contains(d[0], "river tuned reached 9000 of 14000") {
		t.Errorf("doubts: %q", d)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.md")
	text := "before\n<!-- figures of the short run: begin -->\nold\n<!-- figures of the short run: end -->\nafter\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := three.write(path, "full"); err == nil {
		t.Error("there is no place for the full run, and no error")
	}
	if err := three.write(path, "short"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := string(b)
	if !strings.HasPrefix(s, "before\n") || !strings.HasSuffix(s, "end -->\nafter\n") || strings.Contains(s, "old") {
		t.Errorf("written:\n%s", s)
	}
	for _, want := range []string{"| river tuned | 9,000 (8,000 to 10,000) |", "5.20", "Not measured: river tuned, batch, round 3: no jobs."} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is not in\n%s", want, s)
		}
	}
}

// A part that is played again replaces its own lines only; the document has a section for each part, with its time.
func TestParts(t *testing.T) {
	if _, err := choose("full", []string{"peers", "river"}); err == nil || !strings.Contains(err.Error(), `no part "river"; it has peers (`) {
		t.Errorf("a part that is not there: %v", err)
	}
	chosen, err := choose("full", []string{"finished", "peers"})
	if err != nil || len(chosen) != 2 || chosen[0].name != "finished" || chosen[1].name != "peers" {
		t.Errorf("%v, %v", chosen, err)
	}
	for _, p := range plans["full"] {
		for _, turns := range p.turns {
			if _, err := pick(turns.systems); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		for _, scenario := range p.alone {
			if scenarios[scenario] == nil {
				t.Errorf("%s: there is no scenario %q", p.name, scenario)
			}
		}
	}
	two := results{
		{Part: "three", Scenario: "run", Run: &run{At: time.Unix(0, 0).UTC(), Command: "just bench-full three"}},
		{Part: "three", Scenario: "batch", System: "carillon", Round: 1, Figures: map[string]float64{"jobs_per_s": 10_000}},
		{Part: "peers", Scenario: "run", Run: &run{At: time.Unix(86400, 0).UTC(), Command: "just bench-full peers"}},
		{Part: "peers", Scenario: "batch", System: "carillon", Round: 1, Figures: map[string]float64{"jobs_per_s": 20_000}},
	}
	path := filepath.Join(t.TempDir(), "lines")
	if err := keep(path, two); err != nil {
		t.Fatal(err)
	}
	back, err := readLines(path)
	if err != nil || len(back) != 4 {
		t.Fatalf("%v, %v", back, err)
	}
	_, rest, _ := strings.Cut(back.markdown("full"), "#### peers: beside River")
	peers, stores, _ := strings.Cut(rest, "#### three: a cluster of three")
	for text, wants := range map[string][]string{peers: {"1970-01-02", "| carillon | 20,000 |"}, stores: {"1970-01-01", "| carillon | 10,000 |"}} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
}

// curved are lines of which every curve can be drawn: medians, in order, of this system alone.
var curved = results{
	{Part: "curves", Scenario: "batch", System: "carillon", Workers: 2, Figures: map[string]float64{"jobs_per_s": 41_000}},
	{Part: "curves", Scenario: "batch", System: "carillon", Workers: 1, Round: 1, Figures: map[string]float64{"jobs_per_s": 36_000}},
	{Part: "curves", Scenario: "batch", System: "carillon", Workers: 1, Round: 2, Figures: map[string]float64{"jobs_per_s": 30_000}},
	{Part: "curves", Scenario: "batch", System: "carillon", Workers: 1, Round: 3, Figures: map[string]float64{"jobs_per_s": 38_000}},
	{Part: "curves", Scenario: "batch", System: "carillon", Workers: 3, Failed: "no jobs"},
	{Part: "curves", Scenario: "batch", System: "river tuned", Workers: 3, Figures: map[string]float64{"jobs_per_s": 1}},
	{Part: "peers", Scenario: "batch", System: "carillon", Workers: 1, Figures: map[string]float64{"jobs_per_s": 1}},
	{Part: "curves", Scenario: "sizes", System: "carillon", Figures: map[string]float64{"at 100": 33_400, "at 1": 4_210, "at 10": 21_000, "jobs": 7}},
}

func TestPlots(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "figures.md")
	if err := os.WriteFile(path, []byte("<!-- figures of the full run: begin -->\n<!-- figures of the full run: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := curved.write(path, "full"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]string{
		"plot-workers.svg": "| worker processes | 1 | 2 |\n|---|---|---|\n| jobs/s | 36,000 | 41,000 |\n",
		"plot-sizes.svg":   "| runs in a call | 1 | 10 | 100 |\n|---|---|---|---|\n| jobs/s | 4,210 | 21,000 | 33,400 |\n",
	} {
		if !strings.Contains(string(page), "]("+name+")\n\n"+table) {
			t.Errorf("%s with its table is not in\n%s", name, page)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(got) {
			t.Errorf("%s is not as in testdata (%v); go test -run TestPlots -update writes it\n%s", name, err, got)
		}
		if d := xml.NewDecoder(bytes.NewReader(got)); d.Decode(new(struct{})) != nil {
			t.Errorf("%s is no XML", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "plot-backlog.svg")); err == nil {
		t.Error("a plot of what was not measured")
	}
}

// A trend distinguishes growth from noise; a hiccup and the time in which buffers fill up do not count.
func TestTrends(t *testing.T) {
	for _, c := range []struct {
		name   string
		length time.Duration
		value  func(n int) float64 // of the nth of 60 samples
		want   map[string]string
	}{
		{"level", time.Hour, func(int) float64 { return 400 }, map[string]string{"server's memory, MiB": "flat", "start p99, ms": "flat"}},
		{"filled up in the first third", time.Hour, func(n int) float64 { return float64(min(n, 20)) * 20 }, map[string]string{"server's memory, MiB": "flat"}},
		{"noisy, with hiccups", time.Hour, func(n int) float64 { return 400 + float64(n*37%80) + 5000*float64(max(n%13-11, 0)) }, map[string]string{"server's memory, MiB": "flat"}},
		{"48 an hour, of which 32 count", time.Hour, func(n int) float64 { return 350 + 0.8*float64(n) }, map[string]string{"server's memory, MiB": "flat", "start p50, ms": "flat"}}, // less than a tenth of 382
		{"90 an hour, of which 60 count", time.Hour, func(n int) float64 { return 350 + 1.5*float64(n) },
			map[string]string{"server's memory, MiB": "**rises** by 60", "worker's goroutines": "**rises** by 60"}},
		{"the same in ten minutes", 10 * time.Minute, func(n int) float64 { return 350 + 1.5*float64(n) },
			map[string]string{"server's memory, MiB": "not judged", "data directory, MiB": "flat", "worker's memory, MiB": "**rises** by 60"}},
		{"falls", time.Hour, func(n int) float64 { return 400 - 3*float64(n) }, map[string]string{"server's memory, MiB": "flat"}},
	} {
		var samples []sample
		for n := range 60 {
			s := sample{c.length * time.Duration(n) / 60, map[string]float64{}}
			for name := range c.want {
				s.values[name] = c.value(n)
			}
			samples = append(samples, s)
		}
		got := trends(samples, c.length)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
		for _, tr := range got {
			if want := c.want[tr.Name]; !strings.HasPrefix(tr.Judged, want) {
				t.Errorf("%s: %s: %q, want %q", c.name, tr.Name, tr.Judged, want)
			}
		}
	}
}

func TestCeiling(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 1: 1, 9: 10, 10: 10, 36_000: 40_000, 41_000: 60_000, 81_000: 100_000, 100_001: 200_000} {
		if got := ceiling(v); got != want {
			t.Errorf("%g: %g, want %g", v, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{0: "0", -464.97: "-465", 0.123: "0.12", 9.876: "9.88", 12.34: "12.3", 123.4: "123", 1234: "1,230", 12_345: "12,300", 123_456: "123,000", 999_999: "1,000,000", 10_000_000: "10,000,000", 1_234_567: "1,230,000", 999: "999", 1000: "1,000"} {
		if got := number3(f); got != want {
			t.Errorf("%g: %s, want %s", f, got, want)
		}
	}
}
