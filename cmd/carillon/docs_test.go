package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocs checks the tables of docs/cli.md against the program, with the jobs of carillon dev.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	s := startDemo(t)
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	t.Setenv("CARILLON_SERVER", server.URL)
	var help bytes.Buffer
	if code := execute(t.Context(), []string{"help", "exit-codes"}, &help, &help); code != 0 {
		t.Fatal(help.String())
	}

	table, commands, codes := "", 0, 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			table = ""
		case table == "":
			table = cells[0]
		case strings.HasPrefix(cells[0], "---"):
		case table == "command":
			commands++
			checkCommand(t, cells[0], cells[1], cells[2])
		case table == "code":
			codes++
			if want := fmt.Sprintf("%3s  %s\n", cells[0], cells[1]); !strings.Contains(help.String(), want) {
				t.Errorf("no %q in the help of exit codes", want)
			}
		}
	}
	if listed := len(regexp.MustCompile(`(?m)^ +\d+  `).FindAllString(help.String(), -1)); commands < 20 || codes != listed {
		t.Errorf("found %d commands, and %d of %d exit codes", commands, codes, listed)
	}
}

func checkCommand(t *testing.T, command, prints, code string) {
	t.Helper()
	var args []string
	for i, part := range strings.Split(strings.TrimPrefix(command, "carillon "), "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	var out, errs bytes.Buffer
	got := execute(t.Context(), args, &out, &errs)
	if fmt.Sprint(got) != code || !strings.Contains(out.String()+errs.String(), prints) {
		t.Errorf("%s: exit code %d, want %s, and %q of\n%s%s", command, got, code, prints, out.String(), errs.String())
	}
}
