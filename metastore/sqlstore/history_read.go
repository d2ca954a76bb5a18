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

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Finished runs as rows, and the reads of them: those that wait to be written are in memory, and all others in the table.

// mostRows is how many rows one query of a list may read.
const mostRows = 20_000

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
		int64(f.number), plain(string(in.Tenant)), bytesOf(in.ID), plain(string(in.Key)), plain(in.App), in.State.String(), plain(in.Worker), parent,
		int64(in.Priority), int64(in.Attempt), when(in.Created), when(in.Due), when(in.Started), when(in.Ended),
		plain(in.Code()), plain(in.Error), text(in.Args), text(in.Result), kernel.AppendRow(nil, in),
	}
}

// plain is a text as every database takes it: what is stored must not be refused.
func plain(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func text(b []byte) any {
	if b == nil {
		return nil
	}
	return plain(string(b))
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
	where, args := []string{"tenant = ?", "number < ?"}, []any{string(q.Tenant), int64(below)}
	switch { // by the best index: of those that the query names, the one with the fewest rows
	case !q.Parent.IsZero():
		where, args = append(where, "parent = ?"), append(args, h.dialect.uuid(q.Parent))
	case kernel.ValidState(q.State) && q.State != jobs.Succeeded:
		where, args = append(where, "state = ?", "state <> 'Succeeded'"), append(args, q.State.String())
	case q.Job != "":
		where, args = append(where, "job = ?"), append(args, string(q.Job))
	}
	rows, err := h.db.QueryContext(ctx, h.dialect.ask("SELECT number, body FROM carillon_runs WHERE "+strings.Join(where, " AND ")+" ORDER BY number DESC LIMIT ?"), append(args, mostRows)...)
	looked, ended := 0, time.Time{}
	err = each(rows, err, func(scan func(...any) error) error {
		var number uint64
		var body []byte
		if err := scan(&number, &body); err != nil {
			return err
		}
		run, err := decodeRun(body)
		if err != nil {
			return err
		}
		if looked++; w.over(number, run) {
			return errEnough
		}
		ended = run.Ended
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return w.page, nil
	case err != nil:
		return metastore.Page{}, h.failed("list finished runs", err)
	case looked == mostRows:
		w.page.Next, w.page.Searched = strconv.FormatUint(w.last, 36), ended
	}
	return w.page, nil
}

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
