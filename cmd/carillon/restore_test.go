package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// runProgram runs a command of the program.
func runProgram(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code := execute(t.Context(), args, &out, &out)
	return out.String(), code
}

// clusterOf is the cluster that the node of a data directory belongs to.
func clusterOf(t *testing.T, data string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "rows", "node.json"))
	if err != nil {
		t.Fatal(err)
	}
	var node struct{ Cluster string }
	if err := json.Unmarshal(b, &node); err != nil || node.Cluster == "" {
		t.Fatalf("%s: %v", b, err)
	}
	return node.Cluster
}

// A server is backed up while it works, and continues from the backup in another directory, with the state of then, as
// a cluster of its own. --gap decides about the time between.
func TestBackupAndRestore(t *testing.T) {
	tests.Long(t)
	tmp := t.TempDir()
	data, file := filepath.Join(tmp, "data"), filepath.Join(tmp, "carillon.backup")
	flags := []string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--data"}
	p := start(t, append(flags, data)...)
	p.get("/leaderz", ok)
	p.patch("/api/v1/settings", `{"misfireAfter":"1s"}`)
	leave := plant(t, p.bus)
	p.get("/api/v1/runs?limit=200&job=shop.tick&state=Succeeded", succeeded(2))
	p.post("/api/v1/jobs/shop.pack/trigger", `{"delay":"1h"}`)
	text, code := runProgram(t, "backup", file, "--server", p.page)
	if code != 0 || !strings.Contains(text, "2 jobs") || !strings.Contains(text, "live runs") {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file may be read by others: %v, %v", info.Mode(), err)
	}
	if text, code := runProgram(t, "backup", file, "--server", p.page); code != 4 || !strings.Contains(text, "exists") {
		t.Errorf("over a file that is there: exit code %d: %s", code, text)
	}
	then := len(ticks(p))
	p.get("/api/v1/runs?limit=200&job=shop.tick&state=Succeeded", succeeded(then+5))
	p.post("/api/v1/jobs/shop.pack/trigger", `{"delay":"2h"}`) // which the backup does not know
	leave()
	p.end()

	for _, gap := range []string{"skip", "once", "all", "policy"} {
		to := filepath.Join(tmp, gap)
		text, code := runProgram(t, "restore", file, "--data", to, "--gap", gap)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", gap, code, text)
		}
		var fired, missed int
		if _, text, found := strings.Cut(text, "of the due times since then, "); found {
			if _, err := fmt.Sscanf(text, "%d became runs and %d are", &fired, &missed); err != nil {
				t.Errorf("%s: %s", gap, text)
			}
		}
		switch {
		case gap == "skip" && (fired > 0 || missed < 5), gap == "once" && (fired != 1 || missed < 4), gap == "all" && (fired < 5 || missed > 0), gap == "policy" && fired+missed > 0:
			t.Errorf("%s: %s", gap, text)
		}
		if clusterOf(t, to) == clusterOf(t, data) {
			t.Errorf("%s: it is the same cluster", gap)
		}
		if text, code := runProgram(t, "restore", file, "--data", to); code != 4 || !strings.Contains(text, "not empty") {
			t.Errorf("over what is there: exit code %d: %s", code, text)
		}
	}
	p = start(t, append(flags, filepath.Join(tmp, "policy"))...)
	p.get("/leaderz", ok)
	leave = plant(t, p.bus)
	p.get("/api/v1/runs?limit=200&job=shop.tick&state=Succeeded", succeeded(then+5)) // its own policy fires them all
	ticks(p)
	if n := len(listed(p, "/api/v1/runs?limit=200&job=shop.pack")); n != 1 {
		t.Errorf("it knows %d runs of shop.pack, and the backup knew one", n)
	}
	leave()
	p.end()

	// A server that does not run is backed up by its directory, and holds what its own backup did not know.
	stopped := filepath.Join(tmp, "stopped.backup")
	text, code = runProgram(t, "backup", stopped, "--data", data)
	live := 0
	if text := regexp.MustCompile(`\b(\d+) live runs`).FindStringSubmatch(text); text != nil {
		live, _ = strconv.Atoi(text[1])
	}
	if code != 0 || live < 2 { // the two of shop.pack, and a tick for each second after the worker had left
		t.Errorf("exit code %d: %s", code, text)
	}
}

// A file that is damaged or cut off is refused before anything is made of it.
func TestRestoreOfDamage(t *testing.T) {
	tmp := t.TempDir()
	data, file := filepath.Join(tmp, "data"), filepath.Join(tmp, "b")
	p := start(t, "server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--data", data)
	hire(t, p.bus)
	packs(p)
	p.end()
	if text, code := runProgram(t, "backup", file, "--data", data); code != 0 {
		t.Fatal(text)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, b []byte) {
		t.Helper()
		path, to := filepath.Join(tmp, "damaged"), filepath.Join(tmp, "to")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		text, code := runProgram(t, "restore", path, "--data", to)
		if code == 0 {
			t.Errorf("%s: it was restored: %s", what, text)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s: something is there: %s", what, text)
		}
	}
	try("longer", append(bytes.Clone(whole), 0))
	for at := 0; at < len(whole); at += 1 + len(whole)/40 {
		try(fmt.Sprint("cut off at ", at), whole[:at])
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x10
		try(fmt.Sprint("damaged at ", at), flipped)
	}
	if text, code := runProgram(t, "restore", file, "--data", filepath.Join(tmp, "to")); code != 0 {
		t.Errorf("as it was: %s", text)
	}
	for args, want := range map[string]string{
		"restore": "takes one file", "restore x": "--data", "restore x --data y --gap half": "policy, skip, once or all", "restore nothing --data y": "no such file",
	} {
		if text, code := runProgram(t, strings.Fields(args)...); code == 0 || !strings.Contains(text, want) {
			t.Errorf("%s: exit code %d: %s", args, code, text)
		}
	}
}

// A server whose store is a database names the database's backup command.
func TestBackupOfADatabase(t *testing.T) {
	tests.Long(t)
	for _, kind := range storeKinds()[1:] {
		t.Run(kind.name, func(t *testing.T) {
			p := start(t, append([]string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, kind.make(t).server...)...)
			p.get("/leaderz", ok)
			text, code := runProgram(t, "backup", filepath.Join(t.TempDir(), "b"), "--server", p.page)
			if code != 4 || !strings.Contains(text, map[string]string{"PostgreSQL": "pg_dump", "MariaDB": "mariadb-dump"}[kind.name]) {
				t.Errorf("exit code %d: %s", code, text)
			}
			p.end()
		})
	}
}
