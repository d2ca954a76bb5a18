package carillon_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
)

// seeds are the texts whose features docs/requirements.md lists: how many features each has, numbered from 1.
var seeds = []struct {
	group string
	count int
}{{"S0", 31}, {"S1", 15}, {"S2", 63}, {"S3", 31}, {"S4", 28}}

// answers are what a row of docs/requirements.md may begin with; "" is the name of a test.
var answers = []string{"", "in part: ", "by other means: ", "not yet"}

// Each feature has one row; a row that claims a feature names a test; the numbers in the text are those of the rows.
func TestRequirements(t *testing.T) {
	page := read(t, "docs/requirements.md")
	var refs []string
	var kinds [4]int
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| (S\d-\d\d(?:, S\d-\d\d)*) \| (.+) \|$`).FindAllStringSubmatch(page, -1) {
		ids, answer := strings.Split(row[2], ", "), row[3]
		refs = append(refs, ids...)
		kind := slices.IndexFunc(answers, func(a string) bool { return a != "" && strings.HasPrefix(answer, a) })
		kind = max(kind, 0)
		named := len(testNames.FindAllString(answer, -1)) + len(scriptNames.FindAllString(answer, -1))
		switch {
		case kind == 0 && !strings.HasPrefix(answer, "`"):
			t.Errorf("%s: %q begins neither with a test nor with any of %q", ids, answer, answers[1:])
		case kind < 3 && named == 0:
			t.Errorf("%s: %q names no test", ids, answer)
		case kind == 3 && named > 0:
			t.Errorf("%s: %q is missing, and names a test", ids, answer)
		}
		kinds[kind] += len(ids)
	}
	if want := fmt.Sprintf("All together, %d features: %d shown, %d in part, %d by other means, %d not yet.",
		len(refs), kinds[0], kinds[1], kinds[2], kinds[3]); !strings.Contains(page, want) {
		t.Errorf("the text does not contain %q", want)
	}
	var want []string
	for _, s := range seeds {
		for n := range s.count {
			want = append(want, fmt.Sprintf("%s-%02d", s.group, n+1))
		}
	}
	slices.Sort(refs)
	if !slices.Equal(refs, want) {
		t.Errorf("there are rows for\n%v, want\n%v", refs, want)
	}
}

var (
	// testNames are tests as the documents name them: `TestX`, or with the directory of its package, `jobs.TestX`.
	testNames = regexp.MustCompile("`(?:([a-z0-9/_]+)\\.)?((?:Test|Example|Fuzz|Benchmark)[A-Za-z0-9_]*)`")
	// scriptNames are stories of storetest: `cancel.txt`.
	scriptNames = regexp.MustCompile("`([a-z_]+\\.txt)`")
)

// A test that a document names is there, and so is a script.
func TestNamedTestsExist(t *testing.T) {
	there := testsByName(t)
	found := 0
	for _, file := range documents(t) {
		page := read(t, file)
		for _, m := range testNames.FindAllStringSubmatch(page, -1) {
			found++
			dir, name := m[1], m[2]
			if dir == "carillon" {
				dir = "."
			}
			if dirs := there[name]; dirs == nil || dir != "" && !slices.Contains(dirs, dir) {
				t.Errorf("%s names %s, which is not there; tests of that name are in %q", file, m[0], dirs)
			}
		}
		for _, m := range scriptNames.FindAllStringSubmatch(page, -1) {
			found++
			if _, err := os.Stat(filepath.Join("metastore/storetest/testdata", m[1])); err != nil {
				t.Errorf("%s names a script: %v", file, err)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d names are found: has the way in which they are written changed?", found)
	}
}

// Each attack of docs/security-tests.md has a number, an answer, and a test or the reason why there is none.
func TestSecurityTestsAreWhole(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (.+?) \| (.+) \| ([^|]+) \|$`).FindAllStringSubmatch(read(t, "docs/security-tests.md"), -1)
	if len(rows) != 113 {
		t.Fatalf("there are %d rows, want 113", len(rows))
	}
	for i, m := range rows {
		if m[1] != strconv.Itoa(i+1) {
			t.Fatalf("row %d has the number %s", i+1, m[1])
		}
		if named := testNames.MatchString(m[4]) || scriptNames.MatchString(m[4]); named == strings.HasPrefix(m[4], "none: ") {
			t.Errorf("row %d names no test and no reason: %s", i+1, m[4])
		}
	}
}

// testsByName are the directories of each test in the repository, by the test's name.
var testsByName = func() func(t *testing.T) map[string][]string {
	var once sync.Once
	var all map[string][]string
	return func(t *testing.T) map[string][]string {
		t.Helper()
		once.Do(func() {
			all = map[string][]string{}
			for _, file := range files(t, "_test.go") {
				parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range parsed.Decls {
					if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
						all[f.Name.Name] = append(all[f.Name.Name], filepath.ToSlash(filepath.Dir(file)))
					}
				}
			}
		})
		return all
	}
}()

// The README's numbers are those of what it speaks of.
func TestReadmeCounts(t *testing.T) {
	page := read(t, "README.md")
	features := 0
	for _, s := range seeds {
		features += s.count
	}
	if want := fmt.Sprintf("%d features", features); !strings.Contains(page, want) {
		t.Errorf("README.md has no %q", want)
	}
}

// Links between documents, and from them to files of the code, lead somewhere, also behind the #.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(prose(read(t, file)), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			target := file
			if to != "" {
				target = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s leads to %s: %v", file, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s leads to %s: there is no such heading", file, m[1])
			}
		}
	}
}

// anchors are the headings of a document, as links name them.
func anchors(page string) (all []string) {
	for line := range strings.Lines(prose(page)) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		var b strings.Builder
		for _, r := range strings.TrimSpace(strings.TrimLeft(line, "#")) {
			switch {
			case r == ' ':
				b.WriteByte('-')
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				b.WriteRune(unicode.ToLower(r))
			}
		}
		all = append(all, b.String())
	}
	return all
}

// prose is a document without its blocks of code.
func prose(page string) string {
	return regexp.MustCompile("(?ms)^[ ]*```.*?^[ ]*```$").ReplaceAllString(page, "")
}

// Each library that the module asks for by itself has its reason in docs/design.md, and its door is one of those that
// TestEachLibraryHasOneDoor knows.
func TestLibrariesHaveReasons(t *testing.T) {
	design := read(t, "docs/design.md")
	_, table, _ := strings.Cut(design, "## Libraries")
	var reasons []string
	for _, m := range regexp.MustCompile(`(?m)^\| (.+?) \|`).FindAllStringSubmatch(table, -1) {
		reasons = append(reasons, m[1])
	}
	require, _, _ := strings.Cut(read(t, "go.mod"), "\n)")
	direct := regexp.MustCompile(`(?m)^\t(\S+) v(\d+\.\d+)`).FindAllStringSubmatch(require, -1)
	if len(direct) < 15 {
		t.Fatalf("only %d libraries are found in go.mod", len(direct))
	}
	for _, m := range direct {
		if !slices.ContainsFunc(reasons, func(r string) bool { return reasonFor(r, m[1], m[2]) }) {
			t.Errorf("go.mod asks for %s v%s, and the table of libraries in docs/design.md has no line for it in that version", m[1], m[2])
		}
	}
	for _, lib := range slices.Sorted(maps.Keys(doors)) {
		if lib != module && !strings.Contains(read(t, "go.mod"), "\t"+lib) {
			t.Errorf("the door of %s leads to nothing: go.mod does not ask for it", lib)
		}
	}
}

// The linked modules of SECURITY.md have the linked versions, and of etcd only the documented package is linked.
func TestLinkedModules(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "SECURITY.md"), "## Linked modules")
	rows := regexp.MustCompile("(?m)^\\| `(\\S+)` (v\\S+) \\|").FindAllStringSubmatch(table, -1)
	if len(rows) < 2 {
		t.Fatalf("only %d modules are found in SECURITY.md", len(rows))
	}
	needs := read(t, "go.mod")
	for _, m := range rows {
		if !strings.Contains(needs, "\t"+m[1]+" "+m[2]+" ") && !strings.Contains(needs, "\t"+m[1]+" "+m[2]+"+incompatible ") {
			t.Errorf("SECURITY.md speaks of %s %s, and go.mod does not: look at the table again", m[1], m[2])
		}
	}
	for _, p := range linked(t, module+"/cmd/carillon") {
		if path := p.ImportPath; strings.HasPrefix(path, "github.com/coreos/etcd/") && path != "github.com/coreos/etcd/pkg/fileutil" {
			t.Errorf("%s is linked, but SECURITY.md allows only etcd's pkg/fileutil", path)
		}
	}
}

// reasonFor reports whether a line of the table is about a library, by the end of its path and its version.
func reasonFor(line, lib, version string) bool {
	name, documented, _ := strings.Cut(line, " v")
	documented, _, _ = strings.Cut(documented, " ")
	if documented != version && !strings.HasPrefix(documented, version+".") {
		return false
	}
	if strings.HasPrefix(lib, "go.opentelemetry.io/") {
		return name == "opentelemetry-go" || name == "opentelemetry-proto" && strings.HasSuffix(lib, "/proto/otlp")
	}
	lib = regexp.MustCompile(`/v\d+$`).ReplaceAllString(lib, "")
	return strings.HasSuffix("/"+lib, "/"+name)
}

// documents are the pages that people read.
func documents(t *testing.T) []string {
	t.Helper()
	pages := files(t, ".md")
	if len(pages) < 10 {
		t.Fatalf("only %d documents are found", len(pages))
	}
	return pages
}

// files are those of the repository whose names end so, without what is built or kept in it.
func files(t *testing.T, suffix string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" || path == "dist" || path == "bin"):
			return fs.SkipDir
		case !e.IsDir() && strings.HasSuffix(path, suffix):
			found = append(found, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
