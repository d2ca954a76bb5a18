package carillon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// banned are words for which the field has a term, or a sentence has an actor: docs/design.md lists the terms. They
// occur in no identifier of the code, and in no text of pages and documents.
var banned = []string{"nobody", "somebody", "whoever", "everybody", "told", "wish", "wishes", "beat", "beats", "instance", "instances",
	"epoch", "epochs", "crew", "reign", "knock", "afar", "hither", "house", "guest"}

// allowed are files in which a banned word is right, with the reason.
var allowed = map[string]map[string]string{
	"epoch": {
		"metastore/raftstore/":        "a recovery of a lost majority begins an epoch, which raft has no word for",
		"cmd/carillon/recover":        "the same",
		"cmd/carillon/processtest/re": "the same",
		"docs/":                       "the same",
		"metastore/raftstore/DESIGN":  "the same",
	},
	"instance": {"deploy/": "a label of Prometheus", "docs/http.md": "for instance"},
}

func permitted(word, file string) bool {
	for prefix := range allowed[strings.TrimSuffix(word, "s")] {
		if strings.HasPrefix(file, prefix) {
			return true
		}
	}
	return false
}

// wordsOf are the words of an identifier, in lower case: runID has run and id.
func wordsOf(name string) []string {
	var words []string
	begin := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) ||
			unicode.IsUpper(runes[i]) && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
			words = append(words, strings.ToLower(strings.Trim(string(runes[begin:i]), "_")))
			begin = i
		}
	}
	return words
}

// One idea has one name, and sentences name their actor.
func TestBannedWords(t *testing.T) {
	if len(banned) > 20 {
		t.Errorf("%d words are banned, at most 20 are allowed: a longer list teaches nothing", len(banned))
	}
	text := regexp.MustCompile(`(?i)\b(` + strings.Join(banned, "|") + `)\b`)
	pronouns := regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|told)\b`)
	const most = 60 // of those four, in code and comments of tests and programs
	set, n := token.NewFileSet(), 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != "." && strings.HasPrefix(name, ".") || name == "node_modules" || name == "results" {
				return fs.SkipDir
			}
			return nil
		}
		switch ext := filepath.Ext(file); ext {
		case ".go", ".md", ".gohtml", ".js":
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if file != "words_test.go" {
				n += len(pronouns.FindAll(raw, -1))
			}
			if ext != ".go" {
				for i, line := range strings.Split(string(raw), "\n") {
					for _, word := range text.FindAllString(line, -1) {
						if word = strings.ToLower(word); !permitted(word, file) {
							t.Errorf("%s:%d: %q: use the term for it, or name who acts", file, i+1, word)
						}
					}
				}
				return nil
			}
			f, err := parser.ParseFile(set, file, raw, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(node ast.Node) bool {
				if id, ok := node.(*ast.Ident); ok {
					for _, word := range wordsOf(id.Name) {
						if slices.Contains(banned, word) && !permitted(word, file) {
							t.Errorf("%s: %s has the word %q: use the term for it", set.Position(id.Pos()), id.Name, word)
						}
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n > most {
		t.Errorf("nobody, somebody, whoever and told occur %d times, at most %d are allowed: name who acts", n, most)
	}
}
