package kernel

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Audit is an entry of the audit. It is written in the commit of the change itself, so that neither exists without the
// other, and has the hash of the one before it, so that a changed or removed one is found. It never contains
// arguments, results or secrets.
type Audit struct {
	Tenant jobs.Tenant
	N      uint64 // numbers the tenant's audits from 1
	At     time.Time
	Actor  string // who
	Reason string // why, in the actor's text
	Verb   string // the command's name
	Target string // to what: "job billing.charge", "run <id> of billing.charge", "settings", "token <id> (<name>)"
	Before []byte // JSON object of the changed fields before; nil if there are none
	After  []byte // the changed fields after
	From   string // address or addresses from which a request came; "" if it is not recorded
	Prev   []byte // hash of the audit before it, of 32 bytes; nil for the first
	Hash   []byte // its own: Sum
}

// auditForm begins what Sum hashes: a change of the form changes it.
const auditForm = "carillon audit 1\n"

// Sum returns the SHA-256 of the audit: of auditForm, then of each field with its length before it, as eight bytes, big
// endian. The fields are tenant, number (decimal), time (RFC 3339 with nanoseconds, UTC), actor, reason, verb, target,
// before, after, address and the hash of the audit before it. It does not depend on the wire format, so that exported
// lines can be verified by other programs.
func (a *Audit) Sum() []byte {
	h := sha256.New()
	h.Write([]byte(auditForm))
	for _, text := range []string{string(a.Tenant), strconv.FormatUint(a.N, 10), a.At.UTC().Format(time.RFC3339Nano),
		a.Actor, a.Reason, a.Verb, a.Target} {
		sumField(h, []byte(text))
	}
	for _, b := range [][]byte{a.Before, a.After, []byte(a.From), a.Prev} {
		sumField(h, b)
	}
	return h.Sum(nil)
}

func sumField(h hash.Hash, b []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(b)))
	h.Write(size[:])
	h.Write(b)
}

// MaxAudits is how many audits of a tenant are kept: the newest. Audits that a sink has not received yet are kept, too,
// up to MaxAuditsWaiting in all.
const (
	MaxAudits        = 10_000
	MaxAuditsWaiting = 20_000
)

// KeepHistory is how long tallies, missed ranges and the rest of deleted jobs and ended tokens are kept: five whole
// weeks, so that any month can be shown, and each day beside the same weekday of the four weeks before it.
const KeepHistory = 35 * 24 * time.Hour

// PersonPrefix begins the actor of a person.
const PersonPrefix = "person:"

// IsPerson reports whether an actor is a person, by whatever interface.
func IsPerson(actor string) bool { return strings.HasPrefix(actor, PersonPrefix) }

// Delete deletes a definition. Live runs keep their terms and finish; its ledger and its counts stay for KeepHistory.
// Running workers that serve it do not register it again, but one that starts does, as a new job under the same key.
// Deleting it again changes nothing.
type Delete struct {
	Key        jobs.Key
	IfRevision uint64 // refused as Stale if the job has another; 0 = any
	// Bundle prunes: refused as Conflict if the job is not in this bundle, or a worker has registered it.
	Bundle string
}

// PurgeAudit purges old rows: tallies of days and missed ranges that are older than Before (and at least KeepHistory
// old), the rest of deleted jobs and ended tokens of that age, and expired sessions. Tallies of hours that ended
// KeepHours ago are added to those of their days. Younger or missing rows are left alone.
type PurgeAudit struct {
	Refs   []Ref
	Before time.Time
}

// MaxTrim is the most rows of a Trim.
const MaxTrim = 1000

// Verb returns the verb of each command.
func (Delete) Verb() Verb     { return VerbDelete }
func (PurgeAudit) Verb() Verb { return VerbPurgeAudit }

// Check validates the key and the bundle.
func (c Delete) Check() error { return cmp.Or(c.Key.Check(), checkBundle(c.Bundle)) }

// Check validates the rows.
func (c PurgeAudit) Check() error {
	if len(c.Refs) > MaxTrim {
		return Invalid("purge of %d rows of the audit, at most %d are allowed", len(c.Refs), MaxTrim)
	}
	for _, r := range c.Refs {
		switch r.Kind {
		case RowTally, RowMissed, RowSession, RowToken, RowDefinition:
		default:
			return Invalid("%s are not purged with the audit", r.Kind)
		}
	}
	return checkTime("age of purged rows", c.Before)
}

// AuditRef returns the reference of an audit.
func AuditRef(t jobs.Tenant, n uint64) Ref { return Ref{Kind: RowAudit, Tenant: t, At: int64(n)} }

// Ref returns the reference of the audit.
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
	text(c, &a.From)
	bytesOf(c, &a.Prev)
	bytesOf(c, &a.Hash)
}

func wireRef(c *coder, r *Ref) {
	number(c, &r.Kind)
	number(c, &r.Span)
	text(c, &r.Tenant)
	text(c, &r.Name)
	c.id(&r.ID)
	c.int(&r.At)
}
