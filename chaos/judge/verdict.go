package judge

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// The names of breaches. One of them is one too many.
const (
	Lost        = "lost"           // a due time without a record, or a run that was acknowledged and is not there, or did not do its work
	Doubled     = "doubled"        // two records of a due time, two runs of a request, two starts of an attempt
	Early       = "early"          // begun before it was due
	Unasked     = "unasked"        // a run that no schedule and no client requested, or a pause without effect
	Overlapping = "overlapping"    // two attempts of a run at once
	OverLimit   = "over-limit"     // more runs at once than a limit allows
	Illegal     = "illegal"        // a step that no run may take; what was final and changed; an attempt that was taken away for no reason
	Stuck       = "stuck"          // not final in the end
	Stale       = "stale accepted" // an attempt that was over changed something
	Forgotten   = "forgotten"      // a ready run that the leader had lost, until its sweep found it
	NoData      = "no data"        // there was nothing to judge by
)

// promises are the breaches in the order of the table, with what is promised, and in which numbers of the plan of
// reliability.
var promises = []struct{ name, promise string }{
	{Lost, "P1 P3 P4: every due time has a record, what was acknowledged is done"},
	{Doubled, "P1 P3: one record a due time, one run a request"},
	{Early, "P2: no handler begins before its time"},
	{Unasked, "P1 P11: only requested and scheduled runs run"},
	{Overlapping, "P5: one attempt of a run at a time, while its lease lasts"},
	{OverLimit, "P8: limits hold"},
	{Illegal, "P6: runs take the steps of the table, and final is final"},
	{Stuck, "P4 P7: every run comes to its end"},
	{Stale, "P5: a finished attempt changes nothing"},
	{Forgotten, "P4: the leader knows every run that can start: its sweep has nothing to mend"},
	{NoData, "there is something to judge by"},
}

// Finding is one violation, with the evidence to find its cause.
type Finding struct {
	Job      string   `json:"job,omitempty"`
	Run      string   `json:"run,omitempty"`
	Due      string   `json:"due,omitempty"`
	Expected string   `json:"expected"`
	Found    string   `json:"found"`
	Evidence []string `json:"evidence,omitempty"` // lines of witnesses
}

// Count is how often one promise was broken, of how many times it was looked at.
type Count struct {
	Name    string    `json:"name"`
	Promise string    `json:"promise"`
	N       int       `json:"n"`
	Of      int       `json:"of"`
	First   []Finding `json:"first,omitempty"` // at most mostFindings
}

// Lateness is how late things were.
type Lateness struct {
	What  string        `json:"what"` // fired or begun
	Where string        `json:"where"`
	N     int           `json:"n"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

// Beyond measures work of handlers after their lease expired: allowed, as long as the store refuses it.
type Beyond struct {
	N   int           `json:"n"`
	Max time.Duration `json:"max"` // of those whose end is known
	Sum time.Duration `json:"sum"`
}

// Verdict is the result of Judge.
type Verdict struct {
	Name     string         `json:"name"`
	Store    string         `json:"store"`
	Pass     bool           `json:"pass"`
	Dues     int            `json:"dues"` // that had to have a record
	Runs     int            `json:"runs"`
	Attempts int            `json:"attempts"` // that handlers have begun
	Requests int            `json:"requests"` // runs that clients requested
	Unknown  int            `json:"unknown"`  // operations without a known outcome
	Faults   map[string]int `json:"faults"`
	Counts   []Count        `json:"counts"`
	Late     []Lateness     `json:"late"`
	Beyond   Beyond         `json:"ranAfterLease"`
}

// mostFindings is how many violations of a guarantee are printed in full.
const mostFindings = 5

// Count is one of the verdict's counts.
func (v *Verdict) Count(name string) *Count {
	i := slices.IndexFunc(v.Counts, func(c Count) bool { return c.Name == name })
	return &v.Counts[i]
}

// Broken are the names of the promises that were not kept.
func (v *Verdict) Broken() (names []string) {
	for _, c := range v.Counts {
		if c.N > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// found notes a breach.
func (v *Verdict) found(name string, f Finding) {
	c := v.Count(name)
	c.N++
	if len(c.First) < mostFindings {
		c.First = append(c.First, f)
	}
}

// looked notes that a promise was looked at n times more.
func (v *Verdict) looked(name string, n int) { v.Count(name).Of += n }

// Print writes the verdict for people.
func (v *Verdict) Print(w io.Writer) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	result := "PASS"
	if !v.Pass {
		result = "FAIL"
	}
	line("%s: %s (%s)", result, v.Name, v.Store)
	var kinds []string
	total := 0
	for kind, n := range v.Faults {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
		total += n
	}
	slices.Sort(kinds)
	line("%d due times, %d runs, %d attempts, %d requests (%d operations of unknown outcome), %d faults (%s)",
		v.Dues, v.Runs, v.Attempts, v.Requests, v.Unknown, total, strings.Join(kinds, ", "))
	line("")
	line("%-15s %9s %9s   %s", "", "breaches", "of", "promise")
	for _, c := range v.Counts {
		line("%-15s %9d %9d   %s", c.Name, c.N, c.Of, c.Promise)
	}
	line("%-15s %9d %9d   allowed: at most %v long, and accepted in no case", "ran after lease", v.Beyond.N, v.Attempts, round(v.Beyond.Max))
	line("")
	line("%-8s %-10s %9s %10s %10s %10s", "late", "", "n", "p50", "p99", "max")
	for _, l := range v.Late {
		line("%-8s %-10s %9d %10v %10v %10v", l.What, l.Where, l.N, round(l.P50), round(l.P99), round(l.Max))
	}
	for _, c := range v.Counts {
		for i, f := range c.First {
			if i == 0 {
				line("\n%s", strings.ToUpper(c.Name))
			}
			line("  job %s due %s run %s\n    expected: %s\n    found:    %s", dash(f.Job), dash(f.Due), dash(f.Run), f.Expected, f.Found)
			for _, e := range f.Evidence {
				line("      %s", e)
			}
		}
		if more := c.N - len(c.First); more > 0 {
			line("  and %d more", more)
		}
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// PrintJSON writes the verdict for programs.
func (v *Verdict) PrintJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
