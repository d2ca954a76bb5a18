package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The seconds of the graph's actions and of what was played count, user and system alike, and one too many fails.
func TestTooManySecondsFail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "graph")
	const graph = `[{"ID":0,"Mode":"go test"},{"Mode":"build","Package":"x/a","CmdReal":9000000000,"CmdUser":2000000000,"CmdSys":1000000000},
		{"Mode":"link","Package":"x/a","CmdUser":1500000000}] [{"Package":"x/b","CmdSys":4600000000}]`
	if err := os.WriteFile(file, []byte(graph), 0o600); err != nil {
		t.Fatal(err)
	}
	actions, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := judge(&out, "tests", actions, 10); err != nil {
		t.Error(err)
	}
	const want = "tests: 9.1 s (3.5 user, 5.6 system), at most 10 s of CPU\n" +
		"  4.6 s (0.0 user, 4.6 system): x/b\n  4.5 s (3.5 user, 1.0 system): x/a\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %s", out.String())
	}
	if err := judge(&out, "tests", actions, 9); err == nil || !strings.Contains(err.Error(), "tests take 9.1 CPU seconds") {
		t.Errorf("9 seconds were allowed: %v", err)
	}
}

// A test program that is played keeps its exit code, and its seconds are counted.
func TestPlay(t *testing.T) {
	if os.Getenv("CARILLON_PLAYED") != "" {
		for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
		}
		os.Exit(3)
	}
	t.Setenv("CARILLON_PLAYED", "yes")
	file := filepath.Join(t.TempDir(), "played")
	code, err := play(file, []string{os.Args[0], "-test.run=^TestPlay$"})
	if code != 3 || err != nil {
		t.Fatalf("exit code %d (%v), want 3", code, err)
	}
	actions, err := read(file)
	dir := filepath.FromSlash("internal/tests/cpu")
	if err != nil || len(actions) != 1 || !strings.HasSuffix(actions[0].Package, dir) || actions[0].took() <= 0 {
		t.Errorf("%+v (%v)", actions, err)
	}
}
