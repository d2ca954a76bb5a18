// Package ledgerfile writes signed ledgers, which prove that each due time of some jobs had a run or a reason, and
// verifies them offline. It is not promised.
//
// Where to start: [Writer] and [Verify]. docs/ledger.md describes the form.
package ledgerfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// Form is the version of the file.
const Form = 1

// signedForm precedes what the footer signs.
const signedForm = "carillon ledger 1\n"

// Header is the first line: what the file claims to prove, and all that is needed to compute due times again.
type Header struct {
	V         int         `json:"v"`
	Tenant    jobs.Tenant `json:"tenant"`
	From      time.Time   `json:"from"` // due times from here on
	To        time.Time   `json:"to"`   // and before this
	At        time.Time   `json:"at"`   // time of the export
	Key       string      `json:"key"`  // public key, hexadecimal
	Calendars []Calendar  `json:"calendars,omitempty"`
	Jobs      []Job       `json:"jobs"`
}

// Calendar is a calendar with the rules that it had before.
type Calendar struct {
	Name    string   `json:"name"`
	Zone    string   `json:"zone,omitempty"`
	Rules   []string `json:"rules"`
	Earlier []Rules  `json:"earlier,omitempty"`
}

// Rules are the rules of a calendar up to an edit.
type Rules struct {
	Zone  string    `json:"zone,omitempty"`
	Rules []string  `json:"rules"`
	Until time.Time `json:"until"`
}

// Job is a job of the file.
type Job struct {
	Key jobs.Key `json:"key"`
	UID jobs.ID  `json:"uid"`
	// Decided is the time up to which the scheduler had decided all due times.
	Decided time.Time `json:"decided"`
	// Complete is the time from which no run was purged by the job's retention: before it, a due time may have no record.
	Complete  time.Time  `json:"complete"`
	Schedules []Schedule `json:"schedules"` // oldest first
}

// Schedule is a schedule of a job, with the time after which its due times count, and up to which.
type Schedule struct {
	After     time.Time  `json:"after"`
	Until     *time.Time `json:"until,omitempty"` // nil: it is current
	Schedule  string     `json:"schedule"`
	Zone      string     `json:"zone,omitempty"`
	Anchor    time.Time  `json:"anchor"`            // what an interval without a start counts from
	TTLFrom   *time.Time `json:"ttlFrom,omitempty"` // what ttl counts from, unless start is later
	Start     *time.Time `json:"start,omitempty"`
	End       *time.Time `json:"end,omitempty"`
	First     *time.Time `json:"first,omitempty"`
	TTL       string     `json:"ttl,omitempty"`
	Gap       jobs.Gap   `json:"gap,omitempty"`
	Twice     jobs.Twice `json:"twice,omitempty"`
	Calendars []string   `json:"calendars,omitempty"`
}

// Record is the record of one due time, or of a range of due times without a run.
type Record struct {
	Job jobs.Key   `json:"job"`
	Due *time.Time `json:"due,omitempty"`
	// Of a run:
	Run      *jobs.ID      `json:"run,omitempty"`
	Origin   kernel.Origin `json:"origin,omitempty"`
	State    string        `json:"state,omitempty"`
	Created  *time.Time    `json:"created,omitempty"`
	Started  *time.Time    `json:"started,omitempty"`
	Ended    *time.Time    `json:"ended,omitempty"`
	Attempts uint32        `json:"attempts,omitempty"`
	// Of a range:
	From   *time.Time    `json:"from,omitempty"`
	To     *time.Time    `json:"to,omitempty"`
	Count  uint64        `json:"count,omitempty"`
	Reason kernel.Reason `json:"reason,omitempty"`

	Prev string `json:"prev"` // SHA-256 of the line before, hexadecimal
}

// footer is the last line.
type footer struct {
	Records   uint64 `json:"records"`
	Prev      string `json:"prev"`
	Signature string `json:"signature"` // of signedForm and Prev
}

// First returns the first due time of a record, or zero.
func (r *Record) First() time.Time {
	switch {
	case r.Due != nil:
		return *r.Due
	case r.From != nil:
		return *r.From
	}
	return time.Time{}
}

// last returns the last due time of a record, or zero.
func (r *Record) last() time.Time {
	if r.Due == nil && r.To != nil {
		return *r.To
	}
	return r.First()
}

// optional is a time, or nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// RunRecord returns the record of a run.
func RunRecord(run *kernel.Run) Record {
	return Record{Job: run.Key, Due: optional(run.Due), Run: &run.ID, Origin: run.Origin, State: run.State.String(), Created: optional(run.Created),
		Started: optional(run.Started), Ended: optional(run.Ended), Attempts: run.Attempt}
}

// MissedRecord returns the record of a range without runs.
func MissedRecord(m *kernel.Missed) Record {
	return Record{Job: m.Key, From: optional(m.From), To: optional(m.To), Count: m.Count, Reason: m.Reason}
}

// ScheduleOf returns a schedule of a header.
func ScheduleOf(e *kernel.Earlier, after time.Time) Schedule {
	s := Schedule{After: after.UTC(), Until: optional(e.Until), Schedule: e.Schedule, Zone: e.Zone, Anchor: e.Anchor.UTC(), Start: optional(e.Start),
		End: optional(e.End), First: optional(e.First), Gap: e.Gap, Twice: e.Twice, Calendars: e.Calendars}
	if e.TTL > 0 {
		s.TTL, s.TTLFrom = e.TTL.String(), optional(e.TTLFrom)
	}
	return s
}

// CalendarOf returns a calendar of a header.
func CalendarOf(c *kernel.Calendar) Calendar {
	out := Calendar{Name: c.Name, Zone: c.Zone, Rules: c.Rules}
	for _, e := range c.Earlier {
		out.Earlier = append(out.Earlier, Rules{e.Zone, e.Rules, e.Until.UTC()})
	}
	return out
}

// compiled returns a schedule that computes due times.
func (s *Schedule) compiled(tenant jobs.Tenant, key jobs.Key) (*schedule.Schedule, error) {
	d := kernel.Definition{Tenant: tenant, Key: key, Anchor: s.Anchor, Policy: kernel.Policy{Schedule: s.Schedule, Zone: s.Zone, Gap: s.Gap, Twice: s.Twice}}
	for _, t := range []struct {
		from *time.Time
		to   *time.Time
	}{{s.Start, &d.Policy.Start}, {s.End, &d.Policy.End}, {s.First, &d.Policy.First}, {s.TTLFrom, &d.TTLFrom}} {
		if t.from != nil {
			*t.to = *t.from
		}
	}
	if s.TTL != "" {
		var err error
		if d.Policy.TTL, err = time.ParseDuration(s.TTL); err != nil {
			return nil, fmt.Errorf("invalid ttl %.40q", s.TTL)
		}
	}
	return timetable.Schedule(&d)
}

// compiled returns the calendars of a header.
func (h *Header) compiled() *schedule.Calendars {
	rows := make([]*kernel.Calendar, len(h.Calendars))
	for i, c := range h.Calendars {
		rows[i] = &kernel.Calendar{Name: c.Name, Zone: c.Zone, Rules: c.Rules}
		for _, e := range c.Earlier {
			rows[i].Earlier = append(rows[i].Earlier, kernel.CalendarRules{Zone: e.Zone, Rules: e.Rules, Until: e.Until})
		}
	}
	return timetable.Calendars(0, rows)
}

// Due calls fn with the due times of the job after one time and up to another, until it returns false. It returns an
// error for a schedule that cannot be read.
func (j *Job) Due(tenant jobs.Tenant, after, until time.Time, fn func(time.Time) bool) error {
	for i := range j.Schedules {
		s := &j.Schedules[i]
		compiled, err := s.compiled(tenant, j.Key)
		if err != nil {
			return fmt.Errorf("job %s: schedule %.60q: %w", j.Key, s.Schedule, err)
		}
		if compiled == nil {
			continue
		}
		begin, end := s.After, until
		if begin.Before(after) {
			begin = after
		}
		if s.Until != nil && s.Until.Before(end) {
			end = *s.Until
		}
		for due, ok := compiled.Next(begin); ok && !due.After(end); due, ok = compiled.Next(due) {
			if !fn(due) {
				return nil
			}
		}
	}
	return nil
}

// Writer writes a signed ledger.
type Writer struct {
	to      io.Writer
	key     ed25519.PrivateKey
	prev    string
	records uint64
}

// NewWriter begins a ledger with its header, whose V and Key it sets.
func NewWriter(to io.Writer, key ed25519.PrivateKey, h Header) (*Writer, error) {
	w := &Writer{to: to, key: key}
	h.V, h.Key = Form, PublicKey(key)
	if h.Jobs == nil {
		h.Jobs = []Job{}
	}
	return w, w.line(h)
}

// PublicKey returns the public key as users see it.
func PublicKey(key ed25519.PrivateKey) string {
	return hex.EncodeToString(key.Public().(ed25519.PublicKey))
}

func (w *Writer) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.prev = hashOf(b)
	_, err = w.to.Write(append(b, '\n'))
	return err
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))
	return hex.EncodeToString(sum[:])
}

// Write adds a record.
func (w *Writer) Write(r Record) error {
	r.Prev = w.prev
	w.records++
	return w.line(r)
}

// Close signs the ledger. Without its footer it does not verify.
func (w *Writer) Close() error {
	return w.line(footer{w.records, w.prev, hex.EncodeToString(ed25519.Sign(w.key, []byte(signedForm+w.prev)))})
}
