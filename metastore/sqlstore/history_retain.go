package sqlstore

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Finished runs are purged in statements of their own, few at a time, because locks last as long; a day that no job keeps
// goes with its partition. The age of a run is that of its row.

const (
	// prunedAtOnce is how many rows a statement deletes.
	prunedAtOnce = 500
	// repeated is how long a run is kept although it was purged: a repeated command may mean it, and only its row shows
	// that.
	repeated = time.Minute
	// measuredEvery is after how many passes the runs are measured again, while the table is larger than allowed.
	measuredEvery = 60
)

// purging is what a pass leaves for the next one.
type purging struct {
	mu     sync.Mutex                // one pass at a time
	jobs   map[[2]string]kernel.Kept // that have finished runs, and what the last pass kept of them
	young  map[[2]string]bool        // that have too many of them, still too young to purge
	upTo   int64                     // number of the last run that was read
	passes int
}

// Retain purges. The first pass of a process reads all jobs; later ones bound the numbers of those with newly ended runs,
// or of which fewer are kept now.
func (h *history) Retain(ctx context.Context, r metastore.Retention) (done metastore.Retained, err error) {
	if done.Dropped, err = h.purge(ctx, r); err != nil {
		return done, err
	}
	return done, h.query(ctx, "measure finished runs", func(scan func(...any) error) error { return scan(&done.Bytes) }, h.dialect.size)
}

// query reads rows, until fn returns errEnough.
func (h *history) query(ctx context.Context, what string, fn func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := h.db.QueryContext(ctx, h.dialect.ask(query), args...)
	if err = each(rows, err, fn); err == nil || err == errEnough {
		return nil
	}
	return h.failed(what, err)
}

func (h *history) purge(ctx context.Context, r metastore.Retention) (dropped int, err error) {
	p := &h.purging
	p.mu.Lock()
	defer p.mu.Unlock()
	upTo := p.upTo
	if err := h.query(ctx, "search finished runs", func(scan func(...any) error) error { return scan(&upTo) }, "SELECT upto FROM carillon_mark WHERE one = 1"); err != nil {
		return 0, err
	}
	grown := map[[2]string]bool{}
	known := map[[2]string]bool{}
	active, err := h.jobsWhere(ctx, "number > ? AND number <= ?", p.upTo, upTo)
	if err != nil {
		return 0, err
	}
	for _, name := range active {
		grown[name], known[name] = true, true
	}
	for name := range p.jobs {
		known[name] = true
	}
	kept := map[[2]string]kernel.Kept{}
	oldest, newest := r.Now, time.Time{} // what some job keeps, and what none keeps
	for name := range known {
		k, err := r.Of(jobs.Tenant(name[0]), jobs.Key(name[1]))
		if err != nil {
			return 0, err
		}
		if last := r.Now.Add(-repeated); k.Since.After(last) {
			k.Since = last
		}
		if was := p.jobs[name]; k.Succeeded != was.Succeeded || k.Others != was.Others || p.young[name] {
			grown[name] = true
		}
		if kept[name] = k; k.Since.Before(oldest) {
			oldest = k.Since
		}
		if k.Since.After(newest) {
			newest = k.Since
		}
	}
	young := map[[2]string]bool{}
	for name := range grown {
		for _, c := range []struct {
			most  int
			state string
		}{{kept[name].Succeeded, "state = 'Succeeded'"}, {kept[name].Others, "state <> 'Succeeded'"}} {
			n, early, err := h.keepNewest(ctx, name, c.most, c.state, kept[name].Young)
			if dropped += n; err != nil {
				return dropped, err
			}
			if early {
				young[name] = true
			}
		}
	}
	if h.dialect.dropDays != nil && len(kept) > 0 {
		n, err := h.dialect.dropDays(ctx, h.db, oldest)
		if dropped += n; err != nil {
			return dropped, h.failed("purge the finished runs of a day", err)
		}
	}
	aged, err := h.jobsWhere(ctx, "stored_at < "+h.dialect.instant, newest.UnixNano())
	if err != nil {
		return dropped, err
	}
	for _, name := range aged {
		n, err := h.drop(ctx, "tenant = ? AND job = ? AND stored_at < "+h.dialect.instant, name[0], name[1], nanos(kept[name].Since))
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	p.upTo, p.jobs, p.young = upTo, kept, young
	if r.Bytes > 0 && p.passes%measuredEvery == 0 {
		n, err := h.fit(ctx, r.Bytes)
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	p.passes++
	return dropped, nil
}

// jobsWhere are the jobs of finished runs that fit.
func (h *history) jobsWhere(ctx context.Context, which string, args ...any) (names [][2]string, err error) {
	err = h.query(ctx, "search finished runs", func(scan func(...any) error) error {
		var name [2]string
		err := scan(&name[0], &name[1])
		names = append(names, name)
		return err
	}, "SELECT DISTINCT tenant, job FROM carillon_runs WHERE "+which, args...)
	return names, err
}

// keepNewest purges all finished runs of a job in some states but so many (0 = none is purged), and but young ones. early
// reports that there are such.
func (h *history) keepNewest(ctx context.Context, name [2]string, most int, state string, young time.Time) (dropped int, early bool, err error) {
	if most <= 0 {
		return 0, false, nil
	}
	which := "tenant = ? AND job = ? AND " + state
	last := int64(-1)
	isYoung := false
	err = h.query(ctx, "search finished runs", func(scan func(...any) error) error { return scan(&last, &isYoung) },
		"SELECT number, stored_at >= "+h.dialect.instant+" FROM carillon_runs WHERE "+which+" ORDER BY number DESC LIMIT 1 OFFSET ?", young.UnixNano(), name[0], name[1], most)
	if err != nil || last < 0 {
		return 0, false, err
	}
	if young.IsZero() {
		dropped, err = h.drop(ctx, which+" AND number <= ?", name[0], name[1], last)
		return dropped, false, err
	}
	dropped, err = h.drop(ctx, which+" AND number <= ? AND stored_at < "+h.dialect.instant, name[0], name[1], last, young.UnixNano())
	return dropped, isYoung, err
}

// drop purges the runs that fit, and their log lines.
func (h *history) drop(ctx context.Context, which string, args ...any) (dropped int, err error) {
	for {
		var numbers []any
		ids := map[string][]any{} // by tenant
		err := h.query(ctx, "search finished runs", func(scan func(...any) error) error {
			var number int64
			var tenant string
			var id []byte
			err := scan(&number, &tenant, &id)
			numbers, ids[tenant] = append(numbers, number), append(ids[tenant], id)
			return err
		}, "SELECT number, tenant, "+h.dialect.idBytes+" FROM carillon_runs WHERE "+which+" ORDER BY number LIMIT ?", append(append([]any{}, args...), prunedAtOnce)...)
		if err != nil {
			return dropped, err
		}
		if len(numbers) == 0 {
			return dropped, nil
		}
		for tenant, some := range ids {
			if _, err := h.db.ExecContext(ctx, h.dialect.ask("DELETE FROM carillon_logs WHERE tenant = ? AND run IN "+marks(len(some))), append([]any{tenant}, some...)...); err != nil {
				return dropped, h.failed("purge log lines", err)
			}
			// By the tenant, too: the index on numbers begins with it.
			done, err := h.db.ExecContext(ctx, h.dialect.ask("DELETE FROM carillon_runs WHERE tenant = ? AND number IN "+marks(len(numbers))), append([]any{tenant}, numbers...)...)
			if err != nil {
				return dropped, h.failed("purge finished runs", err)
			}
			n, err := done.RowsAffected()
			if err != nil {
				return dropped, err
			}
			dropped += int(n)
		}
		if len(numbers) < prunedAtOnce {
			return dropped, nil
		}
	}
}

// fit purges the oldest runs while all of them take more bytes than allowed. A smaller table is not read.
func (h *history) fit(ctx context.Context, most int64) (dropped int, err error) {
	var size int64
	number := func(scan func(...any) error) error { return scan(&size) }
	if err := h.query(ctx, "measure finished runs", number, h.dialect.size); err != nil || size <= most {
		return 0, err
	}
	if err := h.query(ctx, "measure finished runs", number, "SELECT COALESCE(SUM(OCTET_LENGTH(body)), 0) FROM carillon_runs"); err != nil {
		return 0, err
	}
	for size > most {
		last, n := int64(-1), 0
		err := h.query(ctx, "measure finished runs", func(scan func(...any) error) error {
			var at, bytes int64
			err := scan(&at, &bytes)
			if size > most {
				size, last, n = size-bytes, at, n+1
			}
			return err
		}, "SELECT number, OCTET_LENGTH(body) FROM carillon_runs ORDER BY number LIMIT ?", prunedAtOnce)
		if err != nil || n == 0 {
			return dropped, err
		}
		done, err := h.drop(ctx, "number <= ?", last)
		if dropped += done; err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// dropDays drops the partitions whose last moment is before a time, and returns how many runs they had.
func dropDays(ctx context.Context, db *sql.DB, before time.Time) (dropped int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT c.relname, i.inhdetachpending FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'carillon_runs'::regclass AND c.relname < $1 ORDER BY c.relname",
		partitionName(before.UTC().Truncate(24*time.Hour)))
	type day struct {
		name    string
		pending bool // a former attempt was cut off
	}
	var days []day
	if err := each(rows, err, func(scan func(...any) error) error {
		var d day
		err := scan(&d.name, &d.pending)
		days = append(days, d)
		return err
	}); err != nil {
		return 0, err
	}
	for _, d := range days {
		how := " CONCURRENTLY"
		if d.pending {
			how = " FINALIZE"
		}
		// It waits for the queries that read the table, and nothing waits for it.
		if _, err := db.ExecContext(ctx, "ALTER TABLE carillon_runs DETACH PARTITION "+d.name+how); err != nil {
			return dropped, err
		}
		var n int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+d.name).Scan(&n); err != nil {
			return dropped, err
		}
		if _, err := db.ExecContext(ctx, "DROP TABLE "+d.name); err != nil {
			return dropped, err
		}
		dropped += n
	}
	return dropped, nil
}

// partitionName is the name of a day's partition, in the order of days.
func partitionName(day time.Time) string { return "carillon_runs_" + day.Format("20060102") }
