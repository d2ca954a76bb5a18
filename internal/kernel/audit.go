package kernel

import (
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Audit is a line of the record of who changed what. It is written in the commit of the change itself, so that there is
// none without the other. It never holds arguments, results or secrets.
type Audit struct {
	Tenant jobs.Tenant
	N      uint64 // counts the tenant's audits from 1
	At     time.Time
	Actor  string // who
	Reason string // why, in his words
	Verb   string // what he did: the command's name
	Target string // to what: "job billing.charge", "run <id> of billing.charge", "settings", "token <id> (<name>)"
	Before []byte // JSON object of what changed, as it was; nil if there is nothing to say
	After  []byte // and as it is now
}

// MaxAudits is how many audits of a tenant are kept: the newest.
const MaxAudits = 10_000

// KeepHistory is how long tallies, missed ranges and what is left of deleted jobs and ended tokens are kept: five whole
// weeks, so that any month can be shown, and each day beside the same weekday of the four weeks before it.
const KeepHistory = 35 * 24 * time.Hour

// IsPerson says that an actor is a person, whatever the way on which he came.
func IsPerson(actor string) bool { return strings.HasPrefix(actor, "person:") }

// Delete takes a definition away. Runs that are live keep their terms and end as they would have; its ledger and its
// counts stay for KeepHistory. Workers that go on serving it do not bring it back, but one that is started does, as a
// new job under the same key. To delete it again changes nothing.
type Delete struct {
	Key        jobs.Key
	IfRevision uint64 // refused as Stale if the job has another; 0 = whatever it has
}

// Trim drops rows that nobody asks for any more: tallies and missed ranges that are older than Before (and at least
// KeepHistory old), what is left of deleted jobs and ended tokens of that age, and sessions that are over. Rows that are
// younger than that, or gone, are left alone.
type Trim struct {
	Refs   []Ref
	Before time.Time
}

// MaxTrim is the most rows in a Trim.
const MaxTrim = 1000

// Verb of each command.
func (Delete) Verb() Verb { return VerbDelete }
func (Trim) Verb() Verb   { return VerbTrim }

// Check says what is wrong with the key.
func (c Delete) Check() error { return c.Key.Check() }

// Check says what is wrong with the rows.
func (c Trim) Check() error {
	if len(c.Refs) > MaxTrim {
		return Invalid("trim of %d rows, at most %d are allowed", len(c.Refs), MaxTrim)
	}
	for _, r := range c.Refs {
		switch r.Kind {
		case RowTally, RowMissed, RowSession, RowToken, RowDefinition:
		default:
			return Invalid("rows of kind %d are not trimmed", r.Kind)
		}
	}
	return checkTime("age of what is trimmed", c.Before)
}

// AuditRef points to an audit.
func AuditRef(t jobs.Tenant, n uint64) Ref { return Ref{Kind: RowAudit, Tenant: t, At: int64(n)} }

// Ref points to the audit.
func (a *Audit) Ref() Ref { return AuditRef(a.Tenant, a.N) }

func wireAudit(c *coder, a *Audit) {
	text(c, &a.Tenant)
	number(c, &a.N)
	c.time(&a.At)
	text(c, &a.Actor)
	text(c, &a.Reason)
	text(c, &a.Verb)
	text(c, &a.Target)
	bytesOf(c, &a.Before)
	bytesOf(c, &a.After)
}

func wireRef(c *coder, r *Ref) {
	number(c, &r.Kind)
	number(c, &r.State)
	text(c, &r.Tenant)
	text(c, &r.Name)
	c.id(&r.ID)
	c.int(&r.At)
}
