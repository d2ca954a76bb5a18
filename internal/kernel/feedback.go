package kernel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Feedback is what a run knows of others that say how its work goes: by which key they are known, and what they have said.
//
// Others are given a signature, which says that they may speak of one attempt of one run. The key that makes it stands
// in the run's row and nowhere else: a signature is worth nothing for any other run.
type Feedback struct {
	Key     []byte   // makes and checks signatures; it is never shown
	Attempt uint32   // that the signatures are for
	Lasts   bool     // an attempt that follows a loss waits for the same words
	Final   bool     // the last report was the last: nothing more is taken
	Count   uint64   // how many reports there were
	Reports [][]byte // the latest of them, the newest last
}

// What is kept of reports.
const (
	FeedbackKey  = 32       // bytes
	MaxReport    = 48 << 10 // bytes of one
	keptReports  = 32
	keptFeedback = 64 << 10 // bytes of all; the newest is always kept
)

// Sign makes the signature for an attempt of a run. The nonce tells several of one attempt apart.
func (f *Feedback) Sign(run jobs.ID, attempt uint32, nonce uint64) []byte {
	m := hmac.New(sha256.New, f.Key)
	b := binary.BigEndian.AppendUint32(append([]byte("feedback"), run[:]...), attempt)
	m.Write(binary.BigEndian.AppendUint64(b, nonce))
	return m.Sum(nil)
}

// Signed says whether a signature is right. It takes as long for all that are wrong.
func (f *Feedback) Signed(run jobs.ID, attempt uint32, nonce uint64, signature []byte) bool {
	return f != nil && len(f.Key) == FeedbackKey && hmac.Equal(f.Sign(run, attempt, nonce), signature)
}

// Since are the reports that came after the first n, and how many there are by now. Of many that came at once, the oldest
// may be missing.
func (f *Feedback) Since(n uint64) ([][]byte, uint64) {
	if f == nil || f.Count <= n {
		return nil, n
	}
	return f.Reports[len(f.Reports)-int(min(f.Count-n, uint64(len(f.Reports)))):], f.Count
}

// with is it with one more report.
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

// Expect has an attempt wait for what others say of it. What was said before is forgotten.
type Expect struct {
	ID      jobs.ID
	Worker  string
	Attempt uint32
	Key     []byte // FeedbackKey bytes that nobody can guess
	Lasts   bool   // attempts that follow a loss wait for the same words
}

// Hear takes in what others say of a run.
type Hear struct {
	ID        jobs.ID
	Attempt   uint32
	Nonce     uint64
	Signature []byte
	Report    []byte
	Final     bool // nothing more follows
}

// Verb of each command.
func (Expect) Verb() Verb { return VerbExpect }
func (Hear) Verb() Verb   { return VerbHear }

// Check says what is wrong with the wish.
func (c Expect) Check() error {
	if len(c.Key) != FeedbackKey {
		return Invalid("a key of %d bytes is needed, this has %d", FeedbackKey, len(c.Key))
	}
	return checkRun(c.ID, c.Worker, c.Attempt)
}

// Check says what is wrong with the report.
func (c Hear) Check() error {
	if len(c.Report) > MaxReport {
		return Invalid("a report has at most %d bytes, this has %d", MaxReport, len(c.Report))
	}
	return checkRun(c.ID, "-", c.Attempt)
}

// ErrNotSigned is how a report is refused that is not signed by who was asked for it, whatever else may be wrong with it.
var ErrNotSigned = Refuse(jobs.Forbidden, "nobody waits for this")

// Expect has the run's attempt wait for reports.
func (run Run) Expect(k Expect) Run {
	run.Feedback = &Feedback{Key: k.Key, Attempt: k.Attempt, Lasts: k.Lasts}
	return run
}

// Hear takes in a report. again: it was heard just before, or another last one was, and nothing changes.
func (run Run) Hear(k Hear) (_ Run, again bool, err error) {
	f := run.Feedback
	switch {
	case !f.Signed(run.ID, k.Attempt, k.Nonce, k.Signature):
		return run, false, ErrNotSigned
	case k.Attempt != f.Attempt:
		return run, false, Refuse(jobs.Conflict, "attempt %d is over: attempt %d has begun the work anew", k.Attempt, f.Attempt)
	case f.Final:
		return run, true, nil
	case run.State.Final():
		return run, false, Refuse(jobs.Conflict, "the run is over: it is %s", run.State)
	case !f.Lasts && (run.State != jobs.Processing || run.Attempt != f.Attempt):
		return run, false, Refuse(jobs.Conflict, "attempt %d is over", k.Attempt)
	}
	if n := len(f.Reports); !k.Final && n > 0 && string(f.Reports[n-1]) == string(k.Report) {
		return run, true, nil // said again, it says nothing new
	}
	run.Feedback = f.with(k.Report, k.Final)
	return run, false, nil
}

// unheard is it after a failure that is not a loss: the work will begin anew.
func (f *Feedback) unheard() *Feedback {
	if f == nil || !f.Lasts {
		return f
	}
	over := *f
	over.Lasts = false
	return &over
}

// settled is it once the run is over: what tells who called back, without what they said.
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

func wireHear(c *coder, k *Hear) {
	c.id(&k.ID)
	number(c, &k.Attempt)
	number(c, &k.Nonce)
	bytesOf(c, &k.Signature)
	bytesOf(c, &k.Report)
	c.bool(&k.Final)
}
