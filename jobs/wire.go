package jobs

import (
	"errors"
	"fmt"
	"time"
)

// The wire form of commands, effects and rows, for the log, the bus and snapshots. It is written by hand: JSON
// would cost more than all the rest of a job's way (docs/design.md has the figures).
//
// Each type has one function that names its fields in order, and a coder (coder.go) either writes or reads them, so
// that the two directions cannot drift apart. Numbers are varints, texts and lists carry their length, times are
// Unix nanoseconds. A list of envelopes begins with the version of the form; a reader that meets a newer one
// stops with an error. Fields are only ever added at the end of a row, which carries its length: a reader leaves
// missing fields zero.

// WireVersion is the version of the form that this code writes.
const WireVersion = 1

func wireMove(c *coder, m *Move) {
	number(c, &m.State)
	text(c, &m.Cause)
	c.time(&m.At)
	number(c, &m.Attempt)
	text(c, &m.By)
	text(c, &m.Text)
}

func wireTerms(c *coder, t *Terms) {
	signed(c, &t.Retries)
	signed(c, &t.RetryDelay)
	signed(c, &t.RetryDelayMax)
	signed(c, &t.Timeout)
	text(c, &t.OnLost)
	text(c, &t.LeaseLost)
	text(c, &t.Overlap)
}

func wireString(c *coder, s *string) { text(c, s) }

func wireInstance(c *coder, in *Instance) {
	text(c, &in.Tenant)
	c.id(&in.ID)
	c.id(&in.Job)
	text(c, &in.Key)
	text(c, &in.App)
	number(c, &in.Kind)
	number(c, &in.Revision)
	number(c, &in.State)
	text(c, &in.Cause)
	text(c, &in.Origin)
	text(c, &in.Actor)
	bytesOf(c, &in.Args)
	wireTerms(c, &in.Terms)
	signed(c, &in.Priority)
	c.time(&in.Due)
	c.time(&in.Created)
	c.time(&in.Queued)
	c.time(&in.Started)
	c.time(&in.Ended)
	number(c, &in.Attempt)
	text(c, &in.Worker)
	c.time(&in.Deadline)
	c.time(&in.StartBy)
	number(c, &in.Failures)
	number(c, &in.Losses)
	c.time(&in.RetryAt)
	list(c, &in.Gates, 1, wireString)
	c.bool(&in.Holds)
	text(c, &in.Waits)
	c.bool(&in.First)
	c.bool(&in.Lingering)
	bytesOf(c, &in.Checkpoint)
	bytesOf(c, &in.Result)
	text(c, &in.Error)
	list(c, &in.Moves, 6, wireMove)
	c.id(&in.Parent)
	text(c, &in.Unique)
}

func wireLimit(c *coder, l *Limit) { text(c, &l.Name); signed(c, &l.Max) }

func wireSettings(c *coder, s *Settings) {
	some(c, &s.Name, wireString)
	some(c, &s.Description, wireString)
	some(c, &s.Tags, func(c *coder, v *[]string) { list(c, v, 1, wireString) })
	some(c, &s.Schedule, wireString)
	some(c, &s.Zone, wireString)
	some(c, &s.Start, (*coder).time)
	some(c, &s.End, (*coder).time)
	some(c, &s.Args, bytesOf)
	some(c, &s.MaxConcurrency, signed)
	some(c, &s.Limits, func(c *coder, v *[]Limit) { list(c, v, 2, wireLimit) })
	some(c, &s.Overlap, text)
	some(c, &s.Retries, signed)
	some(c, &s.RetryDelay, signed)
	some(c, &s.RetryDelayMax, signed)
	some(c, &s.Timeout, signed)
	some(c, &s.OnLost, text)
	some(c, &s.LeaseLost, text)
	some(c, &s.Misfire, text)
	some(c, &s.Priority, signed)
	some(c, &s.StartWithin, signed)
	some(c, &s.Disabled, (*coder).bool)
	some(c, &s.Gap, text)
	some(c, &s.Twice, text)
}

func wirePolicy(c *coder, p *Policy) {
	text(c, &p.Name)
	text(c, &p.Description)
	list(c, &p.Tags, 1, wireString)
	text(c, &p.Schedule)
	text(c, &p.Zone)
	c.time(&p.Start)
	c.time(&p.End)
	bytesOf(c, &p.Args)
	signed(c, &p.MaxConcurrency)
	list(c, &p.Limits, 2, wireLimit)
	text(c, &p.Overlap)
	signed(c, &p.Retries)
	signed(c, &p.RetryDelay)
	signed(c, &p.RetryDelayMax)
	signed(c, &p.Timeout)
	text(c, &p.OnLost)
	text(c, &p.LeaseLost)
	text(c, &p.Misfire)
	signed(c, &p.Priority)
	signed(c, &p.StartWithin)
	c.bool(&p.Disabled)
	text(c, &p.Gap)
	text(c, &p.Twice)
}

func wireHeld(c *coder, p *Held) {
	text(c, &p.Reason)
	text(c, &p.By)
	c.time(&p.At)
	c.time(&p.Until)
}

func wireDefinition(c *coder, d *Definition) {
	text(c, &d.Tenant)
	c.id(&d.UID)
	text(c, &d.Key)
	number(c, &d.Kind)
	text(c, &d.App)
	signed(c, &d.Version)
	bytesOf(c, &d.Schema)
	c.row(func(c *coder) { wireSettings(c, &d.Code) })
	c.row(func(c *coder) { wireSettings(c, &d.Edits) })
	c.row(func(c *coder) { wirePolicy(c, &d.Policy) })
	some(c, &d.Paused, wireHeld)
	c.time(&d.Created)
	c.time(&d.Edited)
	number(c, &d.Revision)
	number(c, &d.Change)
	number(c, &d.Defaults)
	c.time(&d.Cursor)
	c.time(&d.Missed)
	c.time(&d.Anchor)
}

func wireDebug(c *coder, d *Debug) { c.bool(&d.On); text(c, &d.By); c.time(&d.At) }

func wireGlobal(c *coder, g *Global) {
	text(c, &g.Tenant)
	wireDebug(c, &g.RecurringDebug)
	wireDebug(c, &g.TriggeredDebug)
	c.row(func(c *coder) { wireSettings(c, &g.RecurringDefaults) })
	c.row(func(c *coder) { wireSettings(c, &g.TriggeredDefaults) })
	signed(c, &g.MisfireAfter)
	number(c, &g.Revision)
}

func wireGate(c *coder, g *Gate) {
	text(c, &g.Tenant)
	text(c, &g.Name)
	signed(c, &g.Limit)
	signed(c, &g.Taken)
}

func wireUnique(c *coder, u *UniqueKey) {
	text(c, &u.Tenant)
	text(c, &u.Name)
	c.id(&u.ID)
	c.id(&u.Digest)
	c.time(&u.Until)
}

func wireMissed(c *coder, m *Missed) {
	text(c, &m.Tenant)
	c.id(&m.Job)
	text(c, &m.Key)
	c.time(&m.From)
	c.time(&m.To)
	number(c, &m.Count)
	text(c, &m.Reason)
}

func wireTally(c *coder, t *Tally) {
	text(c, &t.Tenant)
	c.id(&t.Job)
	number(c, &t.State)
	c.int(&t.Hour)
	c.int(&t.N)
}

func wireStoreRow(c *coder, s *StoreRow) {
	number(c, &s.Changes)
	number(c, &s.Epoch)
	text(c, &s.Leader)
	c.time(&s.At)
}

func wireRow(c *coder, r *Row) {
	kind := RowKind(0)
	if !c.reading {
		kind = (*r).Ref().Kind
	}
	number(c, &kind)
	c.row(func(c *coder) {
		switch kind {
		case RowDefinition:
			wireAs(c, r, wireDefinition)
		case RowInstance:
			wireAs(c, r, wireInstance)
		case RowGate:
			wireAs(c, r, wireGate)
		case RowUnique:
			wireAs(c, r, wireUnique)
		case RowMissed:
			wireAs(c, r, wireMissed)
		case RowTally:
			wireAs(c, r, wireTally)
		case RowGlobal:
			wireAs(c, r, wireGlobal)
		case RowStore:
			wireAs(c, r, wireStoreRow)
		default:
			c.fail(fmt.Sprintf("row of kind %d is not known to this version", kind))
		}
	})
}

// wireAs writes or reads the value behind an interface I as a *T.
func wireAs[I any, T any](c *coder, v *I, fields func(*coder, *T)) {
	if !c.reading {
		fields(c, any(*v).(*T))
		return
	}
	t := new(T)
	fields(c, t)
	*v = any(t).(I)
}

// wireValue is wireAs for commands, which are values.
func wireValue[T Command](c *coder, v *Command, fields func(*coder, *T)) {
	var t T
	if !c.reading {
		t = (*v).(T)
	}
	fields(c, &t)
	*v = t
}

func wireDuration(c *coder, d *time.Duration) { signed(c, d) }

func wireCommand(c *coder, v *Command) {
	verb := Verb(0)
	if !c.reading {
		verb = (*v).Verb()
	}
	number(c, &verb)
	switch verb {
	case VerbRegister:
		wireValue(c, v, func(c *coder, r *Register) {
			text(c, &r.App)
			text(c, &r.Worker)
			c.bool(&r.Start)
			text(c, &r.Job.Key)
			number(c, &r.Job.Kind)
			signed(c, &r.Job.Version)
			c.row(func(c *coder) { wireSettings(c, &r.Job.Code) })
			bytesOf(c, &r.Job.Schema)
		})
	case VerbEdit:
		wireValue(c, v, func(c *coder, e *Edit) {
			text(c, &e.Key)
			c.row(func(c *coder) { wireSettings(c, &e.Set) })
			list(c, &e.Clear, 1, wireString)
			number(c, &e.IfRevision)
		})
	case VerbPause:
		wireValue(c, v, func(c *coder, p *Pause) { text(c, &p.Key); text(c, &p.Reason); c.time(&p.Until) })
	case VerbResume:
		wireValue(c, v, func(c *coder, r *Resume) { text(c, &r.Key) })
	case VerbCreate:
		wireValue(c, v, wireCreate)
	case VerbFire:
		wireValue(c, v, func(c *coder, f *Fire) {
			text(c, &f.Key)
			c.id(&f.Job)
			number(c, &f.Revision)
			number(c, &f.Global)
			number(c, &f.Epoch)
			c.time(&f.From)
			c.time(&f.To)
			list(c, &f.Due, 1, (*coder).time)
			text(c, &f.Origin)
			list(c, &f.Missed, 8, wireMissed)
		})
	case VerbRelease:
		wireValue(c, v, func(c *coder, r *Release) { c.id(&r.ID); c.bool(&r.Force) })
	case VerbClaim:
		wireValue(c, v, func(c *coder, k *Claim) { c.id(&k.ID); text(c, &k.Worker); number(c, &k.Attempt) })
	case VerbFinish:
		wireValue(c, v, func(c *coder, f *Finish) {
			c.id(&f.ID)
			text(c, &f.Worker)
			number(c, &f.Attempt)
			number(c, &f.Outcome)
			bytesOf(c, &f.Result)
			text(c, &f.Error)
			signed(c, &f.Delay)
			c.bool(&f.Running)
		})
	case VerbReturned:
		wireValue(c, v, func(c *coder, r *Returned) { c.id(&r.ID); text(c, &r.Worker); number(c, &r.Attempt) })
	case VerbCheckpoint:
		wireValue(c, v, func(c *coder, k *Checkpoint) {
			c.id(&k.ID)
			text(c, &k.Worker)
			number(c, &k.Attempt)
			bytesOf(c, &k.Data)
		})
	case VerbExpire:
		wireValue(c, v, func(c *coder, e *Expire) { c.id(&e.ID); number(c, &e.Attempt); text(c, &e.Cause) })
	case VerbCancel:
		wireValue(c, v, func(c *coder, k *Cancel) { c.id(&k.ID) })
	case VerbConfigure:
		wireValue(c, v, func(c *coder, k *Configure) {
			some(c, &k.RecurringDebug, (*coder).bool)
			some(c, &k.TriggeredDebug, (*coder).bool)
			some(c, &k.RecurringDefaults, func(c *coder, s *Settings) { c.row(func(c *coder) { wireSettings(c, s) }) })
			some(c, &k.TriggeredDefaults, func(c *coder, s *Settings) { c.row(func(c *coder) { wireSettings(c, s) }) })
			some(c, &k.MisfireAfter, wireDuration)
		})
	case VerbLead:
		wireValue(c, v, func(c *coder, l *Lead) { number(c, &l.Epoch); text(c, &l.Node) })
	case VerbRefresh:
		wireValue(c, v, func(c *coder, r *Refresh) { text(c, &r.Key) })
	case VerbForget:
		wireValue(c, v, func(c *coder, f *Forget) { text(c, &f.Name) })
	case VerbHand:
		wireValue(c, v, func(c *coder, h *Hand) { text(c, &h.Gate) })
	default:
		c.fail(fmt.Sprintf("command %d is not known to this version", verb))
	}
}

func wireCreate(c *coder, k *Create) {
	c.id(&k.ID)
	text(c, &k.Key)
	bytesOf(c, &k.Args)
	c.time(&k.Due)
	signed(c, &k.Delay)
	text(c, &k.Unique)
	signed(c, &k.UniqueFor)
	text(c, &k.Idempotency)
	text(c, &k.Origin)
	c.id(&k.Parent)
	some(c, &k.Priority, signed)
	some(c, &k.Retries, signed)
	some(c, &k.Timeout, wireDuration)
	some(c, &k.StartWithin, wireDuration)
}

func wireEnvelope(c *coder, e, last *Envelope) {
	c.id(&e.ID)
	// Neighbours mostly share these four: a bit each says "as before".
	same := uint64(0)
	if !c.reading {
		for i, eq := range [...]bool{e.Tenant == last.Tenant, e.Actor == last.Actor, e.Reason == last.Reason, e.At.Equal(last.At)} {
			if eq {
				same |= 1 << i
			}
		}
	}
	c.uint(&same)
	if same&1 == 0 {
		text(c, &e.Tenant)
	} else if c.reading {
		e.Tenant = last.Tenant
	}
	if same&2 == 0 {
		text(c, &e.Actor)
	} else if c.reading {
		e.Actor = last.Actor
	}
	if same&4 == 0 {
		text(c, &e.Reason)
	} else if c.reading {
		e.Reason = last.Reason
	}
	if same&8 == 0 {
		c.time(&e.At)
	} else if c.reading {
		e.At = last.At
	}
	c.row(func(c *coder) { wireCommand(c, &e.Command) })
}

func (c *coder) version() {
	v := uint64(WireVersion)
	c.uint(&v)
	if c.reading && v != WireVersion && c.err == nil {
		c.fail(fmt.Sprintf("version %d is not known, this program reads version %d", v, WireVersion))
	}
}

// AppendEnvelopes appends a list of envelopes to b.
func AppendEnvelopes(b []byte, batch []Envelope) []byte {
	c := coder{buf: b}
	c.version()
	c.size(len(batch), 18)
	last := new(Envelope)
	for i := range batch {
		wireEnvelope(&c, &batch[i], last)
		last = &batch[i]
	}
	return c.buf
}

// DecodeEnvelopes reads what AppendEnvelopes wrote.
func DecodeEnvelopes(b []byte) ([]Envelope, error) {
	c := coder{buf: b, reading: true}
	c.version()
	batch := make([]Envelope, c.size(0, 18))
	last := new(Envelope)
	for i := range batch {
		wireEnvelope(&c, &batch[i], last)
		last = &batch[i]
		if c.err != nil {
			break
		}
	}
	return batch, c.done()
}

// AppendCommand appends one command to b.
func AppendCommand(b []byte, k Command) []byte {
	c := coder{buf: b}
	wireCommand(&c, &k)
	return c.buf
}

// AppendSettings appends settings to b.
func AppendSettings(b []byte, s *Settings) []byte {
	c := coder{buf: b}
	wireSettings(&c, s)
	return c.buf
}

// AppendRow appends a row to b.
func AppendRow(b []byte, r Row) []byte {
	c := coder{buf: b}
	wireRow(&c, &r)
	return c.buf
}

// DecodeRow reads one row from the front of b and answers with what follows it.
func DecodeRow(b []byte) (Row, []byte, error) {
	c := coder{buf: b, reading: true}
	if len(b) == 0 {
		return nil, nil, Invalid("wire: no row")
	}
	var r Row
	wireRow(&c, &r)
	if c.err != nil {
		return nil, nil, c.err
	}
	return r, c.buf, nil
}

func wirePointer[T any](fields func(*coder, *T)) func(*coder, **T) {
	return func(c *coder, v **T) {
		if c.reading {
			*v = new(T)
		}
		c.row(func(c *coder) { fields(c, *v) })
	}
}

// The least bytes that rows have had since version 1. Lists of them are measured by these, so that a short message
// cannot announce rows that take a thousand times its memory.
const (
	leastInstance   = 70
	leastDefinition = 60
	leastMissed     = 24
)

func wireEffect(c *coder, e *Effect) {
	list(c, &e.Instances, leastInstance, wirePointer(wireInstance))
	list(c, &e.Definitions, leastDefinition, wirePointer(wireDefinition))
	list(c, &e.Missed, leastMissed, wirePointer(wireMissed))
	some(c, &e.Global, wireGlobal)
	c.bool(&e.Existing)
}

// AppendAnswer appends what became of one command: its effect, or the refusal err.
func AppendAnswer(b []byte, e *Effect, err error) []byte {
	c := coder{buf: b}
	var code Code
	var say string
	if err != nil {
		code, say = CodeOf(err), err.Error()
	}
	text(&c, &code)
	if err != nil {
		text(&c, &say)
		return c.buf
	}
	wireEffect(&c, e)
	return c.buf
}

// DecodeAnswer reads one answer from the front of b and answers with what follows it. bad is set when the bytes
// themselves are damaged.
func DecodeAnswer(b []byte) (e Effect, err error, rest []byte, bad error) {
	c := coder{buf: b, reading: true}
	if len(b) == 0 {
		return e, nil, nil, Invalid("wire: no answer")
	}
	var code Code
	text(&c, &code)
	if code != "" {
		var say string
		text(&c, &say)
		return e, &Refusal{Code: code, Text: say}, c.buf, c.err
	}
	wireEffect(&c, &e)
	return e, nil, c.buf, c.err
}

// CodeOf is the code of a refusal; of any other error it is Unknown, because nothing is known about it.
func CodeOf(err error) Code {
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return Unknown
}
