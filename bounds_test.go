package carillon_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Each refusal of Exhausted names its bound, so that it is counted, logged and shown by it; and the list of bounds in
// the documents is whole.
func TestRefusalsNameTheirBound(t *testing.T) {
	for _, file := range files(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(read(t, file), "Refuse(jobs.Exhausted") {
			t.Errorf("%s refuses with jobs.Exhausted and names no bound: use kernel.Exhausted", file)
		}
	}
	page := read(t, "docs/metrics.md")
	_, section, _ := strings.Cut(page, "### Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	bounds := theBounds(t)
	for _, bound := range bounds {
		if !strings.Contains(section, "`"+bound+"`") {
			t.Errorf("docs/metrics.md does not list the limit %s", bound)
		}
	}
	if named := strings.Count(section, "`") / 2; named != len(bounds)+2 || len(bounds) < 20 { // with metric and label
		t.Errorf("docs/metrics.md names %d limits, there are %d", named-2, len(bounds))
	}
}

func theBounds(t *testing.T) (bounds []string) {
	t.Helper()
	page := read(t, "internal/kernel/bound.go")
	for _, m := range regexp.MustCompile(`Bound += "([a-z-]+)"`).FindAllStringSubmatch(page, -1) {
		bounds = append(bounds, m[1])
	}
	return bounds
}

// Each limit in the code is in the table of budgets, or in testdata/sizes.txt: that of one value, message, request or
// page, which no caller can use up for another. To find limits, the test looks for what refuses with a bound, what the
// configuration calls limits, constants whose name is that of a limit, and constants that a len is compared with.
func TestLimitsAreBudgetsOrSizes(t *testing.T) {
	named := map[string]bool{}
	for _, b := range kernel.Budgets {
		for name := range strings.FieldsSeq(b.Named) {
			named[name] = true
		}
	}
	size := map[string]bool{}
	for line := range strings.Lines(read(t, "testdata/sizes.txt")) {
		if dir, names, ok := strings.Cut(line, ": "); ok {
			for name := range strings.FieldsSeq(names) {
				size[strings.TrimPrefix(dir+"."+name, "bound.")] = true
			}
		}
	}
	there := map[string]bool{}
	for _, limit := range slices.Concat(theBounds(t), settingsOfLimits(t), constantsOfLimits(t)) {
		there[limit] = true
		if !named[limit] && !size[limit] {
			t.Errorf("the limit %s is in no row of kernel.Budgets, and is no size in testdata/sizes.txt", limit)
		}
	}
	for name := range named {
		if size[name] {
			t.Errorf("%s is a budget, and a size in testdata/sizes.txt", name)
		}
		if !there[name] {
			t.Errorf("kernel.Budgets names %s, which is not there, or not a limit", name)
		}
	}
	for name := range size {
		if !there[name] {
			t.Errorf("testdata/sizes.txt names %s, which is not there, or not a limit", name)
		}
	}
}

func settingsOfLimits(t *testing.T) (names []string) {
	t.Helper()
	page := read(t, "cmd/carillon/config.go")
	for _, m := range regexp.MustCompile(`\{"(limits\.[a-z-]+|retention\.bytes)"`).FindAllStringSubmatch(page, -1) {
		names = append(names, m[1])
	}
	return names
}

var (
	limitName = regexp.MustCompile(`^(max|most|Max|Most|many)[A-Z]|(Most|AtOnce|Slots|Max)$`)
	ownCode   = regexp.MustCompile(`^(bench|chaos|deploy|examples)/|^internal/(tests|bubble)/|test/`)
)

// constantsOfLimits returns the constants that are limits, such as ui.maxStreams.
func constantsOfLimits(t *testing.T) (names []string) {
	t.Helper()
	constants, limits := map[string]bool{}, map[string]bool{}
	for _, file := range files(t, ".go") {
		if strings.HasSuffix(file, "_test.go") || ownCode.MatchString(file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		name := func(id *ast.Ident) string { return path.Base(path.Dir(file)) + "." + id.Name }
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.CONST {
						for _, id := range v.Names {
							constants[name(id)] = true
							limits[name(id)] = limits[name(id)] || limitName.MatchString(id.Name)
						}
					}
				}
			case *ast.BinaryExpr:
				call, isCall := n.X.(*ast.CallExpr)
				id, isName := n.Y.(*ast.Ident)
				if isCall && isName && (n.Op == token.GEQ || n.Op == token.GTR) {
					if of, ok := call.Fun.(*ast.Ident); ok && of.Name == "len" {
						limits[name(id)] = true
					}
				}
			case *ast.CallExpr: // places for so many at once
				if of, ok := n.Fun.(*ast.Ident); ok && of.Name == "make" && len(n.Args) == 2 {
					_, isChan := n.Args[0].(*ast.ChanType)
					if id, ok := n.Args[1].(*ast.Ident); ok && isChan {
						limits[name(id)] = true
					}
				}
			}
			return true
		})
	}
	for name, is := range limits {
		if is && constants[name] {
			names = append(names, name)
		}
	}
	return names
}

// Each budget has owners, with a test that plays a greedy one beside a modest one, or says why not. docs/shares.md has
// the table. Write it with
//
//	go test . -run TestBudgets -update
func TestBudgets(t *testing.T) {
	there, seen := testsByName(t), map[string]bool{}
	var table strings.Builder
	table.WriteString("| what | of | share | beyond it | seen by |\n|---|---|---|---|---|\n")
	var without strings.Builder
	for _, b := range kernel.Budgets {
		if b.Name == "" || seen[b.Name] || b.Owner == "" {
			t.Errorf("budget %q: want a name of its own, and owners", b.Name)
		}
		seen[b.Name] = true
		if b.Test == "" && b.Lacks == "" || b.Lacks == "" && (b.Share == "" || b.Beyond == "" || b.Seen == "") {
			t.Errorf("budget %s has no test, or no share, and does not say why", b.Name)
		}
		dir, name, ok := strings.Cut(b.Test, ".Test")
		if ok && !slices.Contains(there["Test"+name], dir) || !ok && b.Test != "" {
			t.Errorf("budget %s names %s, which is not there", b.Name, b.Test)
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n",
			b.Name, b.Owner, cmp.Or(b.Share, "none"), cmp.Or(b.Beyond, "waits"), cmp.Or(b.Seen, "sender, as time"))
		if b.Lacks != "" && b.Lacks != "no test plays it" { // that is not for users
			fmt.Fprintf(&without, "- **%s**: %s.\n", b.Name, b.Lacks)
		}
	}
	const file, begin = "docs/shares.md", "<!-- of kernel.Budgets: go test . -run TestBudgets -update -->\n"
	page := read(t, file)
	text, _, found := strings.Cut(page, begin)
	if !found {
		t.Fatalf("%s has no line %s", file, begin)
	}
	text += begin + "\n" + table.String() + "\n## Without shares\n\n" + without.String()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != page {
		t.Errorf("%s differs from kernel.Budgets: run go test . -run TestBudgets -update", file)
	}
}
