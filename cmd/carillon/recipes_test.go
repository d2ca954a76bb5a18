package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// recipes are the blocks of shell of docs/backup.md: of a directory, of PostgreSQL, of MariaDB.
func recipes(t *testing.T) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, block[1])
	}
	if len(all) < 3 {
		t.Fatalf("docs/backup.md has %d blocks of shell, want at least 3", len(all))
	}
	return all
}

// shell runs a recipe, with this binary as carillon, and the folders and databases of the page elsewhere.
func shell(t *testing.T, recipe, dir string, replace, env []string) string {
	t.Helper()
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "carillon")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.NewReplacer(replace...).Replace(recipe))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "BE_THE_PROGRAM=1", "PATH="+dir+":"+os.Getenv("PATH"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, recipe, out)
	}
	return string(out)
}

// The recipe for the backup of a directory works.
func TestRecipesOfBackups(t *testing.T) {
	tmp := t.TempDir()
	lines := strings.SplitAfter(recipes(t)[0], "\n")
	data, backup := filepath.Join(tmp, "lib"), filepath.Join(tmp, "carillon.backup")
	replace := []string{"/var/backups/carillon.backup", backup, "/var/lib/carillon-restored", filepath.Join(tmp, "restored"), "/var/lib/carillon", data}
	p := start(t, "server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--data", data)
	hire(t, p.bus)
	packs(p)
	env := []string{"CARILLON_SERVER=" + p.page}
	shell(t, lines[0], tmp, replace, env)
	if err := os.Remove(backup); err != nil {
		t.Fatal(err)
	}
	p.end()
	shell(t, lines[1], tmp, replace, env)
	text := shell(t, lines[2], tmp, replace, env)
	if !strings.Contains(text, "1 finished runs") {
		t.Errorf("output: %s", text)
	}
	p = start(t, "server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--data", filepath.Join(tmp, "restored"))
	p.get("/api/v1/runs?job=shop.pack&state=Succeeded", succeeded(1))
	p.end()
}

// So do the recipes for databases, with their own programs. The leader of the old database has no power in the new one.
func TestRecipesOfDatabaseBackups(t *testing.T) {
	tests.Long(t)
	for i, c := range []struct {
		kind     *sqltest.Kind
		programs string // that the recipe begins
	}{{sqltest.Postgres, "pg_dump"}, {sqltest.MariaDB, "mariadb-dump"}} {
		t.Run(c.programs, func(t *testing.T) {
			raw := c.kind.New(t)
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if u.Host != "" {
				t.Skip("the recipe is tried with a server of the test's own, by its socket")
			}
			if _, err := exec.LookPath(c.programs); err != nil {
				tests.Missing(t, err.Error())
			}
			name := strings.TrimPrefix(u.Path, "/")
			restored := name + "_restored"
			flags := []string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--data", t.TempDir(), "--store"}
			p := start(t, append(flags, raw)...)
			p.get("/leaderz", ok)
			hire(t, p.bus)
			packs(p)
			replace := []string{"carillon.dump", "carillon.dump", "carillon.sql", "carillon.sql", "carillon_leader", "carillon_leader", "carillon", name, "restored", restored}
			home := t.TempDir()
			mine := "[client]\nuser=" + u.User.Username() + "\nsocket=" + u.Query().Get("socket") + "\n"
			if err := os.WriteFile(filepath.Join(home, ".my.cnf"), []byte(mine), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"PGHOST=" + u.Query().Get("host"), "PGUSER=" + u.User.Username(), "HOME=" + home}
			shell(t, recipes(t)[i+1], t.TempDir(), replace, env)
			p.end()
			u.Path = "/" + restored
			p = start(t, append(flags, u.String())...)
			p.get("/api/v1/runs?job=shop.pack&state=Succeeded", succeeded(1))
			p.get("/api/v1/cluster", contains(`"term":100`))
			p.end()
		})
	}
}
