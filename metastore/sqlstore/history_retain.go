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
	// surplus is the part of the runs that a job keeps which it may have too many: to find the first that is too old, as
	// many are read as it keeps.
	surplus = 100
)

// jobName is a job by tenant and key.
type jobName [2]string

// purging is what a pass leaves for the next one.
type purging struct {
	mu     sync.Mutex              // one pass at a time
	jobs   map[jobName]kernel.Kept // that have finished runs, and what the last pass kept of them
	young  map[jobName]bool        // that have too many of them, still too young to purge
	extra  map[jobName]written     // that the table got since those of a job were last counted
	oldest map[jobName]time.Time   // no run of the job was stored before; only of some jobs
	passes int
}

// written counts runs that the table got.
type written struct{ succeeded, others int }

// growth is the runs that the table got since the last pass.
type growth struct {
	whole bool // other nodes wrote some
	upTo  uint64
	of    map[jobName]written
}

// grew notes the runs that this node wrote.
func (h *history) grew(from, to uint64, part []finished) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := &h.growth
	g.whole, g.upTo = g.whole || g.upTo != from, to
	for i := range part {
		run := part[i].run
		name := jobName{string(run.Tenant), string(run.Key)}
		w := g.of[name]
		if run.State == jobs.Succeeded {
			w.succeeded++
		} else {
			w.others++
		}
		g.of[name] = w
	}
}

// grown returns what the table got, and begins anew.
func (h *history) grown(ctx context.Context) (growth, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	mark, err := h.mark(ctx)
	if err != nil {
		return growth{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.growth
	g.whole = g.whole || g.upTo != mark
	h.growth = growth{upTo: mark, of: map[jobName]written{}}
	return g, nil
}

// Retain purges. A pass looks at the jobs of which this process has written runs since the one before, and at those of
// which fewer are kept now; at all jobs after other processes have written some.
func (h *history) Retain(ctx context.Context, r metastore.Retention) (done metastore.Retained, err error) {
	h.purging.mu.Lock()
	defer h.purging.mu.Unlock()
	if done.Dropped, err = h.purge(ctx, r); err != nil {
		h.mu.Lock()
		h.growth.whole = true
		h.mu.Unlock()
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
	g, err := h.grown(ctx)
	if err != nil {
		return 0, h.failed("search finished runs", err)
	}
	known := map[jobName]bool{}
	if g.whole || p.jobs == nil {
		g.whole = true
		if known, err = h.everyJob(ctx); err != nil {
			return 0, err
		}
	}
	for name := range p.jobs {
		known[name] = known[name] || !g.whole
	}
	for name := range g.of {
		known[name] = true
	}
	kept, young, extra := map[jobName]kernel.Kept{}, map[jobName]bool{}, map[jobName]written{}
	oldest := r.Now // what some job keeps
	for name, has := range known {
		if !has {
			continue
		}
		k, err := r.Of(jobs.Tenant(name[0]), jobs.Key(name[1]))
		if err != nil {
			return dropped, err
		}
		if last := r.Now.Add(-repeated); k.Since.After(last) && !k.Since.After(r.Now) { // a deleted tenant keeps nothing
			k.Since = last
		}
		if kept[name] = k; k.Since.Before(oldest) {
			oldest = k.Since
		}
		was, n := p.jobs[name], p.extra[name]
		all := g.whole || p.young[name] || k.Succeeded != was.Succeeded || k.Others != was.Others
		n.succeeded, n.others = n.succeeded+g.of[name].succeeded, n.others+g.of[name].others
		for _, c := range []struct {
			more, most int
			state      string
			counted    *int
		}{{n.succeeded, k.Succeeded, "state = 'Succeeded'", &n.succeeded}, {n.others, k.Others, "state <> 'Succeeded'", &n.others}} {
			if !all && (c.more == 0 || c.more < c.most/surplus) {
				continue
			}
			done, early, err := h.keepNewest(ctx, name, c.most, c.state, k.Young)
			if dropped += done; err != nil {
				return dropped, err
			}
			young[name] = young[name] || early
			*c.counted = 0
		}
		extra[name] = n
	}
	if h.dialect.dropDays != nil && len(kept) > 0 {
		n, err := h.dialect.dropDays(ctx, h.db, oldest)
		if dropped += n; err != nil {
			return dropped, h.failed("purge the finished runs of a day", err)
		}
	}
	last := map[jobName]time.Time{}
	for name, k := range kept {
		at, has := p.oldest[name]
		if !k.Since.IsZero() && (g.whole || !has || at.Before(k.Since)) {
			n := 0
			n, at, err = h.drop(ctx, name, k.Since, "")
			if dropped += n; err != nil {
				return dropped, err
			}
			if has = !at.IsZero(); !has { // it has no runs
				delete(kept, name)
				delete(young, name)
				delete(extra, name)
			}
		}
		if has {
			last[name] = at
		}
	}
	p.jobs, p.young, p.extra, p.oldest = kept, young, extra, last
	if r.Bytes > 0 && p.passes%measuredEvery == 0 {
		n, err := h.fit(ctx, r.Bytes)
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	p.passes++
	return dropped, nil
}

// everyJob is the jobs of finished runs.
func (h *history) everyJob(ctx context.Context) (names map[jobName]bool, err error) {
	names = map[jobName]bool{}
	err = h.query(ctx, "search finished runs", func(scan func(...any) error) error {
		var name jobName
		err := scan(&name[0], &name[1])
		names[name] = true
		return err
	}, h.dialect.everyJob)
	return names, err
}

// drop purges the runs of a job that fit and were stored before a time, if it is not zero. It returns when the first of
// the others was stored; zero = there is none. Runs are stored in the order of their numbers, so it reads no more.
func (h *history) drop(ctx context.Context, name jobName, before time.Time, and string, args ...any) (dropped int, first time.Time, err error) {
	args = append([]any{name[0], name[1]}, append(args, prunedAtOnce)...)
	for first.IsZero() {
		var some []row
		err := h.query(ctx, "search finished runs", func(scan func(...any) error) error {
			var r row
			var at int64
			if err := scan(&r.number, &r.id, &at); err != nil {
				return err
			}
			if t := time.UnixMicro(at); !before.IsZero() && !t.Before(before) {
				first = t
				return errEnough
			}
			some = append(some, r)
			return nil
		}, "SELECT number, "+h.dialect.idBytes+", "+h.dialect.storedAt+" FROM carillon_runs WHERE tenant = ? AND job = ?"+and+" ORDER BY number LIMIT ?", args...)
		if err != nil || len(some) == 0 {
			return dropped, first, err
		}
		n, err := h.delete(ctx, name[0], some)
		if dropped += n; err != nil {
			return dropped, time.Time{}, err
		}
	}
	return dropped, first, nil
}

// row is a finished run to be purged.
type row struct {
	number int64
	id     []byte
}

// keepNewest purges all finished runs of a job in some states but so many (0 = none is purged), and but young ones. early
// reports that there are such.
func (h *history) keepNewest(ctx context.Context, name jobName, most int, state string, young time.Time) (dropped int, early bool, err error) {
	if most <= 0 {
		return 0, false, nil
	}
	last := int64(-1)
	err = h.query(ctx, "search finished runs", func(scan func(...any) error) error { return scan(&last) },
		"SELECT number FROM carillon_runs WHERE tenant = ? AND job = ? AND "+state+" ORDER BY number DESC LIMIT 1 OFFSET ?", name[0], name[1], most)
	if err != nil || last < 0 {
		return 0, false, err
	}
	dropped, first, err := h.drop(ctx, name, young, " AND "+state+" AND number <= ?", last)
	return dropped, !first.IsZero(), err
}

// delete purges runs of a tenant, and their log lines.
func (h *history) delete(ctx context.Context, tenant string, some []row) (dropped int, err error) {
	if len(some) == 0 {
		return 0, nil
	}
	numbers, ids := []any{tenant}, []any{tenant}
	for _, r := range some {
		numbers, ids = append(numbers, r.number), append(ids, r.id)
	}
	if _, err := h.db.ExecContext(ctx, h.dialect.ask("DELETE FROM carillon_logs WHERE tenant = ? AND run IN "+marks(len(some))), ids...); err != nil {
		return 0, h.failed("purge log lines", err)
	}
	done, err := h.db.ExecContext(ctx, h.dialect.ask("DELETE FROM carillon_runs WHERE tenant = ? AND number IN "+marks(len(some))), numbers...)
	if err != nil {
		return 0, h.failed("purge finished runs", err)
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// fit purges runs while all of them take more bytes than allowed: the oldest of owners that exceed their shares. A
// smaller table is not read.
func (h *history) fit(ctx context.Context, most int64) (dropped int, err error) {
	var size int64
	number := func(scan func(...any) error) error { return scan(&size) }
	if err := h.query(ctx, "measure finished runs", number, h.dialect.size); err != nil || size <= most {
		return 0, err
	}
	sizes := map[metastore.Owner]int64{}
	if err := h.query(ctx, "measure finished runs", func(scan func(...any) error) error {
		var name jobName
		err := scan(&name[0], &name[1], &size)
		sizes[h.owner(name)] += size
		return err
	}, "SELECT tenant, job, SUM(OCTET_LENGTH(body)) FROM carillon_runs GROUP BY tenant, job"); err != nil {
		return 0, err
	}
	excess := map[jobs.Tenant]map[metastore.Owner]int64{}
	for of, n := range metastore.Excess(sizes, most) {
		if excess[of.Tenant] == nil {
			excess[of.Tenant] = map[metastore.Owner]int64{}
		}
		excess[of.Tenant][of] = n
	}
	for tenant, of := range excess {
		n, err := h.shrink(ctx, string(tenant), of)
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// owner is whose runs a job's are, as far as the last pass knows.
func (h *history) owner(name jobName) metastore.Owner {
	return metastore.Owner{Tenant: jobs.Tenant(name[0]), App: h.purging.jobs[name].App}
}

// shrink purges the oldest runs of a tenant's apps until none of them has an excess.
func (h *history) shrink(ctx context.Context, tenant string, excess map[metastore.Owner]int64) (dropped int, err error) {
	for last, more := int64(-1), true; more && len(excess) > 0; {
		more = false
		var some []row
		if err := h.query(ctx, "measure finished runs", func(scan func(...any) error) error {
			r, name, size := row{}, jobName{tenant}, int64(0)
			err := scan(&r.number, &r.id, &name[1], &size)
			last, more = r.number, true
			if of := h.owner(name); err == nil && excess[of] > 0 {
				some = append(some, r)
				if excess[of] -= size; excess[of] <= 0 {
					delete(excess, of)
				}
			}
			return err
		}, "SELECT number, "+h.dialect.idBytes+", job, OCTET_LENGTH(body) FROM carillon_runs WHERE tenant = ? AND number > ? ORDER BY number LIMIT ?",
			tenant, last, prunedAtOnce); err != nil {
			return dropped, err
		}
		n, err := h.delete(ctx, tenant, some)
		if dropped += n; err != nil {
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
