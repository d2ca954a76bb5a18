package sqlstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Rows of finished runs are deleted in statements of their own, few at a time, because locks last as long. The
// database reuses the space for later rows.
const prunedAtOnce = 500

// repeated is how long a run is kept although it was purged: a repeated command may mean it, and only its row shows
// that.
const repeated = time.Minute

// retaining is the state that a pass leaves for the next one.
type retaining struct {
	mu     sync.Mutex                // one pass at a time
	jobs   map[[2]string]kernel.Kept // that have finished runs, and what the last pass kept of them
	young  map[[2]string]bool        // that have too many of them, still too young to delete
	up     int64                     // place of the last settled run that was read
	passes int
}

var _ metastore.Retainer = (*Store)(nil)

// measuredEvery is after how many passes the runs are measured again, while the table is larger than allowed.
const measuredEvery = 60

// Retain purges. The first pass of a process reads all jobs; later ones bound the numbers of those with newly ended
// runs, or of which fewer are kept now.
func (s *Store) Retain(ctx context.Context, r metastore.Retention) (done metastore.Retained, err error) {
	if done.Dropped, err = s.retain(ctx, r); err != nil {
		return done, err
	}
	return done, s.query(ctx, "measure finished runs", func(scan func(...any) error) error { return scan(&done.Bytes) }, s.dialect.tableSize)
}

func (s *Store) retain(ctx context.Context, r metastore.Retention) (dropped int, err error) {
	p := &s.retaining
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		p.jobs = map[[2]string]kernel.Kept{}
	}
	up := p.up
	if err := s.query(ctx, "search finished runs", func(scan func(...any) error) error { return scan(&up) },
		"SELECT COALESCE(MAX(settled), 0) FROM carillon_runs WHERE settled IS NOT NULL"); err != nil {
		return 0, err
	}
	active, err := s.jobsWhere(ctx, "settled > ? AND settled <= ?", p.up, up)
	if err != nil {
		return 0, err
	}
	newest := int64(0)
	kept := map[[2]string]kernel.Kept{}
	grown := map[[2]string]bool{}
	for _, name := range active {
		grown[name] = true
		if _, known := p.jobs[name]; !known {
			p.jobs[name] = kernel.Kept{}
		}
	}
	for name, was := range p.jobs {
		k, err := r.Of(jobs.Tenant(name[0]), jobs.Key(name[1]))
		if err != nil {
			return 0, err
		}
		if last := r.Now.Add(-repeated); k.Since.After(last) {
			k.Since = last
		}
		if k.Succeeded != was.Succeeded || k.Others != was.Others {
			grown[name] = true
		}
		kept[name] = k
		newest = max(newest, nanos(k.Since))
	}
	for name := range p.young {
		grown[name] = true
	}
	young := map[[2]string]bool{}
	for name := range grown {
		for _, c := range []struct {
			most  int
			state string
		}{{kept[name].Succeeded, "state = 4"}, {kept[name].Others, "state <> 4"}} {
			n, early, err := s.keepNewest(ctx, name, c.most, c.state, kept[name].Young)
			if dropped += n; err != nil {
				return dropped, err
			}
			if early {
				young[name] = true
			}
		}
	}
	aged, err := s.jobsWhere(ctx, "settled_at < ?", newest)
	if err != nil {
		return dropped, err
	}
	for _, name := range aged {
		n, err := s.drop(ctx, "tenant = ? AND job = ? AND settled IS NOT NULL AND settled_at < ?", name[0], name[1], nanos(kept[name].Since))
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	p.up, p.jobs, p.young = up, kept, young
	if r.Bytes > 0 && p.passes%measuredEvery == 0 {
		n, err := s.fit(ctx, r.Bytes)
		if dropped += n; err != nil {
			return dropped, err
		}
	}
	p.passes++
	if r.Logs > 0 {
		err = s.dropLines(ctx, r.Now.Add(-r.Logs))
	}
	return dropped, err
}

// jobsWhere are the jobs of finished runs that fit.
func (s *Store) jobsWhere(ctx context.Context, which string, args ...any) (names [][2]string, err error) {
	err = s.query(ctx, "search finished runs", func(scan func(...any) error) error {
		var name [2]string
		err := scan(&name[0], &name[1])
		names = append(names, name)
		return err
	}, "SELECT DISTINCT tenant, job FROM carillon_runs WHERE settled IS NOT NULL AND "+which, args...)
	return names, err
}

// keepNewest deletes all finished runs of a job in some states but so many (0 = none is deleted), and but young ones.
// early reports that there are such.
func (s *Store) keepNewest(ctx context.Context, name [2]string, most int, state string, young time.Time) (dropped int, early bool, err error) {
	if most <= 0 {
		return 0, false, nil
	}
	which := "tenant = ? AND job = ? AND settled IS NOT NULL AND " + state
	last, at := int64(-1), int64(0)
	err = s.query(ctx, "search finished runs", func(scan func(...any) error) error { return scan(&last, &at) },
		"SELECT settled, settled_at FROM carillon_runs WHERE "+which+" ORDER BY settled DESC LIMIT 1 OFFSET ?", name[0], name[1], most)
	if err != nil || last < 0 {
		return 0, false, err
	}
	if young.IsZero() {
		dropped, err = s.drop(ctx, which+" AND settled <= ?", name[0], name[1], last)
		return dropped, false, err
	}
	dropped, err = s.drop(ctx, which+" AND settled <= ? AND settled_at < ?", name[0], name[1], last, nanos(young))
	return dropped, at >= nanos(young), err
}

// drop deletes the runs that fit, and their log lines.
func (s *Store) drop(ctx context.Context, which string, args ...any) (dropped int, err error) {
	for {
		ids, n := map[string][]any{}, 0 // by tenant
		err := s.query(ctx, "search finished runs", func(scan func(...any) error) error {
			var tenant string
			var id []byte
			err := scan(&tenant, &id)
			ids[tenant], n = append(ids[tenant], id), n+1
			return err
		}, "SELECT tenant, id FROM carillon_runs WHERE "+which+" LIMIT ?", append(append([]any{}, args...), prunedAtOnce)...)
		if err != nil {
			return dropped, err
		}
		for tenant, some := range ids {
			named := append([]any{tenant}, some...)
			in := "(?" + strings.Repeat(", ?", len(some)-1) + ")"
			if _, err := s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_logs WHERE tenant = ? AND run IN "+in), named...); err != nil {
				return dropped, s.failed("delete old log lines", err)
			}
			if _, err := s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_runs WHERE settled IS NOT NULL AND tenant = ? AND id IN "+in), named...); err != nil {
				return dropped, s.failed("delete old runs", err)
			}
			dropped += len(some)
		}
		if n < prunedAtOnce {
			return dropped, nil
		}
	}
}

// dropLines deletes old log lines of all runs.
func (s *Store) dropLines(ctx context.Context, before time.Time) error {
	query := s.dialect.ask(s.dialect.prune("carillon_logs", "tenant, run, attempt, sequence", "at < ?"))
	for {
		done, err := s.db.ExecContext(ctx, query, before.UnixNano(), prunedAtOnce)
		if err != nil {
			return s.failed("delete old log lines", err)
		}
		if n, err := done.RowsAffected(); err != nil || n < prunedAtOnce {
			return nil
		}
	}
}

// fit deletes the oldest runs while all of them take more bytes than allowed. A smaller table is not read.
func (s *Store) fit(ctx context.Context, most int64) (dropped int, err error) {
	var size int64
	number := func(scan func(...any) error) error { return scan(&size) }
	if err := s.query(ctx, "measure finished runs", number, s.dialect.tableSize); err != nil || size <= most {
		return 0, err
	}
	if err := s.query(ctx, "measure finished runs", number, "SELECT COALESCE(SUM(OCTET_LENGTH(body)), 0) FROM carillon_runs WHERE settled IS NOT NULL"); err != nil {
		return 0, err
	}
	for size > most {
		last, n := int64(-1), 0
		err := s.query(ctx, "measure finished runs", func(scan func(...any) error) error {
			var at, bytes int64
			err := scan(&at, &bytes)
			if size > most {
				size, last, n = size-bytes, at, n+1
			}
			return err
		}, "SELECT settled, OCTET_LENGTH(body) FROM carillon_runs WHERE settled IS NOT NULL ORDER BY settled LIMIT ?", prunedAtOnce)
		if err != nil || n == 0 {
			return dropped, err
		}
		done, err := s.drop(ctx, "settled IS NOT NULL AND settled <= ?", last)
		if dropped += done; err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}
