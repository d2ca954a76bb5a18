package carillon_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.txt")

// public are the packages that other programs import. All others are internal, or say that they are not promised.
var public = []string{".", "jobs", "jobs/schedule", "jobs/quartztrigger", "worker", "worker/workertest", "client", "embed", "outbox",
	"metastore/raftstore/raftlog/hashicorp"}

// mostNames is how many names package jobs may show: functions, types, methods, constants and variables.
const mostNames = 151

// The public API is what testdata/api.txt says, a line for each name, so that a break is seen in review. Write it with
//
//	go test . -run TestPublicAPI -update
func TestPublicAPI(t *testing.T) {
	var got []string
	for _, dir := range public {
		names := exported(t, dir)
		if n := countNames(names); dir == "jobs" && n > mostNames {
			t.Errorf("package jobs shows %d names, at most %d are allowed: move what authors of jobs do not need to internal/kernel", n, mostNames)
		}
		for _, name := range names {
			got = append(got, "pkg "+dir+", "+name)
		}
	}
	text := strings.Join(got, "\n") + "\n"
	const file = "testdata/api.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("removed or changed: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s", line)
		}
	}
}

func countNames(lines []string) (n int) {
	for _, line := range lines {
		if !strings.Contains(line, " struct, ") && !strings.Contains(line, " interface, ") { // fields and methods of those
			n++
		}
	}
	return n
}

// exported lists the exported declarations of a package, in order.
func exported(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	text := func(node any) string {
		var b bytes.Buffer
		if err := printer.Fprint(&b, set, node); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				kind := "func "
				if d.Recv != nil {
					receiver := text(d.Recv.List[0].Type)
					if !ast.IsExported(strings.TrimLeft(receiver, "*")) {
						continue
					}
					kind = "method (" + receiver + ") "
				}
				d.Type.Func = token.NoPos
				lines = append(lines, kind+d.Name.Name+strings.TrimPrefix(text(d.Type), "func"))
			case *ast.GenDecl:
				lines = append(lines, specs(d, text)...)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func specs(d *ast.GenDecl, text func(any) string) (lines []string) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.ValueSpec:
			for i, name := range s.Names {
				if !name.IsExported() {
					continue
				}
				line := d.Tok.String() + " " + name.Name
				if s.Type != nil {
					line += " " + text(s.Type)
				}
				if d.Tok == token.CONST && i < len(s.Values) {
					line += " = " + text(s.Values[i])
				}
				lines = append(lines, line)
			}
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			head := "type " + s.Name.Name
			if s.TypeParams != nil {
				var params []string
				for _, p := range s.TypeParams.List {
					for _, n := range p.Names {
						params = append(params, n.Name+" "+text(p.Type))
					}
				}
				head += "[" + strings.Join(params, ", ") + "]"
			}
			var members *ast.FieldList
			switch body := s.Type.(type) {
			case *ast.StructType:
				head, members = head+" struct", body.Fields
			case *ast.InterfaceType:
				head, members = head+" interface", body.Methods
			default:
				if s.Assign.IsValid() {
					head += " ="
				}
				head += " " + text(s.Type)
			}
			lines = append(lines, head)
			if members == nil {
				continue
			}
			for _, m := range members.List {
				if len(m.Names) == 0 {
					lines = append(lines, fmt.Sprintf("%s, %s", head, text(m.Type)))
				}
				for _, name := range m.Names {
					if name.IsExported() {
						lines = append(lines, fmt.Sprintf("%s, %s %s", head, name.Name, text(m.Type)))
					}
				}
			}
		}
	}
	return lines
}

// Packages that are neither public nor internal say in their first lines that they are not promised.
func TestOthersAreNotPromised(t *testing.T) {
	n := 0
	for _, p := range packages(t) {
		path, ok := own(p.ImportPath)
		if !ok || path == "" || p.Name == "main" || slices.Contains(public, path) || strings.HasPrefix(path, "internal/") {
			continue
		}
		n++
		text := packageComment(t, p.Dir)
		if first := strings.SplitN(text, "\n\n", 3); !strings.Contains(strings.Join(first[:min(2, len(first))], " "), "not promised") {
			t.Errorf("package %s does not say in its first lines that it is not promised", path)
		}
	}
	if n < 20 {
		t.Errorf("only %d packages were looked at", n)
	}
}

func packageComment(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if f.Doc != nil && !strings.HasSuffix(file, "_test.go") && strings.HasPrefix(f.Doc.Text(), "Package ") {
			return f.Doc.Text()
		}
	}
	return ""
}

// parts are the public names that have types of packages which are not promised: they put a system together from its
// parts, and their comments say so. None is added: programs use carillon.NewWorker, carillon.Dial and embed.
var parts = []string{"worker, func New(", "worker, func NewRemote(", "worker, method (*Remote)", "worker, method (Config) Principal()", "worker, type Bus interface", "worker, type Given struct",
	"client, func New(", "embed, method (*Scheduler) Ops()", "embed, type Config struct, Bus ", "embed, type Config struct, Who ", "embed, type Config struct, HTTPJobs ", "embed, type Config struct, TenantHTTPJobs ",
	"embed, type Cluster struct, Identity "}

// What is public needs nothing that is not.
func TestPublicSignatures(t *testing.T) {
	raw, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	foreign := regexp.MustCompile(`\b(kernel|bus|metastore|ops|httpjob|webhook|raftstore|controlplane|argschema|outcome|httpspec|execspec|natsbus|timetable|bubble)\.[A-Z]`)
	for line := range strings.Lines(string(raw)) {
		name := strings.TrimPrefix(line, "pkg ")
		if foreign.MatchString(name) && !slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(name, p) }) {
			t.Errorf("%s: its signature has a type that is not promised", strings.TrimSpace(name))
		}
	}
}
