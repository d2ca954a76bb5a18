package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Purging is the state of retention in this process.
type Purging struct {
	Looked time.Time     // when the last pass succeeded; zero = none has here
	Took   time.Duration // duration of that pass
	Bytes  int64         // approximate size of the runs after it
	At     time.Time     // when runs were purged last; zero = none were
	Runs   int           // number of runs purged then
	Total  uint64        // since the process started
	Most   int64         // their size limit in bytes; 0 = none
	Counts time.Duration // how long counts of days are kept
}

// Cleaning returns the state of retention. Other tenants than the default one see only the limits: the rest counts the
// runs of all tenants.
func (o *Ops) Cleaning(who Who) Purging {
	if o.cleaning == nil {
		return Purging{}
	}
	p := o.cleaning()
	if who.tenant() != jobs.DefaultTenant {
		p = Purging{Most: p.Most, Counts: p.Counts}
	}
	return p
}

// Purge is a request to purge finished runs.
type Purge struct {
	Key    jobs.Key  // "" = of all jobs
	Before time.Time // purge runs that finished before; zero = now
	Keep   int       // number of the job's newest runs to keep; 0 = none
	Dry    bool      // only report what would be purged
}

// Purged is the result of a purge.
type Purged struct {
	Before time.Time // runs that finished before this are purged
	Runs   int       // number of these, as far as they were counted
	More   bool      // they were not all counted
}

// The most runs that are counted for a result, and that can be kept by number.
const (
	mostPurged = 10_000
	mostKept   = 10_000
)

// Purge purges finished runs. The store records the request; the runs, their logs and results are deleted a moment
// later. Hourly counts stay.
func (o *Ops) Purge(ctx context.Context, who Who, want Purge) (Purged, error) {
	if want.Keep < 0 || want.Keep > mostKept {
		return Purged{}, kernel.Invalid("invalid keep %d: want 0 to %d", want.Keep, mostKept)
	}
	if want.Keep > 0 && want.Key == "" {
		return Purged{}, kernel.Invalid("keep needs a job: set job")
	}
	now := o.Now()
	done := Purged{Before: kernel.Instant(want.Before)}
	if want.Before.IsZero() || done.Before.After(now) {
		done.Before = now
	}
	k := kernel.Purge{Key: want.Key, Before: done.Before}
	if err := kernel.CheckCommand(k); err != nil {
		return Purged{}, err
	}
	if err := o.reach(ctx, who, want.Keep, &done, k.Key); err != nil {
		return Purged{}, err
	}
	if want.Dry {
		return done, nil
	}
	k.Before = done.Before
	_, err := o.apply(ctx, who, k)
	return done, err
}

// reach counts the runs to purge, last ended first, and moves Before to where the runs to keep begin.
func (o *Ops) reach(ctx context.Context, who Who, keep int, done *Purged, key jobs.Key) error {
	stay := 0
	q := metastore.RunQuery{Job: key, To: done.Before, Limit: metastore.MaxPage}
	for {
		page, err := o.Runs(ctx, who, q)
		if err != nil {
			return err
		}
		for _, run := range page.Runs {
			switch {
			case !run.State.Final():
			case stay < keep:
				stay++
				if run.Ended.Before(done.Before) {
					done.Before = run.Ended
				}
			case run.Ended.Before(done.Before):
				done.Runs++
			}
		}
		q.Cursor = page.Next
		if page.Next == "" {
			return nil
		}
		if done.Runs >= mostPurged {
			done.More = true
			return nil
		}
	}
}
