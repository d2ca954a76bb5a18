package carillon_test

import (
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
	"testing"
)

// logged is one call of a logger.
type logged struct {
	where   string
	message string
	keys    []string
	odd     string // what is wrong with the call, or ""
	ends    bool   // it ends the episode of the message, and writes its line with the attributes of the beginning
}

// levels are the methods of a logger, or of an episode.Log, that write a line, and where their message is among the arguments.
var levels = map[string]int{"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Failed": 2, "Began": 2, "Lasts": 3}

// loggers are the names under which loggers go in this module.
var loggers = regexp.MustCompile(`(?i)(^|\.)(log|logger|slog|episodes)$`)

// passedOn are files whose lines are not ours: raft's, and those of the jobs that dev shows.
var passedOn = []string{"metastore/raftstore/hclog.go", "cmd/carillon/demo.go"}

// logCalls finds all lines that this module writes to its log, tests and examples aside.
func logCalls(t *testing.T) (all []logged) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (path == "examples" || path == "bench" || strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		if slices.Contains(passedOn, filepath.ToSlash(path)) {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !loggers.MatchString(text(method.X)) {
				return true
			}
			at, writes := levels[method.Sel.Name]
			where := files.Position(call.Pos()).String()
			switch {
			case method.Sel.Name == "With":
				all = append(all, facts(logged{where: where, message: "-"}, call.Args, file))
			case method.Sel.Name == "End" && len(call.Args) == 2:
				all = append(all, logged{where: where, message: literal(call.Args[1]), ends: true})
			case writes && len(call.Args) > at:
				l := logged{where: where}
				if l.message = literal(call.Args[at]); l.message == "" {
					l.odd = "its message is no constant"
				}
				all = append(all, facts(l, call.Args[at+1:], file))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// facts reads the names of attributes. A list that was made before is looked up in its file.
func facts(l logged, args []ast.Expr, file *ast.File) logged {
	for i := 0; i < len(args); {
		switch key := literal(args[i]); {
		case key != "":
			l.keys = append(l.keys, key)
			i += 2
		default:
			made := listOf(text(args[i]), file)
			if made == nil {
				l.odd = "the attribute " + text(args[i]) + " has no constant name"
				return l
			}
			l = facts(l, made, file)
			i++
		}
	}
	return l
}

// listOf is what a variable was made of: x := []any{...}.
func listOf(name string, file *ast.File) (made []ast.Expr) {
	ast.Inspect(file, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != 1 || text(assign.Lhs[0]) != name {
			return true
		}
		if list, ok := assign.Rhs[0].(*ast.CompositeLit); ok {
			made = list.Elts
		}
		return true
	})
	return made
}

// text writes a name, such as s.cfg.Logger.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return ""
}

// literal is a constant text, or "".
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value)
	return s
}

// Log lines have constant messages, and attributes with the names that docs/metrics.md lists, so that they can be
// searched.
func TestLogLines(t *testing.T) {
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "## Log lines")
	section, _, _ := strings.Cut(after, "\n## ")
	known := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
		for _, key := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			known[key[1]] = false
		}
	}
	calls := logCalls(t)
	if len(calls) < 40 || len(known) < 5 {
		t.Fatalf("there are %d calls and %d names: the search has missed them", len(calls), len(known))
	}
	for _, l := range calls {
		if l.ends && !slices.ContainsFunc(calls, func(o logged) bool { return !o.ends && o.message == l.message }) {
			t.Errorf("%s: %q: no line begins with this message", l.where, l.message)
		}
		if l.odd != "" {
			t.Errorf("%s: %q: %s", l.where, l.message, l.odd)
		}
		if strings.ContainsAny(l.message, "%\n") || l.message != "-" && strings.ToLower(l.message[:min(1, len(l.message))]) != l.message[:min(1, len(l.message))] {
			t.Errorf("%s: %q: a message is a phrase without format verbs, in lower case", l.where, l.message)
		}
		for _, key := range l.keys {
			if _, there := known[key]; !there {
				t.Errorf("%s: %q: the attribute %q is not among the names in docs/metrics.md", l.where, l.message, key)
				continue
			}
			known[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if !known[key] {
			t.Errorf("docs/metrics.md lists %q, and no line has it", key)
		}
	}
}
