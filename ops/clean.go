package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Cleaning is what the process that answers knows of clearing runs away that are over.
type Cleaning struct {
	Looked time.Time     // when the last pass ended well; zero = none has here
	Took   time.Duration // what that took
	Bytes  int64         // that runs took after it, about
	At     time.Time     // when runs were cleared away last; zero = none were
	Runs   int           // so many, then
	Total  uint64        // since the process began
	Most   int64         // bytes they may take; 0 = any number
	Counts time.Duration // how long counts by the hour are kept
}

// Cleaning is what is known of clearing runs away.
func (o *Ops) Cleaning() Cleaning {
	if o.cleaning == nil {
		return Cleaning{}
	}
	return o.cleaning()
}

// Clean is a wish to clear runs away that are over.
type Clean struct {
	Key    jobs.Key  // "" = of all jobs
	Before time.Time // that ended before; zero = now
	Keep   int       // but so many of the job, the newest; 0 = none
	Dry    bool      // only say what would go
}

// Cleaned says what a wish comes to.
type Cleaned struct {
	Before time.Time // what ended before goes
	Runs   int       // so many, as far as they were counted
	More   bool      // they were not all counted
}

// Runs are counted so far for an answer, and so many may be kept by number.
const (
	mostCleaned = 10_000
	mostKept    = 10_000
)

// Clean clears runs away that are over. The store notes it; they go a moment later, with their logs and results. Counts
// by the hour stay.
func (o *Ops) Clean(ctx context.Context, who Who, want Clean) (Cleaned, error) {
	if want.Keep < 0 || want.Keep > mostKept {
		return Cleaned{}, kernel.Invalid("keep is %d, it must be between 0 and %d", want.Keep, mostKept)
	}
	if want.Keep > 0 && want.Key == "" {
		return Cleaned{}, kernel.Invalid("keep says how many runs of a job are to stay: say of which job")
	}
	now := o.Now()
	done := Cleaned{Before: kernel.Instant(want.Before)}
	if want.Before.IsZero() || done.Before.After(now) {
		done.Before = now
	}
	k := kernel.Clean{Key: want.Key, Before: done.Before}
	if err := k.Check(); err != nil {
		return Cleaned{}, err
	}
	if err := o.reach(ctx, who, want.Keep, &done, k.Key); err != nil {
		return Cleaned{}, err
	}
	if want.Dry {
		return done, nil
	}
	k.Before = done.Before
	_, err := o.apply(ctx, who, k)
	return done, err
}

// reach counts what would go, last ended first, and moves Before to where the runs that stay begin.
func (o *Ops) reach(ctx context.Context, who Who, keep int, done *Cleaned, key jobs.Key) error {
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
		if done.Runs >= mostCleaned {
			done.More = true
			return nil
		}
	}
}
