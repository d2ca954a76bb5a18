//go:build unix

package processtest

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// TestRepairNode is "repair a node" of docs/cluster.md: a node of three whose files are damaged names what is and does
// not start, the others continue, and `cluster repair` makes it copy everything from them.
func TestRepairNode(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.hire(workerSpec{Name: "one", Slots: 16})
	for n := range 50 {
		c.enqueue(plainJob, task{Number: n})
	}
	c.quiet()
	path, _ := carillonProgram()
	for i, damage := range []struct {
		file string
		how  func([]byte) []byte
	}{
		{"wal/*.wal", func(b []byte) []byte { return b[:len(bytes.TrimRight(b, "\x00"))/2] }},
		{"wal/wal-meta.db", func(b []byte) []byte { clear(b); return b }},
		{"archive/open", func(b []byte) []byte { return bytes.Repeat([]byte("no"), len(b)/2) }},
	} {
		hurt, well := c.nodes[i], c.nodes[(i+1)%3]
		hurt.process.stop(t, syscall.SIGTERM)
		files, _ := filepath.Glob(filepath.Join(hurt.data, "rows", damage.file))
		if len(files) == 0 {
			t.Fatalf("there is no %s", damage.file)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, damage.how(raw), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		refused := start(t, "the damaged node", path, nil, hurt.args...)
		await(t, "it ends", refused.over)
		if text := refused.out.String(); refused.code() != 1 || !strings.Contains(text, filepath.Join(hurt.data, "rows")) || !strings.Contains(text, "carillon cluster repair --data "+hurt.data) {
			t.Errorf("%s: it ends with %d and prints %s", damage.file, refused.code(), text)
		}
		c.asks(well).leader()
		run := c.enqueue(plainJob, task{})
		c.wrote(ended, run.ID, 1)

		if out, code := runProgram(t, "", "cluster", "repair", "--data", hurt.data); code != 0 || !strings.Contains(out, "damaged-") {
			t.Fatalf("%s: repair ends with %d: %s", damage.file, code, out)
		}
		if out, code := runProgram(t, "", "cluster", "repair", "--data", hurt.data); code != 0 || !strings.Contains(out, "Already done") {
			t.Errorf("%s: repair ends the second time with %d: %s", damage.file, code, out)
		}
		c.begin(hurt)
		await(t, "it votes again", func() bool {
			status, raw, err := c.ask(http.MethodGet, "/api/v1/cluster", "")
			return err == nil && status == http.StatusOK && decode[api.Cluster](t, raw).Tolerates == 1
		})
		// The node itself still reads what had become of the others.
		await(t, "it reports so itself", func() bool {
			out, code := runProgram(t, "", "cluster", "status", "--server", "http://"+hurt.http)
			return code == 0 && strings.Contains(out, "one node may fail")
		})
	}
	// What was taken anew is what was there: any one may go, and the one that was hurt first is asked.
	want := c.asks(c.nodes[1]).done()
	if got := c.asks(c.nodes[0]).done(); len(want) != 53 || !slices.Equal(got, want) {
		t.Errorf("%d runs are there, of %d", len(got), len(want))
	}
}
