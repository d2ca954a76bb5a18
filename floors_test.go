package carillon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/carillon-scheduler/carillon"

// floors is the architecture as a table: a package may import packages of lower floors, those named in may, and
// nothing else of this module. DO NOT CHANGE THIS TABLE TO FIX A BUILD: change it when docs/design.md has changed.
var floors = []struct {
	floor int
	dir   string   // of this module; "" is the root package
	may   []string // imports of the same floor that are allowed all the same
}{
	{0, "internal/plain", nil},
	{0, "internal/pool", nil},
	{0, "internal/outcome", nil},
	{0, "internal/argschema", []string{"jobs", "internal/kernel", "internal/plain"}},
	{0, "internal/fastjson", []string{"internal/plain"}},
	{0, "jobs", []string{"internal/plain", "internal/outcome", "internal/fastjson"}},
	{0, "internal/kernel", []string{"jobs", "internal/outcome", "internal/plain", "internal/fastjson"}},
	{0, "jobs/schedule", []string{"jobs", "internal/plain"}},
	{0, "jobs/quartztrigger", []string{"jobs", "jobs/schedule"}},
	{0, "internal/timetable", []string{"jobs", "jobs/schedule", "internal/kernel"}},
	{0, "internal/sabotage", nil},
	{0, "internal/stdlog", nil},
	{0, "internal/dispatch", []string{"internal/sabotage", "jobs"}},
	{0, "internal/secretfile", []string{"internal/kernel"}},
	{0, "internal/episode", []string{"jobs"}},
	{0, "internal/ledgerfile", []string{"jobs", "jobs/schedule", "internal/kernel", "internal/plain", "internal/timetable"}},
	{0, "internal/auditfile", []string{"jobs", "internal/kernel"}},

	{1, "metastore", nil},
	{1, "metastore/ledger", []string{"metastore"}},
	{1, "bus", nil},
	{1, "trace", nil},
	{1, "webhook", nil},
	{1, "alarms", []string{"webhook"}},
	{1, "internal/auditsink", []string{"webhook"}},
	{1, "httpspec", nil},
	{1, "execspec", nil},
	{1, "outbox", nil},

	{2, "metastore/memstore", nil},
	{2, "metastore/replica", []string{"metastore/memstore"}},
	{2, "metastore/replica/dblog", []string{"metastore/replica"}},
	{2, "metastore/replica/dblog/memdb", []string{"metastore/memstore", "metastore/replica", "metastore/replica/dblog"}},
	{2, "metastore/raftstore", []string{"metastore/memstore", "metastore/replica", "metastore/raftstore/archive", "metastore/raftstore/blocks", "metastore/raftstore/disk", "metastore/raftstore/link", "metastore/raftstore/loglines", "metastore/raftstore/raftlog"}},
	{2, "metastore/raftstore/archive", []string{"metastore/memstore", "metastore/raftstore/blocks", "metastore/raftstore/disk"}},
	{2, "metastore/raftstore/blocks", nil},
	{2, "metastore/raftstore/loglines", []string{"metastore/raftstore/blocks", "metastore/raftstore/disk"}},
	{2, "metastore/raftstore/disk", nil},
	{2, "metastore/raftstore/disk/fliptest", nil},
	{2, "metastore/raftstore/link", nil},
	{2, "metastore/raftstore/raftlog", []string{"metastore/raftstore/disk"}},
	{2, "metastore/raftstore/raftlog/hashicorp", []string{"metastore/raftstore/disk", "metastore/raftstore/raftlog"}},
	{2, "metastore/sqlstore", []string{"metastore/replica", "metastore/replica/dblog"}},
	{2, "metastore/busstore", nil},
	{2, "metastore/backup", nil},
	{2, "bus/membus", nil},
	{2, "bus/natsbus", nil},
	{2, "bus/natsbus/embedded", []string{"bus/natsbus"}},

	{3, "ops", nil},

	{4, "controlplane", []string{"controlplane/assign"}},
	{4, "controlplane/assign", nil},
	{4, "worker", nil},
	{4, "worker/httpjob", nil},
	{4, "worker/execjob", nil},
	{4, "client", nil},
	{4, "internal/oidc", nil},
	{4, "api", nil},
	{4, "ui", []string{"ui/chart", "ui/static"}},
	{4, "ui/chart", nil},
	{4, "ui/static", nil},
	{4, "metrics", []string{"controlplane"}},

	{5, "", nil},
	{5, "embed", nil},
	{5, "cmd/carillon/jobfile", nil},
	{5, "cmd/carillon/cli", []string{"cmd/carillon/jobfile"}},
	{6, "cmd/carillon", nil},
}

// noBodies are the floors that never see a body of a store or a bus.
var noBodies = []int{3, 4}

// doors names the one package that imports each library, and no other does.
var doors = map[string][]string{
	"github.com/nats-io/nats.go":             {"bus/natsbus"},
	"github.com/nats-io/nats-server/v2":      {"bus/natsbus/embedded"},
	"go.etcd.io/bbolt":                       {"metastore/raftstore/raftlog", "metastore/raftstore/disk"},
	"github.com/hashicorp/raft":              {"metastore/raftstore", "metastore/raftstore/raftlog"},
	"github.com/hashicorp/raft-boltdb/v2":    {"metastore/raftstore/raftlog/hashicorp"},
	"github.com/hashicorp/raft-wal":          {"metastore/raftstore/raftlog/hashicorp"},
	"github.com/hashicorp/go-hclog":          {"metastore/raftstore", "metastore/raftstore/raftlog"},
	"github.com/hashicorp/go-msgpack/v2":     {"metastore/raftstore/raftlog"},
	"github.com/jackc/pgx/v5":                {"metastore/sqlstore"},
	"github.com/go-sql-driver/mysql":         {"metastore/sqlstore"},
	"github.com/danielgtaylor/huma/v2":       {"api"},
	"github.com/google/jsonschema-go":        {"internal/argschema"},
	"github.com/ohler55/ojg":                 {"httpspec"},
	"github.com/reugn/go-quartz":             {"jobs/quartztrigger"},
	"github.com/sony/gobreaker/v2":           {"worker/httpjob"},
	"github.com/spf13/cobra":                 {"cmd/carillon", "cmd/carillon/cli"},
	"go.yaml.in/yaml/v3":                     {"cmd/carillon", "cmd/carillon/jobfile", "cmd/carillon/cli"},
	"go.opentelemetry.io/otel":               {"trace", "cmd/carillon"},
	"github.com/prometheus/client_golang":    {"metrics"},
	"github.com/oklog/run":                   {"controlplane", "worker", "embed", "cmd/carillon"},
	"github.com/KimMachineGun/automemlimit":  {"cmd/carillon"},
	"github.com/wneessen/go-mail":            {"alarms"},
	"golang.org/x/sys":                       {"metastore/raftstore/disk", "worker/execjob"},
	"golang.org/x/time":                      {"api"},
	"github.com/coreos/go-oidc/v3":           {"internal/oidc"},
	"golang.org/x/oauth2":                    {"internal/oidc"},
	"github.com/carillon-scheduler/carillon": nil,
}

// light must not link what is heavy, so that a program that only runs or starts jobs stays small.
var (
	light = []string{"", "worker", "client"}
	heavy = []string{"github.com/nats-io/nats-server/v2", "github.com/hashicorp/raft", "go.etcd.io/bbolt", "database/sql", "github.com/danielgtaylor/huma/v2", "github.com/prometheus/client_golang",
		"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "google.golang.org/grpc"}
)

// unmaintained are modules that only the program links, with a reason in SECURITY.md: a program that imports any other
// package has neither them nor an explanation to give in its bill of materials.
var (
	unmaintained     = []string{"github.com/coreos/etcd", "github.com/coreos/pkg", "github.com/boltdb/bolt"}
	linkUnmaintained = []string{"metastore/raftstore/raftlog/hashicorp", "cmd/carillon", "chaos"}
)

func TestOnlyTheProgramLinksUnmaintainedModules(t *testing.T) {
	for _, p := range packages(t) {
		dir, _ := own(p.ImportPath)
		if slices.Contains(linkUnmaintained, dir) {
			continue
		}
		for _, dep := range linked(t, p.ImportPath) {
			for _, m := range unmaintained {
				if dep.ImportPath == m || strings.HasPrefix(dep.ImportPath, m+"/") {
					t.Errorf("%s links %s", p.ImportPath, dep.ImportPath)
				}
			}
		}
	}
}

// listed is a package of this module, or one that its packages import, directly or not.
type listed struct {
	ImportPath, Name, Doc, Dir string
	Imports                    []string
	Standard, DepOnly          bool
}

// graph is what the go command lists, which is asked once for all tests.
var graph = sync.OnceValues(func() (map[string]listed, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Doc,Dir,Imports,Standard,DepOnly", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
})

// packages are those of this module.
func packages(t *testing.T) (all []listed) {
	t.Helper()
	known, err := graph()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(known)) {
		if p := known[path]; !p.DepOnly {
			all = append(all, p)
		}
	}
	return all
}

// linked are packages, by their paths, and all that they import, directly or not.
func linked(t *testing.T, paths ...string) (all []listed) {
	t.Helper()
	known, err := graph()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(paths) > 0 {
		path := paths[len(paths)-1]
		paths = paths[:len(paths)-1]
		if seen[path] || path == "C" { // cgo's, which is no package
			continue
		}
		p, ok := known[path]
		if !ok {
			t.Fatalf("package %s is not listed", path)
		}
		seen[path] = true
		all = append(all, p)
		paths = append(paths, p.Imports...)
	}
	return all
}

// own is the directory of a package of this module.
func own(path string) (dir string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestFloors(t *testing.T) {
	floor := map[string]int{}
	for _, f := range floors {
		floor[f.dir] = f.floor
	}
	isBody := func(dir string) bool { return floor[dir] == 2 }
	for _, p := range packages(t) {
		dir, _ := own(p.ImportPath)
		i := slices.IndexFunc(floors, func(f struct {
			floor int
			dir   string
			may   []string
		}) bool {
			return f.dir == dir
		})
		if i < 0 {
			if !judges(dir) {
				t.Errorf("package %s has no floor: add it to the table and to docs/design.md", p.ImportPath)
			}
			continue
		}
		for _, imp := range p.Imports {
			to, ok := own(imp)
			if !ok {
				continue
			}
			n, known := floor[to]
			switch {
			case !known && !strings.HasPrefix(to, dir+"/"):
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, imp)
			case known && n >= floors[i].floor && !slices.Contains(floors[i].may, to):
				t.Errorf("%s (floor %d) imports %s (floor %d): imports go down", p.ImportPath, floors[i].floor, imp, n)
			case isBody(to) && slices.Contains(noBodies, floors[i].floor):
				t.Errorf("%s imports %s: it must not know which body it works with", p.ImportPath, imp)
			}
		}
	}
}

// Each store and each bus runs the suite of its kind. The suite of stores runs memstore itself.
func TestBodiesRunTheirSuite(t *testing.T) {
	for _, f := range floors {
		parent, name := path.Split(f.dir)
		suite := map[string]string{"metastore/": "storetest", "bus/": "bustest"}[parent]
		if f.floor != 2 || suite == "" || name == "memstore" || name == "backup" {
			continue
		}
		files, err := filepath.Glob(filepath.Join(filepath.FromSlash(f.dir), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text := read(t, file)
			return strings.Contains(text, suite+".Run(") || strings.Contains(text, suite+".Sample(")
		}) {
			t.Errorf("no test in %s calls %s.Run", f.dir, suite)
		}
	}
}

// judges are packages for tests, and programs: they may import anything, and nothing imports them.
func judges(dir string) bool {
	for _, name := range []string{"metastore/storetest", "metastore/replica/logtest", "metastore/replica/dblog/dbtest", "metastore/sqlstore/sqltest", "bus/bustest", "bus/bustest/freeport", "internal/tests", "internal/bubble", "internal/timemodel", "worker/workertest", "chaos"} {
		if dir == name {
			return true
		}
	}
	return strings.HasPrefix(dir, "examples/") || strings.HasPrefix(dir, "chaos/") || strings.HasPrefix(dir, "internal/tests/") || strings.HasPrefix(dir, "cmd/carillon/") && dir != "cmd/carillon/cli" && dir != "cmd/carillon/jobfile" || strings.Contains(dir, "/internal/")
}

// The judge believes no package of what it judges.
func TestTheJudgeIsNoParty(t *testing.T) {
	for _, p := range linked(t, module+"/chaos/judge") {
		if dir, ours := own(p.ImportPath); ours && dir != "chaos/judge" {
			t.Errorf("chaos/judge depends on %s", p.ImportPath)
		}
	}
}

func TestGroundFloorKnowsOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range linked(t, module+"/jobs", module+"/jobs/schedule") {
		if _, ok := own(p.ImportPath); !ok && !p.Standard {
			t.Errorf("jobs depends on %s", p.ImportPath)
		}
	}
}

func TestEachLibraryHasOneDoor(t *testing.T) {
	for _, p := range packages(t) {
		dir, _ := own(p.ImportPath)
		if judges(dir) {
			continue
		}
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp, "/")
			if _, ours := own(imp); ours || !strings.Contains(first, ".") {
				continue
			}
			found := false
			for lib, by := range doors {
				if imp == lib || strings.HasPrefix(imp, lib+"/") {
					found = true
					if !slices.Contains(by, dir) {
						t.Errorf("%s imports %s: its door is %v", p.ImportPath, imp, by)
					}
				}
			}
			if !found {
				t.Errorf("%s imports %s, which has no door in this table nor a line of reason in docs/design.md", p.ImportPath, imp)
			}
		}
	}
}

func TestWorkersStaySmall(t *testing.T) {
	for _, dir := range light {
		for _, p := range linked(t, path.Join(module, dir)) {
			for _, h := range heavy {
				if p.ImportPath == h || strings.HasPrefix(p.ImportPath, h+"/") {
					t.Errorf("%q links %s", dir, p.ImportPath)
				}
			}
		}
	}
}
