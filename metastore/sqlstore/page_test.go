package sqlstore

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

var queries = regexp.MustCompile("(?s)```sql\n(.*?)```")

// The queries of docs/database.md run on the databases that they are for.
func TestQueriesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/database.md")
	if err != nil {
		t.Fatal(err)
	}
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("billing.charge"))
		c := create("billing.charge")
		c.Args = []byte(`{"customer": "c7"}`)
		do(t, s, c, kernel.Cancel{ID: c.ID})
		within(t, "a run is finished", func() bool {
			return count(t, s, "SELECT COUNT(*) FROM carillon_runs WHERE state = ?", jobs.Cancelled.String()) == 1
		})
		found := queries.FindAllSubmatch(page, -1)
		ran := 0
		for _, q := range found {
			query := string(q[1])
			if s.dialect == postgres && strings.Contains(query, "-- MariaDB") || s.dialect == mariadb && strings.Contains(query, "-- PostgreSQL") {
				continue
			}
			ran++
			tx, err := s.db.Begin() // of what it makes, nothing stays
			if err != nil {
				t.Fatal(err)
			}
			for statement := range strings.SplitSeq(query, ";") {
				statement = strings.TrimSpace(comments.ReplaceAllString(statement, ""))
				if statement == "" {
					continue
				}
				rows, err := tx.Query(statement)
				if err != nil {
					t.Errorf("%s: %v", statement, err)
					break
				}
				for rows.Next() {
				}
				if err := rows.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
		if ran < 3 {
			t.Errorf("%d of %d queries ran", ran, len(found))
		}
	})
}

var comments = regexp.MustCompile(`(?m)--.*$`)
