package kernel

import "github.com/carillon-scheduler/carillon/jobs"

// The wire format of answers: the results of commands.

func wirePointer[T any](fields func(*coder, *T)) func(*coder, **T) {
	return func(c *coder, v **T) {
		if c.reading {
			*v = new(T)
		}
		c.row(func(c *coder) { fields(c, *v) })
	}
}

// The minimal sizes of rows since version 1. They limit the lengths of lists, so that a short message cannot announce
// rows that take a thousand times its memory.
const (
	leastRun        = 70
	leastDefinition = 60
	leastMissed     = 24
	leastRef        = 21 // of a Trim
)

func wireEffect(c *coder, e *Effect) {
	list(c, &e.Runs, leastRun, wirePointer(wireRun))
	list(c, &e.Definitions, leastDefinition, wirePointer(wireDefinition))
	list(c, &e.Missed, leastMissed, wirePointer(wireMissed))
	some(c, &e.Global, func(c *coder, g *Global) { c.row(func(c *coder) { wireGlobal(c, g) }) })
	// Four answers in one number: an older program, which knows only the first, never gets the others. A summary is
	// sent only to senders that asked for summaries.
	said := uint64(0)
	if e.Existing {
		said |= 1
	}
	if e.Token != nil {
		said |= 2
	}
	if e.Summary != nil {
		said |= 4
	}
	if len(e.LedgerSeed) > 0 {
		said |= 8
	}
	c.uint(&said)
	if said > 15 {
		c.fail("bad end of an effect")
	}
	if c.reading {
		e.Existing = said&1 != 0
	}
	if said&2 != 0 && c.err == nil {
		wirePointer(wireToken)(c, &e.Token)
	}
	if said&4 != 0 && c.err == nil {
		if c.reading {
			e.Summary = new(Summary)
		}
		c.row(func(c *coder) { wireReceipt(c, e.Summary) })
	}
	if said&8 != 0 && c.err == nil {
		bytesOf(c, &e.LedgerSeed)
	}
}

func wireReceipt(c *coder, r *Summary) {
	c.id(&r.ID)
	word(c, &r.Key)
	number(c, &r.State)
	word(c, &r.Cause)
	c.time(&r.Due)
	number(c, &r.Attempt)
	c.time(&r.RetryAt)
	c.bool(&r.Lingering)
}

// AppendAnswer appends the result of one command: its effect, or the refusal err.
func AppendAnswer(b []byte, e *Effect, err error) []byte {
	c := coder{buf: b}
	var code jobs.Code
	var say string
	if err != nil {
		code, say = jobs.CodeOf(err), err.Error()
	}
	text(&c, &code)
	if err != nil {
		text(&c, &say)
		return c.buf
	}
	wireEffect(&c, e)
	return c.buf
}

// DecodeAnswer reads one answer from the front of b and returns the rest. bad is set when the bytes themselves are
// damaged.
func DecodeAnswer(b []byte) (e Effect, err error, rest []byte, bad error) {
	c := coder{buf: b, reading: true, lenient: true}
	if len(b) == 0 {
		return e, nil, nil, Invalid("wire: no answer")
	}
	var code jobs.Code
	text(&c, &code)
	if code != "" {
		var say string
		text(&c, &say)
		return e, &Refusal{Code: code, Text: say}, c.buf, c.err
	}
	wireEffect(&c, &e)
	return e, nil, c.buf, c.err
}
