package kernel

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The page that people read and the table that the code obeys are the same.
func TestStatesPageDrawsTheTable(t *testing.T) {
	page := readPage(t)
	drawn := map[[2]jobs.State]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(\S+) --> (\w+|\[\*\])`).FindAllStringSubmatch(page, -1) {
		from, to := drawnState(t, m[1]), drawnState(t, m[2])
		if drawn[[2]jobs.State{from, to}] {
			t.Errorf("%s --> %s is drawn twice", m[1], m[2])
		}
		drawn[[2]jobs.State{from, to}] = true
	}
	for from := range edges {
		for _, to := range edges[from] {
			if !drawn[[2]jobs.State{jobs.State(from), to}] {
				t.Errorf("%s --> %s is allowed but not drawn in docs/states.md", jobs.State(from), to)
			}
			delete(drawn, [2]jobs.State{jobs.State(from), to})
		}
		if jobs.State(from).Final() {
			if !drawn[[2]jobs.State{jobs.State(from), New}] {
				t.Errorf("%s --> [*] is not drawn in docs/states.md, and %s is final", jobs.State(from), jobs.State(from))
			}
			delete(drawn, [2]jobs.State{jobs.State(from), New})
		}
	}
	for e := range drawn {
		t.Errorf("%s --> %s is drawn in docs/states.md but not allowed", e[0], e[1])
	}
}

func drawnState(t *testing.T, name string) jobs.State {
	t.Helper()
	if name == "[*]" {
		return New
	}
	s, err := ParseState(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every state and every cause has its line on the page, states with what is final about them.
func TestStatesPageExplainsEachStateAndCause(t *testing.T) {
	states, causes := tableRows(readPage(t), "state"), tableRows(readPage(t), "cause")
	for _, s := range States() {
		row, ok := states[s.String()]
		if !ok {
			t.Errorf("state %s has no line in docs/states.md", s)
			continue
		}
		if final := row[0] == "yes"; final != s.Final() {
			t.Errorf("state %s: the page says final %q", s, row[0])
		}
		delete(states, s.String())
	}
	for _, c := range declaredCauses(t) {
		row, ok := causes[string(c)]
		if !ok {
			t.Errorf("cause %q has no line in docs/states.md", c)
			continue
		}
		for name := range strings.SplitSeq(row[0], ", ") {
			if _, err := ParseState(name); err != nil {
				t.Errorf("cause %q: %v", c, err)
			}
		}
		delete(causes, string(c))
	}
	for _, left := range []map[string][]string{states, causes} {
		if len(left) > 0 {
			t.Errorf("the page explains what does not exist: %v", slices.Sorted(maps.Keys(left)))
		}
	}
}

// tableRows reads the lines of the table whose first column is called head: first cell to the other cells.
func tableRows(page, head string) map[string][]string {
	rows := map[string][]string{}
	inside := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case cells[0] == head:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "--"):
			rows[cells[0]] = cells[1:]
		}
	}
	return rows
}

// declaredCauses reads the constants of type Cause from the source, so that a new one cannot be left out.
func declaredCauses(t *testing.T) []Cause {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Cause
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Cause" {
			return true
		}
		word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Cause(word))
		return true
	})
	if len(all) == 0 {
		t.Fatal("found no causes in state.go")
	}
	return all
}

func TestStateNames(t *testing.T) {
	for _, s := range States() {
		if got, err := ParseState(s.String()); err != nil || got != s {
			t.Errorf("ParseState(%q) = %v, %v", s.String(), got, err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back jobs.State
		if err := json.Unmarshal(text, &back); err != nil || back != s {
			t.Errorf("%s reads back from JSON as %v, %v", text, back, err)
		}
		if !ValidState(s) {
			t.Errorf("%s is not valid", s)
		}
		if s.Final() != (len(edges[s]) == 0) {
			t.Errorf("%s is final in one of edges (internal/kernel/state.go) and Final (jobs/state.go) only", s)
		}
	}
	for _, bad := range []string{"", "New", "scheduled", "?", "Running", strings.Repeat("x", 10_000)} {
		if _, err := ParseState(bad); !errors.Is(err, jobs.BadInput) || len(err.Error()) > 300 {
			t.Errorf("ParseState(%.20q): %v", bad, err)
		}
	}
	for s := jobs.State(StateCount); s.String() != "?"; s++ {
		t.Errorf("state %s has no entry: add it to edges in internal/kernel/state.go", s)
	}
	// A state from a newer version, or a forged one, is harmless.
	for _, s := range []jobs.State{jobs.State(StateCount), 200, 255} {
		if ValidState(s) || s.Final() || May(s, jobs.Enqueued) || NextStates(s) != nil || s.String() != "?" {
			t.Errorf("state %d is taken for a real one", uint8(s))
		}
	}
}

// Next returns a copy: callers cannot change the table.
func TestNextIsACopy(t *testing.T) {
	NextStates(jobs.Enqueued)[0] = jobs.Terminated
	if !May(jobs.Enqueued, jobs.Processing) {
		t.Fatal("the table was changed from outside")
	}
}
