package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// goal is what a system of ours should reach, beside another system in the same run or by itself.
type goal struct {
	of               string // the system that is judged; "" = the first of systems
	scenario, figure string
	peer             string  // "" = by itself
	factor           float64 // beside a peer: how many times as good, at least
	most             float64 // by itself: at most this in each round
	least            float64 // by itself, if not 0: at least this instead
	stretch          float64 // the goal after this one, in the unit of factor, most or least; 0 = none
}

// goals are checked by every run that measures them.
var goals = []goal{
	{scenario: "batch", figure: "jobs_per_s", peer: "river tuned", factor: 5, stretch: 12},
	{scenario: "batch", figure: "enqueued_per_s", peer: "river tuned", factor: 4, stretch: 10}, // while the worker is busy
	{scenario: "batch", figure: "cpu_us_per_job", peer: "river tuned", factor: 4, stretch: 12},
	{scenario: "x1", figure: "jobs_per_s", peer: "river tuned", factor: 1.2, stretch: 2.2},
	{scenario: "x1", figure: "jobs_per_s", peer: "asynq always", factor: 1},
	{scenario: "x16", figure: "jobs_per_s", peer: "river tuned", factor: 4, stretch: 6},
	{scenario: "x16", figure: "jobs_per_s", peer: "asynq tuned", factor: 1.2, stretch: 2},
	{scenario: "x16", figure: "jobs_per_s", peer: "asynq always", factor: 5, stretch: 8},
	{scenario: "x64", figure: "jobs_per_s", peer: "river tuned", factor: 1},
	{scenario: "x64", figure: "jobs_per_s", peer: "asynq tuned", factor: 1},
	{scenario: "x64", figure: "jobs_per_s", peer: "asynq always", factor: 1},
	{scenario: "latency200", figure: "start_p50_ms", peer: "river tuned", factor: 1 / 0.6, stretch: 1 / 0.35},
	{scenario: "latency200", figure: "start_p99_ms", peer: "river tuned", factor: 1 / 0.6, stretch: 1 / 0.3},
	{scenario: "latency200", figure: "start_p99_ms", peer: "asynq tuned", factor: 1},
	{scenario: "latency2000", figure: "start_p99_ms", peer: "river tuned", factor: 1},
	{scenario: "latency2000", figure: "start_p99_ms", peer: "asynq tuned", factor: 1},
	{scenario: "delayed", figure: "early", most: 0},
	{scenario: "delayed", figure: "late_p99_ms", peer: "river tuned", factor: 8, stretch: 12},
	{scenario: "delayed", figure: "late_p99_ms", peer: "gocron", factor: 1.0 / 4, stretch: 1.0 / 2},
	{scenario: "second100", figure: "missed", most: 0},
	{scenario: "second1000", figure: "missed", most: 0},
	{scenario: "second10000", figure: "missed", most: 0},
	{scenario: "second10000", figure: "doubled", most: 0},
	{scenario: "second10000", figure: "late_p99_ms", peer: "river tuned", factor: 2, stretch: 5},
	{scenario: "fires", figure: "fires_per_s", least: 30 * dkron, stretch: 100 * dkron},
	{of: "carillon three", scenario: "batch", figure: "jobs_per_s", peer: "carillon", factor: 1.0 / 2},
	{of: "carillon postgres", scenario: "batch", figure: "jobs_per_s", peer: "river tuned", factor: 1.5, stretch: 2.5},
	{of: "carillon postgres", scenario: "x1", figure: "jobs_per_s", peer: "river tuned", factor: 1, stretch: 1.3},
	{of: "carillon postgres", scenario: "x16", figure: "jobs_per_s", peer: "river tuned", factor: 3},
	{of: "carillon postgres", scenario: "latency200", figure: "start_p50_ms", peer: "river tuned", factor: 1 / 0.9, stretch: 1 / 0.7},
	{of: "carillon replicas", scenario: "batch", figure: "jobs_per_s", peer: "river tuned", factor: 1.5, stretch: 2.5},
	{of: "carillon replicas", scenario: "x1", figure: "jobs_per_s", peer: "river tuned", factor: 1, stretch: 1.3},
	{of: "carillon mariadb", scenario: "batch", figure: "jobs_per_s", peer: "river tuned", factor: 0.7, stretch: 1},
	{of: "carillon postgres", scenario: "takeover", figure: "warm_leads_s", most: 1},
	{of: "carillon postgres", scenario: "takeover", figure: "cold_leads_s", most: 10},
	{of: "carillon postgres", scenario: "tenmillion", figure: "slower", most: 0.1},
	{scenario: "herd", figure: "early", most: 0},
	{scenario: "together", figure: "created_s", most: 0.5},
	{scenario: "together", figure: "started_s", most: 2},
	{scenario: "definitions", figure: "ready_again_s", most: 5},
	{scenario: "definitions", figure: "server_rss_mib", most: 1024},
	{scenario: "definitions", figure: "rss_again_mib", most: 1024},
	{scenario: "idle", figure: "cores", most: 0.02},
	{scenario: "finished", figure: "slower", most: 0.1},
}

// dkron is how many jobs a second Dkron fires at most, as it was measured elsewhere.
const dkron = 300

// sane is what a peer reaches on a machine that has nothing else to do. One that does not is mis-set, or the machine
// is slow or busy: its ratios mean nothing.
var sane = []struct {
	peer, scenario, figure string
	least                  float64
}{
	{"river tuned", "batch", "jobs_per_s", 14_000},
	{"asynq tuned", "x16", "jobs_per_s", 8_000},
}

// results are lines by part, scenario and system.
type results []line

// turnOf is one round of one part of a plan: what was measured then, was measured within the same minutes.
type turnOf struct {
	part  string
	round int
}

// rounds are a figure of a system in a scenario, with one worker process.
func (r results) rounds(scenario, system, figure string) map[turnOf]float64 {
	found := map[turnOf]float64{}
	for _, l := range r {
		if l.Scenario == scenario && l.System == system && l.Failed == "" && l.Workers <= 1 {
			if f, ok := l.Figures[figure]; ok {
				found[turnOf{l.Part, l.Round}] = f
			}
		}
	}
	return found
}

// middle is the median over the rounds; ok is false when there is none.
func (r results) middle(scenario, system, figure string) (_ float64, ok bool) {
	all := slices.Collect(maps.Values(r.rounds(scenario, system, figure)))
	return median(all), len(all) > 0
}

// ratio is how many times as good one of ours is as another system: the median of the rounds that both have.
func (r results) ratio(ours, scenario, figure, peer string) (_ float64, ok bool) {
	mine, theirs := r.rounds(scenario, ours, figure), r.rounds(scenario, peer, figure)
	var all []float64
	for round, m := range mine {
		t, both := theirs[round]
		switch {
		case !both || m <= 0 || t <= 0:
		case lessIsBetter(figure):
			all = append(all, t/m)
		default:
			all = append(all, m/t)
		}
	}
	return median(all), len(all) > 0
}

func lessIsBetter(figure string) bool { return !strings.HasSuffix(figure, "_per_s") }

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// verdict is a goal beside what was measured.
type verdict struct{ goal, reached, met string }

// verdicts are about the goals that were measured.
func (r results) verdicts() []verdict {
	var all []verdict
	for _, g := range goals {
		of := cmp.Or(g.of, systems[0].name)
		what := g.scenario + " " + g.figure
		if g.of != "" {
			what = g.of + ": " + what
		}
		if g.peer == "" {
			if reached, ok := r.worst(of, g); ok {
				what, bound := what+" at most %s, in each round", g.most
				if g.least > 0 {
					what, bound = strings.Replace(what, "most", "least", 1), g.least
				}
				all = append(all, g.judge(fmt.Sprintf(what, digits(bound)), digits(reached), reached, bound, g.least > 0))
			}
			continue
		}
		if ratio, ok := r.ratio(of, g.scenario, g.figure, g.peer); ok {
			all = append(all, g.judge(fmt.Sprintf("%s at least %s times as good as %s", what, number3(g.factor), g.peer), fmt.Sprintf("%.2f", ratio), ratio, g.factor, true))
		}
	}
	return all
}

// digits returns enough digits of a figure to differ from a goal that it just missed.
func digits(f float64) string {
	if f >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 4, 64)
}

// judge compares what was reached with the goal, and with the stretch goal.
func (g goal) judge(what, goalText string, reached, bound float64, more bool) verdict {
	enough := func(bound float64) bool { return more && reached >= bound || !more && reached <= bound }
	v := verdict{what, goalText, "**missed**"}
	if g.stretch > 0 {
		v.goal += fmt.Sprintf(" (stretch: %s)", number3(g.stretch))
	}
	switch {
	case g.stretch > 0 && enough(g.stretch):
		v.met = "met, stretch too"
	case enough(bound):
		v.met = "met"
	}
	return v
}

// worst is a system's figure in the round that was farthest from the goal.
func (r results) worst(system string, g goal) (_ float64, ok bool) {
	all := slices.Sorted(maps.Values(r.rounds(g.scenario, system, g.figure)))
	switch {
	case len(all) == 0:
		return 0, false
	case g.least > 0:
		return all[0], true
	}
	return all[len(all)-1], true
}

// doubts are about peers that did not reach what they reach elsewhere.
func (r results) doubts() []string {
	var all []string
	for _, s := range sane {
		if f, ok := r.middle(s.scenario, s.peer, s.figure); ok && f < s.least {
			all = append(all, fmt.Sprintf("%s reached %.0f of %.0f %s in %s: it is mis-set, or the machine is slow or busy; its ratios mean nothing", s.peer, f, s.least, s.figure, s.scenario))
		}
	}
	return all
}
