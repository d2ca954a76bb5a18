package kernel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Feedback is the state of a run that waits for reports of another system: the key of its signatures, and the reports.
//
// A signature permits reports about one attempt of one run. Its key is stored only in the run's row: a signature is
// worth nothing for any other run.
type Feedback struct {
	Key     []byte   // makes and checks signatures; it is never shown
	Attempt uint32   // that the signatures are for
	Lasts   bool     // an attempt that follows a loss waits for the same reports
	Final   bool     // the last report was final: later ones are refused
	Count   uint64   // number of reports
	Reports [][]byte // the latest reports, the newest last
}

// The limits of reports.
const (
	FeedbackKey  = 32       // bytes
	MaxReport    = 48 << 10 // bytes of one
	keptReports  = 32
	keptFeedback = 64 << 10 // bytes of all; the newest is always kept
)

// Sign returns the signature for an attempt of a run. The nonce distinguishes several of one attempt.
func (f *Feedback) Sign(run jobs.ID, attempt uint32, nonce uint64) []byte {
	m := hmac.New(sha256.New, f.Key)
	b := binary.BigEndian.AppendUint32(append([]byte("feedback"), run[:]...), attempt)
	m.Write(binary.BigEndian.AppendUint64(b, nonce))
	return m.Sum(nil)
}

// Signed reports whether a signature is valid, in constant time.
func (f *Feedback) Signed(run jobs.ID, attempt uint32, nonce uint64, signature []byte) bool {
	return f != nil && len(f.Key) == FeedbackKey && hmac.Equal(f.Sign(run, attempt, nonce), signature)
}

// Since returns the reports after the first n, and their number by now. If many arrived at once, the oldest may be
// missing.
func (f *Feedback) Since(n uint64) ([][]byte, uint64) {
	if f == nil || f.Count <= n {
		return nil, n
	}
	return f.Reports[len(f.Reports)-int(min(f.Count-n, uint64(len(f.Reports)))):], f.Count
}

// with returns the feedback with one more report.
func (f Feedback) with(report []byte, final bool) *Feedback {
	f.Reports = append(slices.Clone(f.Reports), report)
	size := 0
	for i := len(f.Reports) - 1; i >= 0; i-- {
		if size += len(f.Reports[i]); i < len(f.Reports)-1 && (size > keptFeedback || len(f.Reports)-i > keptReports) {
			f.Reports = f.Reports[i+1:]
			break
		}
	}
	f.Count, f.Final = f.Count+1, final
	return &f
}

// Expect makes an attempt wait for reports. Earlier reports are dropped.
type Expect struct {
	ID      jobs.ID
	Worker  string
	Attempt uint32
	Key     []byte // FeedbackKey random bytes
	Lasts   bool   // attempts that follow a loss wait for the same reports
}

// Report adds a report to a run.
type Report struct {
	ID        jobs.ID
	Attempt   uint32
	Nonce     uint64
	Signature []byte
	Report    []byte
	Final     bool // it is the last report
}

// Verb returns the verb of each command.
func (Expect) Verb() Verb { return VerbExpect }
func (Report) Verb() Verb { return VerbReport }

// Check validates the key.
func (c Expect) Check() error {
	if len(c.Key) != FeedbackKey {
		return Invalid("the key must have %d bytes: it has %d", FeedbackKey, len(c.Key))
	}
	return checkRun(c.ID, c.Worker, c.Attempt)
}

// Check validates the report.
func (c Report) Check() error {
	if len(c.Report) > MaxReport {
		return Invalid("a report may have at most %d bytes: it has %d", MaxReport, len(c.Report))
	}
	return checkRun(c.ID, "-", c.Attempt)
}

// ErrNotSigned is the only error for a report with a wrong signature, so that it reveals nothing about the run.
var ErrNotSigned = Refuse(jobs.Forbidden, "invalid signature")

// Expect makes the run's attempt wait for reports.
func (run Run) Expect(k Expect) Run {
	run.Feedback = &Feedback{Key: k.Key, Attempt: k.Attempt, Lasts: k.Lasts}
	return run
}

// Report adds a report. again: it is a repeated one, or another final one came before, and nothing changes.
func (run Run) Report(k Report) (_ Run, again bool, err error) {
	f := run.Feedback
	switch {
	case !f.Signed(run.ID, k.Attempt, k.Nonce, k.Signature):
		return run, false, ErrNotSigned
	case k.Attempt != f.Attempt:
		return run, false, Refuse(jobs.Conflict, "attempt %d has ended: attempt %d has restarted the work", k.Attempt, f.Attempt)
	case f.Final:
		return run, true, nil
	case run.State.Final():
		return run, false, Refuse(jobs.Conflict, "the run has finished: it is %s", run.State)
	case !f.Lasts && (run.State != jobs.Processing || run.Attempt != f.Attempt):
		return run, false, Refuse(jobs.Conflict, "attempt %d has ended", k.Attempt)
	}
	if n := len(f.Reports); !k.Final && n > 0 && string(f.Reports[n-1]) == string(k.Report) {
		return run, true, nil // a repeated report changes nothing
	}
	run.Feedback = f.with(k.Report, k.Final)
	return run, false, nil
}

// unheard returns the feedback after a failure that is not a loss: the work will start anew.
func (f *Feedback) unheard() *Feedback {
	if f == nil || !f.Lasts {
		return f
	}
	over := *f
	over.Lasts = false
	return &over
}

// settled returns the feedback of a finished run: who called back, without the reports.
func (f *Feedback) settled() *Feedback {
	if f == nil || len(f.Reports) == 0 {
		return f
	}
	over := *f
	over.Reports = nil
	return &over
}

func wireFeedback(c *coder, f *Feedback) {
	bytesOf(c, &f.Key)
	number(c, &f.Attempt)
	c.bool(&f.Lasts)
	c.bool(&f.Final)
	number(c, &f.Count)
	list(c, &f.Reports, 1, bytesOf)
}

func wireExpect(c *coder, k *Expect) {
	c.id(&k.ID)
	text(c, &k.Worker)
	number(c, &k.Attempt)
	bytesOf(c, &k.Key)
	c.bool(&k.Lasts)
}

func wireReport(c *coder, k *Report) {
	c.id(&k.ID)
	number(c, &k.Attempt)
	number(c, &k.Nonce)
	bytesOf(c, &k.Signature)
	bytesOf(c, &k.Report)
	c.bool(&k.Final)
}
