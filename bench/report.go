package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// document is the generated page; docs/benchmarks.md explains it.
const document = "../docs/benchmarks-tables.md"

// write puts the results between the two comment lines of a plan, and the plots beside the document.
func (r results) write(path, plan string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- figures of the %s run: begin -->\n", plan), fmt.Sprintf("<!-- figures of the %s run: end -->\n", plan)
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	for _, c := range curves {
		if points := r.points(c); len(points) > 1 {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), c.file()), c.svg(points), 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(path, []byte(head+begin+r.markdown(plan)+end+tail), 0o644)
}

// shown are the columns of a scenario's table, by the scenario's kind.
func shown(scenario string) []string {
	switch {
	case scenario == "batch" || scenario[0] == 'x':
		return []string{"jobs_per_s", "enqueued_per_s", "cpu_us_per_job", "memory_mib"}
	case strings.HasPrefix(scenario, "latency"):
		return []string{"start_p50_ms", "start_p99_ms", "start_max_ms", "ack_p50_ms", "ack_p99_ms", "cpu_us_per_job"}
	case scenario == "together":
		return []string{"created_s", "started_s", "late_p50_ms", "late_p99_ms"}
	case scenario == "fires":
		return []string{"fires_per_s", "late_p50_ms", "late_p99_ms", "late_max_ms", "cores"}
	case strings.HasPrefix(scenario, "second"):
		return []string{"expected", "missed", "doubled", "early", "late_p50_ms", "late_p99_ms", "late_max_ms", "cores"}
	}
	return []string{"early", "late_p50_ms", "late_p99_ms", "late_max_ms", "cpu_us_per_job"}
}

// markdown is the section of a plan: the goals, then the measurements by part.
func (r results) markdown(plan string) string {
	var b strings.Builder
	for _, d := range r.doubts() {
		fmt.Fprintf(&b, "**%s.**\n\n", d)
	}
	if all := r.verdicts(); len(all) > 0 {
		b.WriteString("| goal | reached | |\n|---|---|---|\n")
		for _, v := range all {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", v.goal, v.reached, v.met)
		}
		b.WriteString("\n")
	}
	where := ""
	for _, p := range plans[plan] {
		some := r.of(p.name)
		if len(some) == 0 {
			continue
		}
		if len(plans[plan]) > 1 {
			fmt.Fprintf(&b, "#### %s: %s\n\n", p.name, p.about)
		}
		where = some.part(&b, where)
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// of are the results of one part of a plan.
func (r results) of(part string) results {
	return slices.DeleteFunc(slices.Clone(r), func(l line) bool { return l.Part != part })
}

// part shows what one run measured, and returns the machine and the versions, which are shown when they change.
func (r results) part(b *strings.Builder, where string) string {
	for _, l := range r {
		if l.Run != nil {
			fmt.Fprintf(b, "%s, `%s`. ", l.Run.At.Format("2006-01-02 15:04 UTC"), l.Run.Command)
			if here := l.Run.Machine + ". " + strings.Join(l.Run.Versions, ", "); here != where {
				where = here
				b.WriteString(here + ". ")
			}
			fmt.Fprintf(b, "The load of the machine was %.1f before it began", l.Run.Load)
			if l.Run.Load > 1 {
				b.WriteString(": **other programs used it, so these figures are low and vary widely**")
			}
			b.WriteString(".\n")
		}
	}
	for _, m := range measures {
		r.table(b, m)
	}
	r.workerTable(b)
	r.curves(b)
	r.alone(b)
	r.lists(b)
	r.trends(b)
	r.failures(b)
	return where
}

// table shows one scenario: medians, and the spread of the first figure.
func (r results) table(b *strings.Builder, m measure) {
	columns := shown(m.name)
	var rows strings.Builder
	for _, e := range systems {
		first := r.rounds(m.name, e.name, columns[0])
		if len(first) == 0 {
			continue
		}
		fmt.Fprintf(&rows, "| %s |", e.name)
		for _, c := range columns {
			f, _ := r.middle(m.name, e.name, c)
			fmt.Fprintf(&rows, " %s", number3(f))
			if c == columns[0] && strings.HasSuffix(c, "_per_s") && len(first) > 1 {
				all := slices.Sorted(maps.Values(first))
				fmt.Fprintf(&rows, " (%s to %s)", number3(all[0]), number3(all[len(all)-1]))
			}
			rows.WriteString(" |")
		}
		main := map[string]string{"jobs_per_s": "jobs_per_s", "start_p50_ms": "start_p99_ms"}[columns[0]]
		if main == "" {
			main = "late_p99_ms"
		}
		early, _ := r.middle(m.name, e.name, "early")
		ratio, ok := r.ratio(systems[0].name, m.name, main, e.name)
		switch {
		case !ok || e.name == systems[0].name:
			rows.WriteString(" |\n")
		case early > 0:
			rows.WriteString(" (starts early) |\n")
		default:
			fmt.Fprintf(&rows, " %.2f |\n", ratio)
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(b, "\n**%s**: %s.\n\n| | %s | advantage of Carillon |\n|---|%s---|\n%s", m.name, m.about, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)), rows.String())
}

// number3 has three digits that count, with commas between thousands.
func number3(f float64) string {
	switch {
	case f < 0:
		return "-" + number3(-f)
	case f >= 1000:
		n := int64(f)
		for unit := int64(1); n/unit >= 1000; unit *= 10 {
			if n/unit < 10_000 {
				n = (n + unit*5) / (unit * 10) * (unit * 10)
				break
			}
		}
		if n >= 1_000_000 {
			return fmt.Sprintf("%d,%03d,%03d", n/1_000_000, n/1000%1000, n%1000)
		}
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	case f >= 100 || f == float64(int64(f)):
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// crews shows what more worker processes bring.
func (r results) workerTable(b *strings.Builder) {
	by := map[string][]float64{}
	for _, l := range r {
		if l.Workers > 1 && l.Failed == "" {
			name := fmt.Sprintf("%s | %s | %d", l.System, l.Scenario, l.Workers)
			by[name] = append(by[name], l.Figures["jobs_per_s"])
		}
	}
	if len(by) == 0 {
		return
	}
	b.WriteString("\n| | | worker processes | jobs_per_s |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(b, "| %s | %s |\n", name, number3(median(by[name])))
	}
}

// alone shows the scenarios that only we run.
func (r results) alone(b *strings.Builder) {
	var rows strings.Builder
	for _, l := range r {
		if strings.HasPrefix(l.Scenario, "lists") || l.Round > 0 || l.Run != nil || l.Failed != "" || len(l.Trends) > 0 {
			continue
		}
		var figures []string
		for _, name := range slices.Sorted(maps.Keys(l.Figures)) {
			if _, ok := atOf(name); ok {
				continue // drawn
			}
			figures = append(figures, name+" "+number3(l.Figures[name]))
		}
		if len(figures) > 0 {
			fmt.Fprintf(&rows, "| %s | %s | %s |\n", l.Scenario, l.System, strings.Join(figures, ", "))
		}
	}
	if rows.Len() > 0 {
		fmt.Fprintf(b, "\nCarillon alone, once each:\n\n| scenario | | figures |\n|---|---|---|\n%s", rows.String())
	}
}

// failures lists what could not be measured.
func (r results) failures(b *strings.Builder) {
	for _, l := range r {
		if l.Failed != "" {
			first, _, _ := strings.Cut(l.Failed, "\n")
			fmt.Fprintf(b, "\nNot measured: %s, %s, round %d: %s.\n", l.System, l.Scenario, l.Round, first)
		}
	}
}
