package kernel

import (
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// System jobs belong to the scheduler. Their keys begin with "carillon.", and only Notify starts runs of them, so that
// Apply has set the arguments that their handlers read.

const systemJobs = "carillon."

// SystemKey reports whether the key is that of a system job.
func SystemKey(k jobs.Key) bool { return strings.HasPrefix(string(k), systemJobs) }

// NotifyKey returns the key of the system job that delivers the notifications of HTTP jobs of an app.
func NotifyKey(app string) jobs.Key { return jobs.Key(systemJobs + "notify." + app) }

// MaxNotify limits the body of a notification, in bytes.
const MaxNotify = MaxArgs - 1024

// Notify starts a notification: a run of NotifyKey that reports about a run. The worker of the current attempt of that
// run, or of the last one, sends it.
type Notify struct {
	Run     jobs.ID // the reported run
	App     string  // the app of that run
	Worker  string
	Attempt uint32
	N       uint32 // numbers the notifications of the attempt: repeating one starts no second run
	Body    []byte // JSON object
}

// Key returns the job whose run delivers the notification.
func (c Notify) Key() jobs.Key { return NotifyKey(c.App) }

// ID returns the ID of the run that delivers the notification.
func (c Notify) ID(tenant jobs.Tenant) jobs.ID {
	return DerivedID("notify", string(tenant), string(c.Run[:]), strconv.FormatUint(uint64(c.Attempt), 10), strconv.FormatUint(uint64(c.N), 10))
}

// Args returns the arguments of that run: the body, and fields that the sender cannot choose. of is the reported run.
func (c Notify) Args(of *Run) []byte {
	b := make([]byte, 0, len(c.Body)+len(of.Key)+128)
	b = append(b, `{"run":"`+of.ID.String()+`","job":"`+string(of.Key)+`","execution":`...)
	b = strconv.AppendUint(b, uint64(of.Execution), 10)
	b = append(b, `,"body":`...)
	return append(append(b, c.Body...), '}')
}

// Verb returns the verb of the command.
func (Notify) Verb() Verb { return VerbNotify }

// Check validates the notification.
func (c Notify) Check() error {
	if err := checkRun(c.Run, c.Worker, c.Attempt); err != nil {
		return err
	}
	if err := c.Key().Check(); err != nil {
		return err
	}
	if len(c.Body) == 0 || len(c.Body) > MaxNotify {
		return Invalid("notification about run %s has %d bytes: want 2 to %d", c.Run, len(c.Body), MaxNotify)
	}
	return CheckArgs(c.Body)
}

func wireNotify(c *coder, k *Notify) {
	c.id(&k.Run)
	word(c, &k.App)
	word(c, &k.Worker)
	number(c, &k.Attempt)
	number(c, &k.N)
	bytesOf(c, &k.Body)
}

// checkSystem returns why a job may not be registered under the key of a system job, or nil. A worker may serve those
// of its own app.
func (c Register) checkSystem() error {
	if !SystemKey(c.Job.Key) || c.Job.Key == NotifyKey(c.App) && c.Job.Kind == Triggered && c.Worker != NoWorker {
		return nil
	}
	return Invalid("job key %q: keys that begin with %q belong to the scheduler: choose another key", c.Job.Key, systemJobs)
}

// checkSystem returns why a run of a system job may not be created, or nil. One that was started may be run again.
func (c Create) checkSystem() error {
	if SystemKey(c.Key) && c.Origin != FromRetry {
		return Refuse(jobs.Forbidden, "runs of %s are started by the scheduler only", c.Key)
	}
	return nil
}
