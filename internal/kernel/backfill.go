package kernel

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What a backfill may hold at most. A larger one is several commands.
const (
	MaxBackfill  = 1000 // due times of a command
	MaxParallel  = 1000 // runs of a backfill that may be under way at once
	backfillGate = "backfill/"
)

// BackfillDue is a due time of which a run is wanted.
type BackfillDue struct {
	At     time.Time
	Replay bool // another run, beside the one that the due time has
}

// Backfill makes runs of due times that have passed, because somebody wants them: of such as had none, or of all once
// more. A due time's first run has the ID that its fire would have given it, a replayed one has an ID that follows from
// the backfill, so that asking twice makes nothing twice. The runs wait for each other at a gate of their own, and for
// others at those of their job; none of them is skipped for want of a slot.
type Backfill struct {
	ID       jobs.ID  // names it, and is the parent of its runs
	Key      jobs.Key //
	Job      jobs.ID  // uid; refused as Stale if another job is under the key
	Due      []BackfillDue
	Parallel int  // so many of its runs may be under way at once
	Priority *int // instead of the job's
	// Take are ranges of the ledger in which the due times lie, as they are, and Give is what is left of them. It is
	// refused as Stale if the ledger has changed.
	Take, Give []Missed
}

// Verb of the command.
func (Backfill) Verb() Verb { return VerbBackfill }

// Check says what is wrong with the backfill.
func (c Backfill) Check() error {
	if c.ID.IsZero() || c.Job.IsZero() {
		return Invalid("backfill of %s: it needs an id, and the uid of its job", c.Key)
	}
	if len(c.Due) == 0 || len(c.Due) > MaxBackfill {
		return Invalid("backfill of %s: %d due times, it must be between 1 and %d", c.Key, len(c.Due), MaxBackfill)
	}
	if c.Parallel < 1 || c.Parallel > MaxParallel {
		return Invalid("backfill of %s: parallel is %d, it must be between 1 and %d", c.Key, c.Parallel, MaxParallel)
	}
	last := time.Time{}
	for _, due := range c.Due {
		if err := checkTime("due time", due.At); err != nil {
			return err
		}
		if !due.At.After(last) {
			return Invalid("backfill of %s: due time %v is out of order", c.Key, due.At)
		}
		last = due.At
	}
	if err := within("priority", c.Priority, -MaxPriority, MaxPriority); err != nil {
		return err
	}
	if err := c.checkLedger(); err != nil {
		return err
	}
	return c.Key.Check()
}

// checkLedger holds what is given to what is taken: no due time is made up, and none changes its reason.
func (c *Backfill) checkLedger() error {
	if len(c.Take) > MaxBackfill || len(c.Give) > 2*MaxBackfill {
		return Invalid("backfill of %s: %d ranges are taken and %d given, at most %d and %d are allowed", c.Key, len(c.Take), len(c.Give), MaxBackfill, 2*MaxBackfill)
	}
	given, last := 0, time.Time{}
	for i, m := range c.Take {
		if !m.From.After(last) || m.To.Before(m.From) {
			return Invalid("backfill of %s: the range from %v to %v is out of order", c.Key, m.From, m.To)
		}
		left := m.Count
		for ; given < len(c.Give) && !c.Give[given].From.After(m.To); given++ {
			g := c.Give[given]
			if !g.From.After(last) || g.From.Before(m.From) || g.To.Before(g.From) || g.To.After(m.To) || g.Reason != m.Reason || g.Count == 0 || g.Count > left {
				return Invalid("backfill of %s: the range from %v to %v of %d is no part of what is taken", c.Key, g.From, g.To, g.Count)
			}
			left, last = left-g.Count, g.To
		}
		last = c.Take[i].To
	}
	if given < len(c.Give) {
		return Invalid("backfill of %s: the range from %v is no part of what is taken", c.Key, c.Give[given].From)
	}
	return nil
}

// Run is the ID of the run of one of the due times.
func (c *Backfill) Run(t jobs.Tenant, due BackfillDue) jobs.ID {
	if !due.Replay {
		return DueID(t, c.Job, due.At, 0, 0)
	}
	return DerivedID("backfill", string(t), string(c.Job[:]), string(c.ID[:]), strconv.FormatInt(due.At.UnixNano(), 10))
}

// BackfillGate is the name of the gate at which the runs of a backfill wait for each other: at most so many of them are
// under way at once.
func BackfillGate(id jobs.ID, parallel int) string {
	return fmt.Sprintf("%s%s/%d", backfillGate, id, parallel)
}

// BackfillOf is how many runs of a backfill may be under way at once, by the name of its gate.
func BackfillOf(gate string) (parallel int, ok bool) {
	rest, ok := strings.CutPrefix(gate, backfillGate)
	if !ok {
		return 0, false
	}
	_, n, _ := strings.Cut(rest, "/")
	parallel, err := strconv.Atoi(n)
	return parallel, err == nil
}

func wireBackfill(c *coder, k *Backfill) {
	c.id(&k.ID)
	text(c, &k.Key)
	c.id(&k.Job)
	list(c, &k.Due, 2, func(c *coder, d *BackfillDue) { c.time(&d.At); c.bool(&d.Replay) })
	signed(c, &k.Parallel)
	some(c, &k.Priority, signed)
	list(c, &k.Take, 8, wireMissed)
	list(c, &k.Give, 8, wireMissed)
}
