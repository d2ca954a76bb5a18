package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	neturl "net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// asked is a query that a store has sent to its database.
type asked struct {
	query string
	args  []any
}

// spy is a way to a database that records every query.
type spy struct {
	driver.Connector
	mu    sync.Mutex
	heard []asked
}

func (s *spy) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.Connector.Connect(ctx)
	return spied{c, s}, err
}

// spied is a connection of a spy's.
type spied struct {
	driver.Conn
	by *spy
}

func (c spied) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	a := asked{query: query}
	for _, v := range args {
		a.args = append(a.args, v.Value)
	}
	c.by.mu.Lock()
	c.by.heard = append(c.by.heard, a)
	c.by.mu.Unlock()
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c spied) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

// listenTo has a spy record what a store queries from now on.
func listenTo(t *testing.T, s *Store, url string) *spy {
	t.Helper()
	to := new(spy)
	var err error
	if s.dialect == mariadb {
		var where *neturl.URL
		if where, err = neturl.Parse(url); err == nil {
			var c *mysql.Config
			if c, err = mariadbConfig(where, s.cfg.silence); err == nil {
				to.Connector, err = mysql.NewConnector(c)
			}
		}
	} else {
		to.Connector, err = stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	was := s.db
	s.db = sql.OpenDB(to)
	t.Cleanup(func() { _ = was.Close() })
	return to
}

// Every query about runs uses an index, in the exact form of the store: with a hundred thousand runs, none scans all
// of them.
func TestPlans(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		do(t, s, register("k"))
		for range 3 {
			batch := make([]kernel.Command, 1000)
			for i := range batch {
				k := create("k")
				if i%2 == 0 {
					k.Delay = time.Hour
				}
				batch[i] = k
			}
			do(t, s, batch...)
			var over []kernel.Command
			for _, k := range batch[:500] {
				over = append(over, kernel.Cancel{ID: k.(kernel.Create).ID})
			}
			do(t, s, over...)
		}
		analyze := "ANALYZE"
		if s.dialect == mariadb {
			analyze = "ANALYZE TABLE carillon_runs"
		}
		if _, err := s.db.Exec(analyze); err != nil {
			t.Fatal(err)
		}
		heard := listenTo(t, s, url)
		tenant := jobs.DefaultTenant
		list := func(q metastore.RunQuery) func(context.Context) error {
			return func(ctx context.Context) error {
				q.Tenant = tenant
				page, err := s.Runs(ctx, q)
				if err == nil && page.Next != "" {
					q.Cursor = page.Next
					_, err = s.Runs(ctx, q)
				}
				return err
			}
		}
		for what, ask := range map[string]func(context.Context) error{
			"waking runs":        func(ctx context.Context) error { _, _, err := s.Waking(ctx, time.Now(), 10); return err },
			"ready runs":         func(ctx context.Context) error { _, err := s.Ready(ctx, tenant, "app", 10); return err },
			"the backlog":        func(ctx context.Context) error { _, err := s.Backlog(ctx); return err },
			"attempts under way": func(ctx context.Context) error { _, err := s.Leased(ctx); return err },
			"a run": func(ctx context.Context) error {
				_, err := s.Run(ctx, tenant, jobs.ID{1})
				return refusedOnly(err)
			},
			"runs":                list(metastore.RunQuery{}),
			"runs of a job":       list(metastore.RunQuery{Job: "other"}),
			"runs in a state":     list(metastore.RunQuery{State: jobs.Processing}),
			"runs that failed":    list(metastore.RunQuery{State: jobs.Terminated}),
			"runs of a worker":    list(metastore.RunQuery{Worker: "w1"}),
			"runs of another run": list(metastore.RunQuery{Parent: jobs.ID{1}}),
			"runs since":          list(metastore.RunQuery{From: time.Now().Add(-time.Minute)}),
		} {
			heard.heard = nil
			if err := ask(t.Context()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if len(heard.heard) == 0 {
				t.Errorf("%s: nothing was asked", what)
			}
			for _, a := range heard.heard {
				if last := len(a.args) - 1; strings.Contains(a.query, " LIMIT ") && a.args[last] != countReady {
					// A page: the test has few more runs than one query may read.
					a.args[last] = int64(10)
				}
				var plan strings.Builder
				rows, err := s.db.Query("EXPLAIN "+a.query, a.args...)
				if err := each(rows, err, func(func(...any) error) error { return explain(rows, &plan) }); err != nil {
					t.Fatalf("%s: %s: %v", what, a.query, err)
				}
				text := strings.ReplaceAll(plan.String(), "Seq Scan on carillon_counts", "") // of few rows
				if !strings.Contains(text, "carillon_runs_") && !strings.Contains(text, "const") && !strings.Contains(text, "PRIMARY") || strings.Contains(text, "Seq Scan") || strings.Contains(text, " ALL ") {
					t.Errorf("%s: %s\n%s", what, a.query, text)
				}
			}
		}
	})
}

// As many runs as a statement may name are read by their key alone. MariaDB would take a list of pairs apart for each
// index that begins with the tenant, or read the whole table and join it with the list.
func TestPlanOfManyRuns(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		if s.dialect != mariadb {
			return // PostgreSQL joins with one list, and rightly reads a small table whole
		}
		do(t, s, register("k"))
		var keys [][]any
		for range 2 {
			batch := make([]kernel.Command, part)
			for i := range batch {
				k := create("k")
				batch[i] = k
				keys = append(keys, []any{string(jobs.DefaultTenant), bytesOf(k.ID)})
			}
			do(t, s, batch...)
		}
		if _, err := s.db.Exec("ANALYZE TABLE carillon_runs"); err != nil {
			t.Fatal(err)
		}
		heard := listenTo(t, s, url)
		n := 0
		if err := s.dialect.get(t.Context(), s.db, &runs, keys[:part], func(func(...any) error) error { n++; return nil }); err != nil || n != part {
			t.Fatalf("%d runs: %v", n, err)
		}
		for _, a := range heard.heard {
			var plan strings.Builder
			rows, err := s.db.Query("EXPLAIN "+a.query, a.args...)
			if err := each(rows, err, func(func(...any) error) error { return explain(rows, &plan) }); err != nil {
				t.Fatal(err)
			}
			if text := plan.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, " range ") || !strings.Contains(text, " PRIMARY ") {
				t.Errorf("the plan is\n%s", text)
			}
		}
	})
}

// refusedOnly is an error that is no answer.
func refusedOnly(err error) error {
	if jobs.CodeOf(err) == jobs.NotFound {
		return nil
	}
	return err
}

func explain(rows *sql.Rows, to *strings.Builder) error {
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	for _, v := range values {
		fmt.Fprintf(to, " %s ", v.String)
	}
	to.WriteByte('\n')
	return nil
}
