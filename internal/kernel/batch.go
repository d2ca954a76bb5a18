package kernel

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A batch is runs that are requested together, of any jobs: once it is closed and all of them are final, a run of
// another job begins. The commit that ends the last run begins it, under an ID derived from the batch's, so it is neither
// lost nor begun twice.

// The limits of batches.
const (
	MaxBatchArgs = 64 << 10 // bytes
	MaxBatchName = 200
	// BatchOpen is how long a batch stays open after the last run was added to it. Then the scheduler closes it: its
	// program must have stopped.
	BatchOpen = 24 * time.Hour
	// KeepBatch is how long a batch that has ended can be read.
	KeepBatch = 7 * 24 * time.Hour
	// maxFailures is how many failed runs a batch names.
	maxFailures = 20
)

// Batch is the row of a batch.
type Batch struct {
	Tenant jobs.Tenant
	ID     jobs.ID
	Name   string
	Then   jobs.Key // the job that runs when all have ended
	Args   []byte   // its arguments; nil = its defaults
	Actor  string   // who opened it
	Opened time.Time
	Until  time.Time // open: when the scheduler closes it. Ended: when the row is deleted
	Closed time.Time // zero = it is open
	Late   bool      // the scheduler closed it
	Ended  time.Time // zero = runs are not final, or it is open
	Run    jobs.ID   // that began at the end; zero = none yet, or the job was gone

	Total      uint64 // runs
	Succeeded  uint64
	Terminated uint64
	Cancelled  uint64
	Skipped    uint64
	Failures   []Ended // the first runs that did not succeed
}

// Live is how many runs are not final.
func (b *Batch) Live() uint64 {
	return b.Total - b.Succeeded - b.Terminated - b.Cancelled - b.Skipped
}

// Count counts a final run.
func (b *Batch) Count(run *Run) {
	switch run.State {
	case jobs.Succeeded:
		b.Succeeded++
		return
	case jobs.Terminated:
		b.Terminated++
	case jobs.Cancelled:
		b.Cancelled++
	default:
		b.Skipped++
	}
	if len(b.Failures) < maxFailures {
		b.Failures = append(b.Failures[:len(b.Failures):len(b.Failures)], Ended{Job: run.Key, Run: run.ID, State: run.State, Cause: run.Cause})
	}
}

// RunID returns the ID of the run that begins at the end. A batch of the same name may be opened again, once this one is
// deleted: its run is another.
func (b *Batch) RunID() jobs.ID {
	return DerivedID("batch", string(b.Tenant), string(b.ID[:]), b.Opened.UTC().Format(time.RFC3339Nano))
}

// BatchID returns the ID of a batch with a name.
func BatchID(t jobs.Tenant, name string) jobs.ID { return DerivedID("batch name", string(t), name) }

// TimerName is the name of the unique key that expires with the batch.
func (b *Batch) TimerName() string { return batchTimer + b.ID.String() }

const batchTimer = "batch/"

// TimedBatch returns the batch whose timer has a name.
func TimedBatch(t jobs.Tenant, timer string) (Ref, bool) {
	text, ok := strings.CutPrefix(timer, batchTimer)
	id, err := jobs.ParseID(text)
	return BatchRef(t, id), ok && err == nil
}

// BatchRef returns the reference of a batch.
func BatchRef(t jobs.Tenant, id jobs.ID) Ref { return Ref{Kind: RowBatch, Tenant: t, ID: id} }

// Ref returns the reference of the batch.
func (b *Batch) Ref() Ref { return BatchRef(b.Tenant, b.ID) }

// View is the batch as programs and arguments have it.
func (b *Batch) View() jobs.BatchSummary {
	v := jobs.BatchSummary{ID: b.ID, Name: b.Name, Total: int(b.Total), Succeeded: int(b.Succeeded), Terminated: int(b.Terminated), Cancelled: int(b.Cancelled), Skipped: int(b.Skipped), Abandoned: b.Late,
		Closed: b.Closed, Ended: b.Ended, Run: b.Run}
	for _, f := range b.Failures {
		v.Failures = append(v.Failures, jobs.ParentRun{Run: f.Run, Job: f.Job, State: f.State, Cause: string(f.Cause)})
	}
	return v
}

// OpenBatch opens a batch. Opening it again changes nothing, also if it has ended.
type OpenBatch struct {
	ID   jobs.ID
	Name string
	Then jobs.Key
	Args []byte
}

// CloseBatch closes a batch: its end no longer waits for more runs. Closing it again changes nothing.
type CloseBatch struct{ ID jobs.ID }

// Verb returns the verb of each command.
func (OpenBatch) Verb() Verb  { return VerbOpenBatch }
func (CloseBatch) Verb() Verb { return VerbCloseBatch }

// Check validates the batch.
func (c OpenBatch) Check() error {
	switch {
	case c.ID.IsZero():
		return Invalid("a batch without an ID: make one with jobs.NewID")
	case len(c.Name) > MaxBatchName:
		return Invalid("name of a batch: %d bytes, at most %d are allowed", len(c.Name), MaxBatchName)
	}
	if err := c.Then.Check(); err != nil {
		return err
	}
	if SystemKey(c.Then) {
		return Refuse(jobs.Forbidden, "runs of %s are started by the scheduler only", c.Then)
	}
	if len(c.Args) > MaxBatchArgs {
		return Invalid("arguments of the end of a batch: %d bytes, at most %d are allowed", len(c.Args), MaxBatchArgs)
	}
	return CheckArgs(c.Args)
}

// Check validates the batch.
func (c CloseBatch) Check() error {
	if c.ID.IsZero() {
		return Invalid("a batch without an ID")
	}
	return nil
}

func wireOpenBatch(c *coder, k *OpenBatch) {
	c.id(&k.ID)
	text(c, &k.Name)
	text(c, &k.Then)
	bytesOf(c, &k.Args)
}

func wireBatch(c *coder, b *Batch) {
	text(c, &b.Tenant)
	c.id(&b.ID)
	text(c, &b.Name)
	text(c, &b.Then)
	bytesOf(c, &b.Args)
	text(c, &b.Actor)
	c.time(&b.Opened)
	c.time(&b.Until)
	c.time(&b.Closed)
	c.bool(&b.Late)
	c.time(&b.Ended)
	c.id(&b.Run)
	for _, n := range []*uint64{&b.Total, &b.Succeeded, &b.Terminated, &b.Cancelled, &b.Skipped} {
		number(c, n)
	}
	list(c, &b.Failures, 4, wireEnded)
}

// WithBatch adds a batch to default arguments.
func WithBatch(args []byte, b *Batch) []byte {
	with := map[string]json.RawMessage{}
	if len(args) > 0 && json.Unmarshal(args, &with) != nil {
		return args // they were checked when they were written
	}
	raw, err := json.Marshal(b.View())
	if err != nil {
		return args
	}
	with["batch"] = raw
	if all, err := json.Marshal(with); err == nil && len(all) <= MaxArgs {
		return all
	}
	return args
}
