package kernel

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The limits of a backfill command. A larger backfill is several commands.
const (
	MaxBackfill  = 1000 // due times of a command
	MaxParallel  = 1000 // max parallel runs of a backfill
	backfillGate = "backfill/"
)

// BackfillDue is a due time to create a run for.
type BackfillDue struct {
	At     time.Time
	Replay bool // create another run although the due time has one
}

// Backfill creates runs for past due times: for those that had none, or for all again. The first run of a due time has
// the ID that its fire would have used, a replayed one an ID derived from the backfill, so that a repeated command
// creates nothing twice. The runs wait at a gate of their own, and at those of their job; none is skipped because no
// slot is free.
type Backfill struct {
	ID       jobs.ID  // identifies the backfill, and is the parent of its runs
	Key      jobs.Key //
	Job      jobs.ID  // uid; refused as Stale if another job is under the key
	Due      []BackfillDue
	Parallel int  // max parallel runs
	Priority *int // instead of the job's
	// Take are ranges of the ledger that contain the due times, and Give is what is left of them. Refused as Stale if
	// the ledger has changed.
	Take, Give []Missed
}

// Verb returns the verb of the command.
func (Backfill) Verb() Verb { return VerbBackfill }

// Check validates the backfill.
func (c Backfill) Check() error {
	if c.ID.IsZero() || c.Job.IsZero() {
		return Invalid("backfill of %s: id and the uid of its job are required", c.Key)
	}
	if len(c.Due) == 0 || len(c.Due) > MaxBackfill {
		return Invalid("backfill of %s: invalid number of due times %d: want 1 to %d", c.Key, len(c.Due), MaxBackfill)
	}
	if c.Parallel < 1 || c.Parallel > MaxParallel {
		return Invalid("backfill of %s: invalid parallel %d: want 1 to %d", c.Key, c.Parallel, MaxParallel)
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

// checkLedger compares Give with Take: no due time is added, and none changes its reason.
func (c *Backfill) checkLedger() error {
	if len(c.Take) > MaxBackfill || len(c.Give) > 2*MaxBackfill {
		return Invalid("backfill of %s: it takes %d ranges and gives %d: at most %d and %d are allowed", c.Key, len(c.Take), len(c.Give), MaxBackfill, 2*MaxBackfill)
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
				return Invalid("backfill of %s: the range from %v to %v of %d is not part of the ranges taken", c.Key, g.From, g.To, g.Count)
			}
			left, last = left-g.Count, g.To
		}
		last = c.Take[i].To
	}
	if given < len(c.Give) {
		return Invalid("backfill of %s: the range from %v is not part of the ranges taken", c.Key, c.Give[given].From)
	}
	return nil
}

// Run returns the ID of the run of a due time.
func (c *Backfill) Run(t jobs.Tenant, due BackfillDue) jobs.ID {
	if !due.Replay {
		return DueID(t, c.Job, due.At, 0, 0)
	}
	return DerivedID("backfill", string(t), string(c.Job[:]), string(c.ID[:]), strconv.FormatInt(due.At.UnixNano(), 10))
}

// BackfillGate returns the name of the gate that limits the parallel runs of a backfill.
func BackfillGate(id jobs.ID, parallel int) string {
	return fmt.Sprintf("%s%s/%d", backfillGate, id, parallel)
}

// BackfillOf returns the max parallel runs of a backfill, from the name of its gate.
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
