package ledgerfile

import (
	"bufio"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// MaxProblems is how many problems a Report lists.
const MaxProblems = 1000

// maxLine is the longest line in bytes: the header has the schedules of all jobs.
const maxLine = 1 << 30

// Report is the result of a verification.
type Report struct {
	Header   Header
	Records  uint64
	Proven   uint64   // due times of the range that have a run or a reason
	Purged   uint64   // due times before Job.Complete without a record: retention may have purged their runs
	Extra    uint64   // runs of backfills beside: for due times of a later schedule, or that a range keeps
	Open     uint64   // due times of the range that were undecided when the ledger was exported
	Problems []string // due times without a record, records without a due time, and others; empty = it is proven
	More     int      // further problems
	// Unchecked are jobs whose due times cannot be computed again, with the reason.
	Unchecked []string
}

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) == MaxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// ErrSignature is returned for a file that another key signed, or none.
var ErrSignature = errors.New("wrong signature")

// Verify reads a ledger and checks its chain, its signature by a public key (hexadecimal), and each record against the
// due times of the schedules in the header. It returns an error, which names the line, if the file is not as it was
// written. Otherwise Report.Problems are those of the scheduler.
func Verify(in io.Reader, key string) (*Report, error) {
	public, err := hex.DecodeString(key)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, kernel.Invalid("invalid key %.80q: want 64 hexadecimal digits, as \"carillon ledger key\" prints them", key)
	}
	v := verifier{lines: bufio.NewReaderSize(in, 64<<10)}
	text, err := v.next()
	if err != nil {
		return nil, err
	}
	r := &v.report
	if err := json.Unmarshal(text, &r.Header); err != nil {
		return nil, fmt.Errorf("line 1 is no header of a ledger: %w", err)
	}
	if r.Header.V != Form {
		return nil, fmt.Errorf("form %d of a ledger: this program reads form %d", r.Header.V, Form)
	}
	v.calendars = r.Header.compiled()
	for {
		prev := v.hash
		if text, err = v.next(); err != nil {
			return nil, err
		}
		var line struct {
			Record
			Records   uint64 `json:"records"`
			Signature string `json:"signature"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("line %d is no record: %w", v.n, err)
		}
		if line.Prev != prev {
			return nil, fmt.Errorf("line %d does not continue line %d: line %d was changed, or lines were removed, inserted or reordered here", v.n, v.n-1, v.n-1)
		}
		if line.Signature != "" {
			return r, v.end(footer{line.Records, prev, line.Signature}, public)
		}
		r.Records++
		if err := v.record(line.Record); err != nil {
			return nil, err
		}
	}
}

type verifier struct {
	lines     *bufio.Reader
	n         int
	hash      string // of the last line
	report    Report
	calendars *schedule.Calendars
	job       int // index of the job whose records are being read
	walk      *walk
}

func (v *verifier) next() ([]byte, error) {
	var text []byte
	for {
		part, err := v.lines.ReadSlice('\n')
		if text = append(text, part...); len(text) > maxLine {
			return nil, fmt.Errorf("line %d has more than %d bytes", v.n+1, maxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the file ends after line %d, without the signature: lines are missing at the end", v.n)
		}
		if err != nil {
			return nil, err
		}
		v.n++
		v.hash = hashOf(text)
		return text, nil
	}
}

// end checks the footer.
func (v *verifier) end(f footer, public ed25519.PublicKey) error {
	signature, err := hex.DecodeString(f.Signature)
	if err != nil || !ed25519.Verify(public, []byte(signedForm+f.Prev), signature) {
		return fmt.Errorf("%w: the file was changed, or another key than %s signed it; its header names %.64s", ErrSignature, hex.EncodeToString(public), v.report.Header.Key)
	}
	if f.Records != v.report.Records {
		return fmt.Errorf("the footer counts %d records, there are %d", f.Records, v.report.Records)
	}
	if rest, _ := io.ReadAll(io.LimitReader(v.lines, 1)); len(rest) > 0 {
		return fmt.Errorf("text follows the signature in line %d", v.n)
	}
	for v.job < len(v.report.Header.Jobs) {
		if err := v.finish(); err != nil {
			return err
		}
	}
	return nil
}

// record checks the next record.
func (v *verifier) record(r Record) error {
	all := v.report.Header.Jobs
	i := v.job
	for i < len(all) && all[i].Key != r.Job {
		i++
	}
	if i == len(all) {
		v.report.problem("line %d: record of job %s, which the header does not name, or whose records are further up", v.n, r.Job)
		return nil
	}
	for v.job < i {
		if err := v.finish(); err != nil {
			return err
		}
	}
	if err := v.begin(); err != nil {
		return err
	}
	v.walk.take(&v.report, v.calendars, v.n, r)
	return nil
}

func (v *verifier) begin() (err error) {
	if v.walk == nil {
		v.walk, err = newWalk(&v.report.Header, &v.report.Header.Jobs[v.job])
		if err == nil && v.walk.unchecked != "" {
			v.report.Unchecked = append(v.report.Unchecked, v.walk.unchecked)
		}
	}
	return err
}

func (v *verifier) finish() error {
	if err := v.begin(); err != nil {
		return err
	}
	v.walk.end(&v.report)
	v.walk = nil
	v.job++
	return nil
}

// walk compares the records of a job with its due times, both in order.
type walk struct {
	h         *Header
	job       *Job
	known     time.Time // after this, schedules are known
	next      func() (time.Time, bool)
	due       time.Time // the next due time without a record
	more      bool
	last      time.Time // the end of the last record
	from      time.Time // its begin, or that of a backfill's run
	begun     bool
	unchecked string
}

func newWalk(h *Header, job *Job) (*walk, error) {
	w := &walk{h: h, job: job}
	for _, s := range job.Schedules {
		if _, err := s.compiled(h.Tenant, job.Key); err != nil {
			return nil, fmt.Errorf("job %s: schedule %.60q: %w", job.Key, s.Schedule, err)
		}
		if _, is := plain.AfterEnd(s.Schedule); is {
			w.unchecked = fmt.Sprintf("job %s: its due times count from the end of each run", job.Key)
		}
	}
	if len(job.Schedules) > 0 {
		w.known = job.Schedules[0].After
	}
	return w, nil
}

// start begins with the due times of the range, or earlier with those of a record.
func (w *walk) start(at time.Time) {
	w.begun = true
	if w.h.From.Before(at) {
		at = w.h.From
	}
	if at.Before(w.known) {
		at = w.known
	}
	w.next = w.dues(at.Add(-1))
	w.step()
}

// dues returns the due times after a time, one for each call.
func (w *walk) dues(after time.Time) func() (time.Time, bool) {
	i, at := 0, after
	var s *schedule.Schedule
	return func() (time.Time, bool) {
		for ; i < len(w.job.Schedules); i++ {
			is := &w.job.Schedules[i]
			if s == nil {
				s, _ = is.compiled(w.h.Tenant, w.job.Key) // newWalk has compiled it
				if at.Before(is.After) {
					at = is.After
				}
			}
			if s != nil {
				if due, ok := s.Next(at); ok && (is.Until == nil || !due.After(*is.Until)) {
					at = due
					return due, true
				}
			}
			s = nil
		}
		return time.Time{}, false
	}
}

func (w *walk) step() { w.due, w.more = w.next() }

// counts reports whether a due time is in the range of the ledger.
func (w *walk) counts(due time.Time) bool { return !due.Before(w.h.From) && due.Before(w.h.To) }

// lacking reports a due time without a record.
func (w *walk) lacking(r *Report, line int) {
	switch {
	case !w.counts(w.due):
	case w.due.After(w.job.Decided):
		r.Open++
	case w.due.Before(w.job.Complete):
		r.Purged++
	case line > 0:
		r.problem("job %s: due time %s has no record before line %d", w.job.Key, stamp(w.due), line)
	default:
		r.problem("job %s: due time %s has no record", w.job.Key, stamp(w.due))
	}
	w.step()
}

func (w *walk) take(r *Report, calendars *schedule.Calendars, line int, rec Record) {
	first, last := rec.First(), rec.last()
	fills := rec.Origin == kernel.FromBackfill
	switch {
	case first.IsZero() || last.Before(first) || (rec.Run == nil) != (rec.Due == nil) || rec.Due == nil && (rec.Reason == "" || rec.Count == 0):
		r.problem("line %d: record of job %s with neither a run nor a reason", line, w.job.Key)
		return
	case fills && !first.Before(w.from): // a backfill goes by the schedule of its own time
	case !w.last.IsZero() && first.Equal(w.last):
		r.problem("line %d: second record of job %s for due time %s", line, w.job.Key, stamp(first))
		return
	case !w.last.IsZero() && first.Before(w.last):
		r.problem("line %d: record of job %s for %s comes after one for %s", line, w.job.Key, stamp(first), stamp(w.last))
		return
	}
	if w.from = first; !fills {
		w.last = last
	}
	if w.unchecked != "" {
		if w.counts(first) {
			r.Proven += max(rec.Count, 1)
		}
		return
	}
	if !w.begun {
		w.start(first)
	}
	if !first.After(w.known) {
		return // of a schedule that is not in the header any more
	}
	for w.more && w.due.Before(first) {
		w.lacking(r, line)
	}
	if !w.more || !w.due.Equal(first) {
		if fills {
			r.Extra++
			return
		}
		r.problem("line %d: record of job %s for %s, which is no due time", line, w.job.Key, stamp(first))
		return
	}
	w.last = last
	count, end := uint64(0), first
	for w.more && !w.due.After(last) {
		if w.counts(w.due) {
			r.Proven++
		}
		if rec.Reason == kernel.MissedCalendar && !w.excluded(calendars, w.due) {
			r.problem("line %d: due time %s of job %s is recorded as excluded by a calendar, and none excludes it", line, stamp(w.due), w.job.Key)
		}
		count, end = count+1, w.due
		w.step()
	}
	if rec.Due == nil && (count != rec.Count || !end.Equal(last)) {
		r.problem("line %d: the range of job %s from %s to %s has %d due times, the record counts %d", line, w.job.Key, stamp(first), stamp(last), count, rec.Count)
	}
}

// excluded reports whether a calendar of the schedule excludes a due time; true if a calendar does not exist any more.
func (w *walk) excluded(calendars *schedule.Calendars, due time.Time) bool {
	for _, s := range w.job.Schedules {
		if !due.After(s.After) || s.Until != nil && due.After(*s.Until) {
			continue
		}
		list, missing := calendars.Named(s.Calendars)
		for _, c := range list {
			if _, _, is := c.Excludes(due); is {
				return true
			}
		}
		return len(missing) > 0
	}
	return false
}

// end reports the due times after the last record.
func (w *walk) end(r *Report) {
	if w.unchecked != "" {
		return
	}
	if !w.begun {
		w.start(w.h.From)
	}
	for w.more && w.due.Before(w.h.To) {
		w.lacking(r, 0)
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Summary describes a report in one line.
func (r *Report) Summary() string {
	names := make([]string, len(r.Header.Jobs))
	for i, j := range r.Header.Jobs {
		names[i] = string(j.Key)
	}
	what := strings.Join(names, ", ")
	if len(names) > 3 {
		what = fmt.Sprintf("%d jobs", len(names))
	}
	return fmt.Sprintf("tenant %s, %s, from %s until before %s", r.Header.Tenant, what, stamp(r.Header.From), stamp(r.Header.To))
}

// Check compares the records of one job with the due times of its schedules. Of a header it needs Tenant, From, To and
// Calendars. The texts of problems have no number of a line.
func (h *Header) Check(job *Job, records []Record) (*Report, error) {
	r := &Report{Header: *h, Records: uint64(len(records))}
	w, err := newWalk(h, job)
	if err != nil {
		return nil, err
	}
	calendars := h.compiled()
	for _, rec := range records {
		w.take(r, calendars, 0, rec)
	}
	w.end(r)
	for i, text := range r.Problems {
		r.Problems[i] = strings.TrimPrefix(text, "line 0: ")
	}
	return r, nil
}
