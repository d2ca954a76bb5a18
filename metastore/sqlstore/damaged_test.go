package sqlstore

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// documented returns the statements of docs/troubleshooting.md for a damaged log: one that finds the entry, and those
// that cut the log there.
func documented(t *testing.T) (find string, cut []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## The log in a database is damaged\n")
	parts := strings.Split(section, "```")
	if len(parts) < 5 {
		t.Fatal("the page has not two blocks of statements")
	}
	block := func(i int) []string {
		all := strings.Split(strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(parts[i], "sql")), ";"), ";")
		for i := range all {
			all[i] = strings.TrimSpace(all[i])
		}
		return all
	}
	return block(1)[0], block(3)
}

// A damaged log has the way out of the page: the server runs again, with all before the damage, and keeps what follows.
func TestADamagedLogHasAWayOut(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		c := Config{URL: url}
		find, cut := documented(t)
		var before, later []jobs.ID
		s := open(t, c)
		stop := leading(t, s)
		do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
		add := func(s *Store, to *[]jobs.ID) {
			t.Helper()
			for range 5 {
				k := create("k")
				do(t, s, k)
				*to = append(*to, k.ID)
			}
		}
		add(s, &before)
		for _, how := range []string{"prev", "entry"} {
			seq, _, _, err := logTable{s, s.logDB}.End(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			damaged := seq + 1
			add(s, &later)
			if _, err := s.db.Exec(fmt.Sprintf("UPDATE carillon_log SET %s = (SELECT x FROM (SELECT hash AS x FROM carillon_log WHERE seq = %d) AS y) WHERE seq = %d", how, damaged, damaged)); err != nil {
				t.Fatal(err)
			}
			stop()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if s, err = Open(t.Context(), c); err == nil {
				_ = s.Close()
				t.Fatalf("a log whose %s is damaged is read", how)
			}
			why := err.Error()
			admin, err := dial(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if how == "prev" {
				var found uint64
				if err := admin.db.QueryRow(find).Scan(&found); err != nil || found != damaged {
					t.Errorf("the damaged entry is %d, the page finds %d (%v)", damaged, found, err)
				}
			} else if !strings.Contains(why, fmt.Sprint("apply log entry ", damaged, ":")) {
				t.Errorf("the error does not name entry %d: %s", damaged, why)
			}
			for _, q := range cut {
				if _, err := admin.db.Exec(strings.ReplaceAll(q, "NUMBER", fmt.Sprint(damaged))); err != nil {
					t.Fatal(err)
				}
			}
			_ = admin.Close()
			s = open(t, c)
			stop = leading(t, s)
			for _, id := range later {
				if _, err := s.Run(t.Context(), jobs.DefaultTenant, id); err == nil {
					t.Error("a run after the damage is there")
				}
			}
			later = nil
			add(s, &before)
			for _, id := range before {
				if _, err := s.Run(t.Context(), jobs.DefaultTenant, id); err != nil {
					t.Errorf("a run is missing: %v", err)
				}
			}
		}
		stop()
	})
}
