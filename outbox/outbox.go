// Package outbox enqueues runs inside a transaction of a program's own PostgreSQL or MariaDB: a run exists if the
// transaction commits, and only then.
//
//	box := outbox.Outbox{Database: outbox.PostgreSQL}
//	request, err := ChargeJob.Request(ChargeArgs{Customer: "c7"})
//	err = box.Enqueue(ctx, tx, request) // tx is a *sql.Tx; see EnqueuePgx for pgx
//
// The scheduler's tables must be in the same database, on the connection's search path or in [Outbox.Schema]. The
// program's user needs INSERT on carillon_outbox and SELECT on carillon_jobs, and no other right on these tables.
//
// Sharp edges: a run starts some 20 to 100 ms after the commit. A request that is refused after the commit, for example
// because its job was deleted meanwhile, stays in carillon_outbox with the reason, and the dashboard shows it.
package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Database is the kind of a database.
type Database string

// The databases.
const (
	PostgreSQL Database = "postgres"
	MariaDB    Database = "mariadb"
)

// Outbox is where a program's requests go. It may be copied, and used by several goroutines.
type Outbox struct {
	Database Database
	Schema   string      // of the scheduler's tables; "" = on the search path of the connection
	Tenant   jobs.Tenant // default: jobs.DefaultTenant
	Actor    string      // recorded in runs and the audit; default: client:outbox
	// Unchecked does not look whether there is such a job, which saves a query: a request for an unknown one is then
	// refused after the commit.
	Unchecked bool
}

// Tx is a transaction of database/sql: *sql.Tx, or a *sql.Conn in which one was begun.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Enqueue requests runs inside tx. The error is jobs.NotFound if there is no such job, jobs.BadInput for a malformed
// request, or one of the database. A request with an ID that was sent before makes no second run.
func (o Outbox) Enqueue(ctx context.Context, tx Tx, requests ...jobs.Request) error {
	return o.enqueue(requests, statements{
		exec: func(query string, args []any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		},
		texts: func(query string, args []any) ([]string, error) {
			rows, err := tx.QueryContext(ctx, query, args...)
			if err != nil {
				return nil, err
			}
			return texts(rows, rows.Close)
		},
	})
}

// PgxTx is a pgx.Tx: its Exec and Query return T and R.
type PgxTx[T any, R PgxRows] interface {
	Exec(ctx context.Context, query string, args ...any) (T, error)
	Query(ctx context.Context, query string, args ...any) (R, error)
}

// PgxRows is a pgx.Rows.
type PgxRows interface {
	rows
	Close()
}

// EnqueuePgx is [Outbox.Enqueue] for a transaction of pgx, of any version of it. Database may be empty.
func EnqueuePgx[T any, R PgxRows](ctx context.Context, o Outbox, tx PgxTx[T, R], requests ...jobs.Request) error {
	o.Database = PostgreSQL
	return o.enqueue(requests, statements{
		exec: func(query string, args []any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		},
		texts: func(query string, args []any) ([]string, error) {
			rows, err := tx.Query(ctx, query, args...)
			if err != nil {
				return nil, err
			}
			return texts(rows, func() error { rows.Close(); return nil })
		},
	})
}

// statements run in a transaction.
type statements struct {
	exec  func(query string, args []any) error
	texts func(query string, args []any) ([]string, error)
}

type rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// texts reads rows of one column.
func texts(r rows, end func() error) (all []string, err error) {
	for r.Next() {
		var text string
		if err := r.Scan(&text); err != nil {
			return nil, errors.Join(err, end())
		}
		all = append(all, text)
	}
	return all, errors.Join(r.Err(), end())
}

// atOnce is how many requests a statement inserts.
const atOnce = 500

func (o Outbox) enqueue(requests []jobs.Request, do statements) error {
	if err := o.check(); err != nil || len(requests) == 0 {
		return err
	}
	if o.Tenant == "" {
		o.Tenant = jobs.DefaultTenant
	}
	if o.Actor == "" {
		o.Actor = "client:outbox"
	}
	envelopes := make([]any, 0, len(requests))
	var keys []jobs.Key
	for _, r := range requests {
		if r.ID.IsZero() {
			r.ID = jobs.NewID(time.Now())
		}
		e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: o.Tenant, Actor: o.Actor, Sender: &kernel.Sender{As: kernel.AsOutbox}, Command: kernel.CreateOf(r)}
		if err := e.Check(); err != nil {
			return err
		}
		if !slices.Contains(keys, r.Key) {
			keys = append(keys, r.Key)
		}
		envelopes = append(envelopes, kernel.AppendEnvelopes(nil, []kernel.Envelope{e}))
	}
	if o.Unchecked {
		keys = nil
	}
	for some := range slices.Chunk(keys, atOnce) {
		if err := o.known(some, do); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(envelopes, atOnce) {
		query := "INSERT INTO " + o.table("carillon_outbox") + " (envelope) VALUES (" + o.marks(1, len(some), "), (") + ")"
		if err := do.exec(query, some); err != nil {
			return fmt.Errorf("enqueue in a transaction: %w", err)
		}
	}
	return nil
}

// known returns an error if there is no job of one of the keys.
func (o Outbox) known(keys []jobs.Key, do statements) error {
	args := []any{string(o.Tenant)}
	for _, k := range keys {
		args = append(args, string(k))
	}
	found, err := do.texts("SELECT job FROM "+o.table("carillon_jobs")+" WHERE tenant = "+o.marks(1, 1, "")+" AND job IN ("+o.marks(2, len(keys), ", ")+")", args)
	if err != nil {
		return fmt.Errorf("enqueue in a transaction: look for the jobs: %w", err)
	}
	for _, k := range keys {
		if !slices.Contains(found, string(k)) {
			return kernel.Refuse(jobs.NotFound, "no job %s in tenant %s: start a worker that registers it, or create it", k, o.Tenant)
		}
	}
	return nil
}

var schemas = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

func (o Outbox) check() error {
	switch {
	case o.Database != PostgreSQL && o.Database != MariaDB:
		return kernel.Invalid("outbox: invalid Database %.40q: want %s or %s", string(o.Database), PostgreSQL, MariaDB)
	case o.Schema != "" && !schemas.MatchString(o.Schema):
		return kernel.Invalid("outbox: invalid Schema %.80q: want letters, digits and underscores", o.Schema)
	}
	return nil
}

func (o Outbox) table(name string) string {
	switch {
	case o.Schema == "":
		return name
	case o.Database == MariaDB:
		return "`" + o.Schema + "`." + name
	}
	return `"` + o.Schema + `".` + name
}

// marks are the placeholders of n arguments, from a number on.
func (o Outbox) marks(from, n int, between string) string {
	all := make([]string, n)
	for i := range all {
		if all[i] = "?"; o.Database == PostgreSQL {
			all[i] = "$" + strconv.Itoa(from+i)
		}
	}
	return strings.Join(all, between)
}
