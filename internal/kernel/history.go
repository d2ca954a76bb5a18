package kernel

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Version is the settings of a job up to a change.
type Version struct {
	Revision uint64 // the job's revision with these settings
	App      string
	Number   int // Definition.Version
	Code     Settings
	Edits    Settings
	Until    time.Time // when it was changed
	Verb     Verb      // of the command that changed it
	By       string    // the actor of that command
	Reason   string
}

// History is the earlier settings and schedules of a job, oldest first. The current ones are in its Definition, so a job
// that was never changed has no history.
type History struct {
	Tenant   jobs.Tenant
	Job      jobs.ID
	Versions []Version
	// Schedules are those that the job had before the current one, oldest first, at most MaxSchedules. The due times of
	// each follow its SetAt, and the Until of the one before it, and go up to its own Until.
	Schedules []Earlier
}

// MaxSchedules is how many earlier schedules of a job are kept.
const MaxSchedules = 100

// The limits of a job's history: the newest versions, within both. Edits are rare, and older ones are in the audit.
const (
	MaxVersions     = 50
	maxHistoryBytes = 256 << 10
)

// And returns the history with one more version; the oldest are dropped beyond the limits.
func (h *History) And(v Version) *History {
	next := *h
	next.Versions = append(slices.Clip(h.Versions), v)
	size := 0
	var buf []byte
	for i := len(next.Versions) - 1; i >= 0; i-- {
		v := &next.Versions[i]
		buf = AppendSettings(AppendSettings(buf[:0], &v.Code), &v.Edits)
		size += len(buf)
		if kept := len(next.Versions) - i; kept > MaxVersions || kept > 1 && size > maxHistoryBytes {
			next.Versions = next.Versions[i+1:]
			break
		}
	}
	return &next
}

// Ref returns the reference of the history.
func (h *History) Ref() Ref { return HistoryRef(h.Tenant, h.Job) }

// HistoryRef returns the reference of a job's history.
func HistoryRef(t jobs.Tenant, job jobs.ID) Ref { return Ref{Kind: RowHistory, Tenant: t, ID: job} }

func wireHistory(c *coder, h *History) {
	text(c, &h.Tenant)
	c.id(&h.Job)
	list(c, &h.Versions, 10, wireVersion)
	list(c, &h.Schedules, 8, wireEarlier)
}

func wireVersion(c *coder, v *Version) {
	number(c, &v.Revision)
	text(c, &v.App)
	signed(c, &v.Number)
	c.row(func(c *coder) { wireSettings(c, &v.Code) })
	c.row(func(c *coder) { wireSettings(c, &v.Edits) })
	c.time(&v.Until)
	number(c, &v.Verb)
	text(c, &v.By)
	text(c, &v.Reason)
}
