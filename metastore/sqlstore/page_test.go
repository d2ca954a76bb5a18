package sqlstore

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

var queries = regexp.MustCompile("(?s)```sql\n(.*?)```")

// wanted is in the rows that a query of the page returns, by how its comment begins, when there is a run in each final
// state. Rights return nothing, and carillon_live is empty here.
var wanted = map[string]string{
	"the jobs that failed most": "billing.fail",
	"PostgreSQL: how long":      "",
	"PostgreSQL: runs by":       "c7",
	"MariaDB: how long":         "billing.charge",
	"jobs without a run":        "billing.close",
}

// The queries of docs/database.md find what they say on the databases that they are for.
func TestQueriesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/database.md")
	if err != nil {
		t.Fatal(err)
	}
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		closing := register("billing.close")
		closing.Job.Kind = kernel.Recurring
		do(t, s, register("billing.charge"), register("billing.fail"), closing)
		ends := func(key jobs.Key, how kernel.Outcome) {
			c := create(key)
			c.Args = []byte(`{"customer": "c7"}`)
			do(t, s, c, kernel.Start{ID: c.ID, Worker: "w", Attempt: 1}, kernel.Finish{ID: c.ID, Worker: "w", Attempt: 1, Outcome: how})
		}
		ends("billing.charge", kernel.OutcomeSuccess)
		ends("billing.fail", kernel.OutcomeFatal)
		cancelled, skipped := create("billing.charge"), create("billing.skip")
		once := register("billing.skip")
		once.Job.Code = kernel.Settings{MaxConcurrency: new(1), Overlap: new(jobs.OverlapSkip)}
		do(t, s, once, create("billing.skip"), skipped, cancelled, kernel.Cancel{ID: cancelled.ID})
		within(t, "a run has ended in each way", func() bool {
			return count(t, s, "SELECT COUNT(DISTINCT state) FROM carillon_runs WHERE state <> ?", "") == 4
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
				for name, value := range wanted {
					if strings.HasPrefix(query, "-- "+name) && !slices.ContainsFunc(texts(t, rows), func(row string) bool { return strings.Contains(row, value) }) {
						t.Errorf("%s does not find %q", query, value)
					}
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

// texts returns the rows as text.
func texts(t *testing.T, rows *sql.Rows) (list []string) {
	t.Helper()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row, to := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s", row))
	}
	return list
}

var comments = regexp.MustCompile(`(?m)--.*$`)
