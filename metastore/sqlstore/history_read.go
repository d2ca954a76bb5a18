package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Finished runs as rows, and the reads of them: those that wait to be written are in memory, and all others in the table.

// How much a page of a list may read.
const (
	fewestRows = 64 // of the first query
	moreRows   = 8  // times as many of each further one
	longRows   = 4096
	mostRows   = 20_000
	mostTime   = 60 * time.Millisecond // then no further query begins
	fewJobs    = 100                   // that a query names
)

// runColumns are the columns of finished runs, but for the time at which they were stored.
var runColumns = []column{
	{"number", number}, {"tenant", word}, {"id", uuid}, {"job", word}, {"app", word}, {"state", word}, {"worker", word}, {"parent", uuid},
	{"priority", number}, {"attempts", number}, {"created_at", moment}, {"due_at", moment}, {"started_at", moment}, {"ended_at", moment},
	{"code", word}, {"error", word}, {"args", word}, {"result", word}, {"body", raw},
}

// runRow is the values of a run, in the order of the columns.
func runRow(f *finished) []any {
	in := f.run
	var parent any
	if !in.Parent.IsZero() {
		parent = bytesOf(in.Parent)
	}
	return []any{
		int64(f.number), plain.Readable(string(in.Tenant)), bytesOf(in.ID), plain.Readable(string(in.Key)), plain.Readable(in.App), in.State.String(), plain.Readable(in.Worker), parent,
		int64(in.Priority), int64(in.Attempt), when(in.Created), when(in.Due), when(in.Started), when(in.Ended),
		plain.Readable(in.Code()), plain.Readable(in.Error), text(in.Args), text(in.Result), kernel.AppendRow(nil, in),
	}
}

func text(b []byte) any {
	if b == nil {
		return nil
	}
	return plain.Readable(string(b))
}

// Get is one run, or nil.
func (h *history) Get(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	h.mu.Lock()
	run := h.byName[nameOf(tenant, id)]
	h.mu.Unlock()
	if run != nil {
		return run, nil
	}
	var body []byte
	err := h.db.QueryRowContext(ctx, h.dialect.ask("SELECT body FROM carillon_runs WHERE tenant = ? AND id = ? ORDER BY number DESC LIMIT 1"), string(tenant), h.dialect.uuid(id)).Scan(&body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, h.failed("read a finished run", err)
	}
	return decodeRun(body)
}

func (h *history) failed(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, kernel.Refuse(jobs.Unavailable, "%s does not answer", h.dialect.name), err)
}

// List answers a query, last ended first. The cursor is a number. A walk over too many rows stops early and reports how
// far it came.
func (h *history) List(ctx context.Context, q metastore.RunQuery) (page metastore.Page, err error) {
	below := uint64(1)<<63 - 1
	if q.Cursor != "" {
		if below, err = strconv.ParseUint(q.Cursor, 36, 63); err != nil || below == 0 {
			return page, kernel.Invalid("cursor %.60q is not from this list: use the cursor of the previous page", q.Cursor)
		}
	}
	w := walk{q: &q, size: q.Size()}
	h.mu.Lock()
	waiting := h.waiting // its elements are never changed
	h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(waiting, below, func(f finished, n uint64) int { return cmp.Compare(f.number, n) })
	for _, f := range slices.Backward(waiting[:i]) {
		if f.run.Tenant == q.Tenant && w.over(f.number, f.run) {
			return w.page, nil
		}
	}
	if len(waiting) > 0 {
		below = min(below, waiting[0].number) // the table may have some of them already
	}
	return h.table(ctx, &w, below)
}

// table continues a walk in the table, below a number. Each query reads more rows than the one before: a driver reads
// all rows of a query, even if the first few complete the page.
func (h *history) table(ctx context.Context, w *walk, below uint64) (metastore.Page, error) {
	from, narrow := indexed(h.dialect, w.q), narrowing(h.dialect, w.q)
	most, began := fewestRows, time.Now()
	for ; most <= w.size; most *= moreRows {
	}
	for looked := 0; ; most = min(most*moreRows, longRows, mostRows-looked) {
		query := "SELECT number, body FROM carillon_runs WHERE " + from.text() + " AND number < ? ORDER BY number DESC LIMIT " + strconv.Itoa(most)
		args := append(slices.Clone(from.args), int64(below))
		if len(narrow.parts) > 0 { // the body of a row that is not wanted is not sent; its number is how far the walk came
			query = strings.Replace(query, "body", "CASE WHEN "+narrow.text()+" THEN body END", 1)
			args = append(slices.Clone(narrow.args), args...)
		}
		rows, err := h.db.QueryContext(ctx, h.dialect.ask(query), args...)
		found := 0
		err = each(rows, err, func(scan func(...any) error) error {
			var body []byte
			if err := scan(&below, &body); err != nil {
				return err
			}
			if found++; body == nil {
				w.last = below
				return nil
			}
			run, err := decodeRun(body)
			if err == nil && w.over(below, run) {
				err = errEnough
			}
			return err
		})
		looked += found
		switch {
		case errors.Is(err, errEnough), err == nil && found < most:
			return w.page, nil
		case err != nil:
			return metastore.Page{}, h.failed("list finished runs", err)
		case looked >= mostRows || time.Since(began) > mostTime:
			return w.page, h.cut(ctx, w)
		}
	}
}

// cut ends a walk early, at the last row that was read.
func (h *history) cut(ctx context.Context, w *walk) error {
	w.page.Next = strconv.FormatUint(w.last, 36)
	return h.query(ctx, "list finished runs", func(scan func(...any) error) error {
		var body []byte
		if err := scan(&body); err != nil {
			return err
		}
		run, err := decodeRun(body)
		if err == nil {
			w.page.Searched = run.Ended
		}
		return err
	}, "SELECT body FROM carillon_runs WHERE tenant = ? AND number = ?", string(w.q.Tenant), int64(w.last))
}

// conditions are joined by AND.
type conditions struct {
	parts []string
	args  []any
}

func (c *conditions) add(part string, args ...any) {
	c.parts, c.args = append(c.parts, part), append(c.args, args...)
}

func (c *conditions) text() string { return strings.Join(c.parts, " AND ") }

// indexed is what a query selects by the best index: of those that it names, the one with the fewest rows.
func indexed(d *dialect, q *metastore.RunQuery) (c conditions) {
	c.add("tenant = ?", string(q.Tenant))
	failed := kernel.ValidState(q.State) && q.State != jobs.Succeeded
	switch {
	case !q.Parent.IsZero():
		c.add("parent = ?", d.uuid(q.Parent))
	case q.Job != "":
		if c.add("job = ?", string(q.Job)); failed {
			c.add("state <> 'Succeeded'")
		}
	case failed:
		c.add("state = ? AND state <> 'Succeeded'", q.State.String())
	}
	return c
}

// narrowing is what else a query selects, as far as columns show it: rows that do not fit are not wanted.
func narrowing(d *dialect, q *metastore.RunQuery) (c conditions) {
	for _, of := range []struct{ column, value string }{{"job", string(q.Job)}, {"app", q.App}, {"worker", q.Worker}, {"code", q.Code}} {
		if of.value != "" {
			c.add(of.column+" = ?", plain.Readable(of.value))
		}
	}
	if kernel.ValidState(q.State) {
		c.add("state = ?", q.State.String())
	}
	if n := strings.IndexAny(q.Match, `*?[\`); n > 0 && isASCII(q.Match[:n]) {
		c.add("LEFT(job, "+strconv.Itoa(n)+") = ?", q.Match[:n])
	}
	if q.Jobs != nil && len(q.Jobs) <= fewJobs {
		list := []string{"''"} // for a list of none
		for _, key := range q.Jobs {
			list = append(list, "?")
			c.args = append(c.args, string(key))
		}
		c.parts = append(c.parts, "job IN ("+strings.Join(list, ", ")+")")
	}
	for _, a := range q.Args { // as Matches looks first
		if a.Value != "" && !strings.ContainsRune(a.Value, utf8.RuneError) {
			c.add("(POSITION(? IN args) > 0 OR POSITION(? IN args) > 0)", plain.Readable(a.Value), `\`)
		}
	}
	if inColumns(q.To) {
		c.add("created_at <= "+d.instant, q.To.UnixNano())
	}
	if inColumns(q.From) { // a row that ends the walk is wanted, too: see RunQuery.Past
		c.add("created_at >= "+d.instant, q.From.Truncate(time.Microsecond).UnixNano())
		c.parts = []string{"(" + c.text() + " OR ended_at < " + d.instant + " AND state IN ('Succeeded', 'Skipped'))"}
		c.args = append(c.args, q.From.UnixNano())
	}
	return c
}

// isASCII reports whether bytes are characters, too: databases count one or the other.
func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// inColumns reports whether every database has such a time.
func inColumns(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2200 }

// walk fills a page.
type walk struct {
	q    *metastore.RunQuery
	size int
	page metastore.Page
	last uint64 // number of the last run that was looked at
}

// over looks at the next run, and reports whether the page is complete.
func (w *walk) over(number uint64, run *kernel.Run) bool {
	if w.q.Past(run) {
		return true
	}
	if w.q.Matches(run) {
		if len(w.page.Runs) == w.size {
			w.page.Next = strconv.FormatUint(w.last, 36)
			return true
		}
		w.page.Runs = append(w.page.Runs, run)
	}
	w.last = number
	return false
}
