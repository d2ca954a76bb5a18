package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// CheckIn records a run that another scheduler has started and ended, such as cron on a host: a run of a triggered job
// that no worker of this one runs. Its end counts like any other: for alarms, jobs that follow, statistics. Repeated under
// the same ID within a minute, or the same idempotency key within IdempotencyLife, it changes nothing.
type CheckIn struct {
	ID     jobs.ID // of the run
	Key    jobs.Key
	Failed bool
	Error  string // why it failed
	Result []byte // JSON, or nil
	Took   time.Duration

	Idempotency string
}

// CheckInWorker is the worker of a run that checked in.
const CheckInWorker = "check-in"

const maxTook = 31 * 24 * time.Hour

// Verb returns the verb of the command.
func (CheckIn) Verb() Verb { return VerbCheckIn }

// Check validates the run.
func (c CheckIn) Check() error {
	if c.ID.IsZero() {
		return Invalid("a check-in of job %s without an ID of its run", c.Key)
	}
	if err := c.Key.Check(); err != nil {
		return err
	}
	if SystemKey(c.Key) {
		return Refuse(jobs.Forbidden, "runs of %s are started by the scheduler only", c.Key)
	}
	if err := checkIdempotency(c.Idempotency); err != nil {
		return err
	}
	switch {
	case len(c.Error) > MaxAlarmText:
		return Invalid("error of a check-in of job %s: %d bytes, at most %d of text are allowed", c.Key, len(c.Error), MaxAlarmText)
	case c.Error != "" && !c.Failed:
		return Invalid("a check-in of job %s has an error, but did not fail", c.Key)
	case c.Took < 0 || c.Took > maxTook:
		return Invalid("a check-in of job %s took %v: want 0 to %v", c.Key, c.Took, maxTook)
	}
	return CheckResult(c.Result)
}

// Digest returns a hash of the request without the run's ID: a repeated request has the same.
func (c CheckIn) Digest() jobs.ID {
	c.ID = jobs.ID{}
	w := coder{buf: []byte{byte(VerbCheckIn)}}
	wireCheckIn(&w, &c)
	return DerivedID(string(w.buf))
}

func wireCheckIn(c *coder, k *CheckIn) {
	c.id(&k.ID)
	text(c, &k.Key)
	c.bool(&k.Failed)
	text(c, &k.Error)
	bytesOf(c, &k.Result)
	signed(c, &k.Took)
	text(c, &k.Idempotency)
}
