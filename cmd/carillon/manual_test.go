package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommandsInTheDocuments checks that every command line in a document exists, with all its flags. TestDocs checks
// the output.
func TestCommandsInTheDocuments(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md")
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			found++
			root := newRoot(io.Discard, io.Discard)
			root.InitDefaultHelpCmd()
			root.InitDefaultCompletionCmd()
			command, rest, err := root.Find(strings.Fields(line))
			if err != nil || command == root || command.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				t.Errorf("%s: carillon %s: there is no such command", filepath.Base(page), line)
				continue
			}
			command.InitDefaultHelpFlag()
			if end := slices.Index(rest, "--"); end >= 0 { // what follows is another program's
				rest = rest[:end]
			}
			for _, arg := range rest {
				name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
				switch {
				case arg == "-" || !strings.HasPrefix(arg, "-"):
				case strings.HasPrefix(arg, "--"):
					if command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil {
						t.Errorf("%s: carillon %s: %s has no flag --%s", filepath.Base(page), line, command.CommandPath(), name)
					}
				case command.Flags().ShorthandLookup(name[:1]) == nil && command.InheritedFlags().ShorthandLookup(name[:1]) == nil:
					t.Errorf("%s: carillon %s: %s has no flag -%s", filepath.Base(page), line, command.CommandPath(), name[:1])
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d command lines are found", found)
	}
}

// commandLines are what follows the name of the program, in blocks of shell and of units, and between backticks.
func commandLines(page string) (all []string) {
	inShell := regexp.MustCompile(`(?:^|=/\S+/|run \./cmd/|\$\()carillon ([a-z].*)`)
	inText := regexp.MustCompile("`(?:\\S+ <\\()?carillon ([a-z][^`]*)`")
	fence := "" // of the block we are in, with its language
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			if fence == "" {
				fence = line
			} else {
				fence = ""
			}
			continue
		}
		in := inText
		switch fence {
		case "":
		case "```", "```sh", "```ini":
			in = inShell
		default:
			continue
		}
		for _, m := range in.FindAllStringSubmatch(line, -1) {
			command, _, _ := strings.Cut(quoted.ReplaceAllString(m[1], "x"), " #")
			command, _, _ = strings.Cut(command, ")")
			command, _, _ = strings.Cut(command, "|")
			all = append(all, command)
		}
	}
	return all
}

var quoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)
