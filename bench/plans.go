package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// part is a piece of a plan that is run in one sitting: what is compared with each other is in the same part.
type part struct {
	name  string
	about string
	turns []turns
	alone []string // scenarios of ours that follow, once each
}

// turns are systems that take turns, and what each does at its turn.
type turns struct {
	systems  string // names with commas between
	measures string
	rounds   int
	workers  []int // worker processes; one system is started anew for each
}

var single = []int{1}

// plans by name. What goals are about comes first.
var plans = map[string][]part{
	"short": {
		{name: "short", turns: []turns{{"carillon,river tuned,asynq tuned", "batch,x16,latency200,delayed", 3, single}}, alone: []string{"onekey", "heap"}},
	},
	"soak":    {{name: "soak"}},
	"history": {{name: "history", alone: []string{"lists", "listsdb"}}},
	"databases": {{name: "databases", turns: []turns{
		{"carillon postgres,carillon replicas,carillon mariadb,river tuned", "batch,x1,x16,latency200,delayed", 3, single},
	}, alone: []string{"takeover", "tenmillion"}}},
	"full": {
		{name: "peers", about: "beside River, asynq and gocron's timer", turns: []turns{
			{"carillon,river tuned", "batch", 3, single},
			{"carillon,river tuned,asynq tuned,asynq always", "x1,x16,latency200", 3, single},
			{"carillon,river tuned,gocron", "delayed", 3, single},
		}},
		{name: "seconds", about: "jobs that are due every second, and many that are due at once", turns: []turns{
			{"carillon,river tuned", "second10000", 3, single},
			{"carillon", "fires,together", 3, single},
		}},
		{name: "three", about: "a cluster of three", turns: []turns{
			{"carillon,carillon three", "batch,x16", 3, single},
			{"carillon,carillon three", "latency200,delayed", 1, single},
		}},
		{name: "large", about: "a million jobs, and what a hundred thousand cost while nothing happens", alone: []string{"definitions", "idle", "heap", "onekey"}},
		{name: "fairness", about: "a slow worker, a dead host, an app that floods", alone: []string{"uneven", "deadhost", "flooded", "tenants"}},
		{name: "finished", about: "ten million runs", alone: []string{"finished"}},
		{name: "curves", about: "how the cost grows", turns: []turns{{"carillon", "batch,x16", 3, []int{1, 2, 3, 4}}}, alone: []string{"sizes", "payloads", "backlog"}},
		{name: "more", about: "more callers, more jobs a second, more systems", turns: []turns{
			{"carillon,river tuned,asynq tuned,asynq always", "x64,latency2000", 2, single},
			{"carillon,river tuned,asynq tuned", "herd,second100,second1000", 1, single},
			{"carillon memory,carillon external,river default,asynq everysec,asynq default", "batch,x1,x16,latency200,delayed", 1, single},
		}},
		{name: "pages", about: "pages with a million runs, and a million that wait", alone: []string{"pages", "flood"}},
	},
}

// play runs a part of a plan and passes each result on.
func (p part) play(out func(line)) error {
	for _, t := range p.turns {
		if err := t.play(out); err != nil {
			return err
		}
	}
	for _, scenario := range p.alone {
		if err := one(scenario, out); err != nil {
			out(line{Scenario: scenario, System: systems[0].name, Failed: err.Error()})
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", scenario, err)
		}
	}
	return nil
}

func (t turns) play(out func(line)) error {
	entries, err := pick(t.systems)
	if err != nil {
		return err
	}
	var some []measure
	for name := range strings.SplitSeq(t.measures, ",") {
		i := slices.IndexFunc(measures, func(m measure) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("there is no scenario %q", name)
		}
		some = append(some, measures[i])
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool {
		what := e.missing()
		if what != "" {
			fmt.Fprintln(os.Stderr, "bench: NOT MEASURED:", what)
			out(line{Scenario: "all", System: e.name, Failed: what})
		}
		return what != ""
	})
	if len(entries) == 0 {
		return nil
	}
	for round := 1; round <= t.rounds; round++ {
		for i := range entries { // the first of one round is the last of the next
			e := entries[(i+round-1)%len(entries)]
			for _, workers := range t.workers {
				turn(e, some, round, workers, out)
			}
		}
	}
	return nil
}

// campaign plays a plan, or those of its parts that are named, keeps the lines in bin/, and writes the document from
// all that are there: a part that is played again replaces its own lines, and no others.
func campaign(plan string, names []string) error {
	chosen, err := choose(plan, names)
	if err != nil {
		return err
	}
	path := linesOf(plan)
	all, err := readLines(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll("../bin", 0o755); err != nil {
		return err
	}
	for _, p := range chosen {
		all = slices.DeleteFunc(all, func(l line) bool { return l.Part == p.name })
		if err := keep(path, all); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		out := func(l line) {
			l.Part = p.name
			print(l)
			_ = json.NewEncoder(file).Encode(l)
			all = append(all, l)
		}
		out(line{Scenario: "run", Run: aboutRun(command(plan, p.name))})
		if err := errors.Join(p.play(out), file.Close()); err != nil {
			return err
		}
		if err := all.write(document, plan); err != nil {
			return err
		}
	}
	for _, d := range all.doubts() {
		fmt.Fprintln(os.Stderr, "bench: IN DOUBT:", d)
	}
	for _, v := range all.verdicts() {
		fmt.Fprintf(os.Stderr, "bench: %s: reached %s: %s\n", v.goal, v.reached, v.met)
	}
	return nil
}

// choose finds parts of a plan by name; without names it is all of them.
func choose(plan string, names []string) ([]part, error) {
	all := plans[plan]
	if len(names) == 0 {
		return all, nil
	}
	var chosen []part
	for _, name := range names {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			var there []string
			for _, p := range all {
				there = append(there, p.name+" ("+p.about+")")
			}
			return nil, fmt.Errorf("the %s plan has no part %q; it has %s", plan, name, strings.Join(there, "; "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// command is what one types to play a part of a plan.
func command(plan, part string) string {
	text := map[string]string{"short": "just bench", "full": "just bench-full", "databases": "just bench databases", "history": "just bench history"}[plan]
	if len(plans[plan]) > 1 {
		text += " " + part
	}
	if *count > 0 {
		text = fmt.Sprintf("bench -n %d %s %s", *count, plan, part)
	}
	return text
}

// linesOf is the file that has the lines of a plan.
func linesOf(plan string) string { return "../bin/bench-" + plan + ".jsonl" }

// keep writes lines to a file; those that it had are gone.
func keep(path string, all results) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, l := range all {
		if err := json.NewEncoder(file).Encode(l); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// table writes the document again from lines that are there, of a plan: table full.
func table(plan string) error {
	all, err := readLines(linesOf(plan))
	if err != nil {
		return fmt.Errorf("table wants the name of a plan that was run: %w", err)
	}
	return all.write(document, plan)
}

// one runs a scenario of ours in a cluster of its own.
func one(name string, out func(line)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	before := load()
	system := "carillon"
	var h *fixture
	var err error
	if inDatabase[name] {
		system += " " + *store
		h, err = buildOn(ctx, *store, filled[name])
	} else {
		h, err = build(ctx, setup{memory: *memory, auth: name == "tenants", filling: filled[name]})
	}
	if err != nil {
		return err
	}
	defer h.close()
	figures, err := scenarios[name](ctx, h)
	if err != nil {
		return err
	}
	if *memory {
		system = "carillon memory"
	}
	out(line{Scenario: name, System: system, Load: before, Figures: figures})
	return nil
}
