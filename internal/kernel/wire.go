package kernel

import (
	"fmt"
	"time"
)

// The wire format of commands, effects and rows, for the log, the bus and snapshots. It is written by hand: JSON would
// cost more than all the rest of a run's path.
//
// Each type has one function that names its fields in order, and a coder (coder.go) either writes or reads them, so
// that the two directions cannot drift apart. Numbers are varints, texts and lists carry their length, times are Unix
// nanoseconds. A list of envelopes begins with the version of the format; a reader of an older version stops with an
// error. Fields are only ever added at the end of a row, which carries its length, by later: a reader leaves missing
// fields zero. Unknown fields at the end are refused in logs, snapshots and databases, where ignoring them would make
// rows differ, and ignored in messages of workers and clients.

// WireVersion is the version of the format that this code writes.
const WireVersion = 1

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
			text(c, &r.Bundle)
			c.row(func(c *coder) { wireSettings(c, &r.Set) })
		})
	case VerbEdit:
		wireValue(c, v, func(c *coder, e *Edit) {
			text(c, &e.Key)
			c.row(func(c *coder) { wireSettings(c, &e.Set) })
			list(c, &e.Clear, 1, wireString)
			number(c, &e.IfRevision)
			c.bool(&e.Restart)
			text(c, &e.Bundle)
			c.bool(&e.TakeOver)
			c.bool(&e.Leave)
		})
	case VerbPause:
		wireValue(c, v, func(c *coder, p *Pause) { text(c, &p.Key); text(c, &p.Reason); c.time(&p.Until) })
	case VerbResume:
		wireValue(c, v, func(c *coder, r *Resume) { text(c, &r.Key); c.bool(&r.Discard); c.time(&r.From) })
	case VerbCreate: // this one, Start and Finish inline: passing the field function allocates a copy
		var k Create
		if !c.reading {
			k = (*v).(Create)
		}
		if wireCreate(c, &k); c.reading {
			*v = k
		}
	case VerbFire:
		wireValue(c, v, func(c *coder, f *Fire) {
			word(c, &f.Key)
			c.id(&f.Job)
			number(c, &f.Revision)
			number(c, &f.Global)
			number(c, &f.Term)
			c.time(&f.From)
			c.time(&f.To)
			list(c, &f.Due, 1, (*coder).time)
			signed(c, &f.Late)
			list(c, &f.Missed, 8, wireMissed)
			number(c, &f.Calendars)
		})
	case VerbRelease:
		wireValue(c, v, func(c *coder, r *Release) { c.id(&r.ID); c.bool(&r.Force) })
	case VerbStart:
		var k Start
		if !c.reading {
			k = (*v).(Start)
		}
		c.id(&k.ID)
		word(c, &k.Worker)
		number(c, &k.Attempt)
		number(c, &k.Term)
		if some(c, &k.Skills, wireSkills); c.reading {
			*v = k
		}
	case VerbUnstart:
		wireValue(c, v, func(c *coder, k *Unstart) { c.id(&k.ID); number(c, &k.Attempt) })
	case VerbFinish:
		var k Finish
		if !c.reading {
			k = (*v).(Finish)
		}
		if wireFinish(c, &k); c.reading {
			*v = k
		}
	case VerbReturned:
		wireValue(c, v, func(c *coder, r *Returned) { c.id(&r.ID); text(c, &r.Worker); number(c, &r.Attempt) })
	case VerbCheckpoint:
		wireValue(c, v, func(c *coder, k *Checkpoint) {
			c.id(&k.ID)
			word(c, &k.Worker)
			number(c, &k.Attempt)
			bytesOf(c, &k.Data)
		})
	case VerbExpire:
		wireValue(c, v, func(c *coder, e *Expire) { c.id(&e.ID); number(c, &e.Attempt); text(c, &e.Cause); c.bool(&e.Unbegun) })
	case VerbCancel:
		wireValue(c, v, func(c *coder, k *Cancel) { c.id(&k.ID) })
	case VerbConfigure:
		wireValue(c, v, func(c *coder, k *Configure) {
			some(c, &k.RecurringDebug, (*coder).bool)
			some(c, &k.TriggeredDebug, (*coder).bool)
			some(c, &k.MisfireAfter, wireDuration)
			some(c, &k.MaxJobs, signed)
			some(c, &k.NewJobs, text)
			some(c, &k.AppLimits, wireLimits)
			some(c, &k.RetryBudget, wireRate)
			some(c, &k.Defaults, func(c *coder, s *Settings) { c.row(func(c *coder) { wireSettings(c, s) }) })
			text(c, &k.App)
			list(c, &k.Reset, 1, wireString)
			some(c, &k.File, wireFile)
			c.bool(&k.Discard)
		})
	case VerbLead:
		wireValue(c, v, func(c *coder, l *Lead) { number(c, &l.Term); text(c, &l.Node) })
	case VerbRefresh:
		wireValue(c, v, func(c *coder, r *Refresh) { text(c, &r.Key) })
	case VerbForget:
		wireValue(c, v, func(c *coder, f *Forget) { text(c, &f.Name) })
	case VerbHand:
		wireValue(c, v, func(c *coder, h *Hand) { text(c, &h.Gate) })
	case VerbDelete:
		wireValue(c, v, func(c *coder, k *Delete) { word(c, &k.Key); number(c, &k.IfRevision); text(c, &k.Bundle) })
	case VerbGrant:
		wireValue(c, v, func(c *coder, g *Grant) { c.row(func(c *coder) { wireToken(c, &g.Token) }) })
	case VerbRevoke:
		wireValue(c, v, func(c *coder, r *Revoke) { text(c, &r.ID) })
	case VerbSignIn:
		wireValue(c, v, func(c *coder, s *SignIn) { c.row(func(c *coder) { wireSession(c, &s.Session) }) })
	case VerbTouch:
		wireValue(c, v, func(c *coder, k *Touch) { text(c, &k.ID) })
	case VerbSignOut:
		wireValue(c, v, func(c *coder, s *SignOut) { text(c, &s.ID) })
	case VerbPurgeAudit:
		wireValue(c, v, func(c *coder, k *PurgeAudit) { list(c, &k.Refs, leastRef, wireRef); c.time(&k.Before) })
	case VerbInvite:
		wireValue(c, v, wireInvite)
	case VerbJoin:
		wireValue(c, v, wireJoin)
	case VerbMembers:
		wireValue(c, v, wireMembers)
	case VerbExpand:
		wireValue(c, v, func(c *coder, k *Expand) { c.id(&k.ID); list(c, &k.Workers, 1, wireString) })
	case VerbSetCalendar:
		wireValue(c, v, func(c *coder, k *SetCalendar) {
			text(c, &k.Name)
			text(c, &k.Description)
			text(c, &k.Zone)
			list(c, &k.Rules, 1, wireString)
			number(c, &k.IfRevision)
			text(c, &k.Bundle)
			c.bool(&k.TakeOver)
		})
	case VerbDropCalendar:
		wireValue(c, v, func(c *coder, k *DropCalendar) { text(c, &k.Name); number(c, &k.IfRevision); text(c, &k.Bundle) })
	case VerbDrain:
		wireValue(c, v, func(c *coder, k *Drain) { word(c, &k.Worker); c.bool(&k.On) })
	case VerbMark:
		wireValue(c, v, func(c *coder, k *Mark) { text(c, &k.Key); c.bool(&k.Stopped) })
	case VerbExpect:
		wireValue(c, v, wireExpect)
	case VerbReport:
		wireValue(c, v, wireReport)
	case VerbPurge:
		wireValue(c, v, func(c *coder, k *Purge) { text(c, &k.Key); c.time(&k.Before) })
	case VerbBackfill:
		wireValue(c, v, wireBackfill)
	case VerbNotify:
		wireValue(c, v, wireNotify)
	case VerbSetTenant:
		wireValue(c, v, wireSetTenant)
	case VerbSuspendTenant:
		wireValue(c, v, func(c *coder, k *SuspendTenant) { text(c, &k.Name); c.bool(&k.On) })
	case VerbDeleteTenant:
		wireValue(c, v, func(c *coder, k *DeleteTenant) { text(c, &k.Name) })
	case VerbDropTenant:
		wireValue(c, v, func(c *coder, k *DropTenant) { text(c, &k.Name); list(c, &k.Refs, leastRef, wireRef); c.bool(&k.Last) })
	case VerbFinalizeUpgrade:
		wireValue(c, v, func(c *coder, k *FinalizeUpgrade) { number(c, &k.To) })
	case VerbLedgerKey:
		wireValue(c, v, func(c *coder, k *LedgerKey) { bytesOf(c, &k.Seed) })
	case VerbExported:
		wireValue(c, v, wireExported)
	case VerbDenied:
		wireValue(c, v, wireDenied)
	case VerbCheckIn:
		wireValue(c, v, wireCheckIn)
	case VerbOpenBatch:
		wireValue(c, v, wireOpenBatch)
	case VerbCloseBatch:
		wireValue(c, v, func(c *coder, k *CloseBatch) { c.id(&k.ID) })
	default:
		if !wireAlarmCommand(c, verb, v) && !wireNextCommand(c, verb, v) {
			c.fail(fmt.Sprintf("unknown command %d: this program supports version %d of the rules: start a newer program", verb, ApplyVersion))
		}
	}
}

func wireFinish(c *coder, f *Finish) {
	c.id(&f.ID)
	word(c, &f.Worker)
	number(c, &f.Attempt)
	number(c, &f.Outcome)
	bytesOf(c, &f.Result)
	text(c, &f.Error)
	signed(c, &f.Delay)
	c.bool(&f.Running)
	text(c, &f.Code)
}

func wireCreate(c *coder, k *Create) {
	wireRequest(c, k)
	text(c, &k.Trace)
	wirePlacing(c, k)
	text(c, &k.Occasion)
	c.rareID(&k.Batch)
	wireNextCreate(c, k)
}

func wirePlacing(c *coder, k *Create) {
	text(c, &k.Pin)
	number(c, &k.Index)
	number(c, &k.Total)
}

// wireRequest writes the fields of a Create's digest.
func wireRequest(c *coder, k *Create) {
	c.id(&k.ID)
	word(c, &k.Key)
	bytesOf(c, &k.Args)
	c.time(&k.Due)
	signed(c, &k.Delay)
	text(c, &k.Unique)
	signed(c, &k.UniqueFor)
	text(c, &k.Idempotency)
	word(c, &k.Origin)
	c.id(&k.Parent)
	some(c, &k.Priority, signed)
	some(c, &k.Retries, signed)
	some(c, &k.Timeout, wireDuration)
	some(c, &k.StartWithin, wireDuration)
}

func wireEnvelope(c *coder, e, last *Envelope) {
	c.id(&e.ID)
	// Adjacent envelopes mostly share these four: one bit each means "as before".
	same := uint64(0)
	if !c.reading {
		for i, eq := range [...]bool{e.Tenant == last.Tenant, e.Actor == last.Actor, e.Reason == last.Reason, e.At.Equal(last.At)} {
			if eq {
				same |= 1 << i
			}
		}
		if !e.Sender.same(last.Sender) {
			same |= newSender
		}
	}
	c.uint(&same)
	if same&1 == 0 {
		word(c, &e.Tenant)
	} else if c.reading {
		e.Tenant = last.Tenant
	}
	if same&2 == 0 {
		word(c, &e.Actor)
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
	if same&newSender != 0 {
		some(c, &e.Sender, wireSender)
	} else if c.reading {
		e.Sender = last.Sender
	}
	c.row(func(c *coder) { wireCommand(c, &e.Command) })
}

// newSender is the bit of an envelope whose sender is another than that of the one before, or than nil.
const newSender = 1 << 4

func (c *coder) version() {
	v := uint64(WireVersion)
	c.uint(&v)
	if c.reading && v != WireVersion && c.err == nil {
		c.fail(fmt.Sprintf("unknown version %d: this program reads version %d", v, WireVersion))
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

// DecodeEnvelopes reads what AppendEnvelopes wrote. Unknown fields are refused: for logs, and for messages of nodes.
func DecodeEnvelopes(b []byte) ([]Envelope, error) { return decodeEnvelopes(b, false) }

// DecodeSentEnvelopes is DecodeEnvelopes for messages of workers and clients, which may be newer than this program:
// unknown fields are ignored.
func DecodeSentEnvelopes(b []byte) ([]Envelope, error) { return decodeEnvelopes(b, true) }

func decodeEnvelopes(b []byte, lenient bool) ([]Envelope, error) {
	c := coder{buf: b, reading: true, lenient: lenient}
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

// AppendCommand appends one command to b. As in an envelope, later fields at the end that are zero take no bytes.
func AppendCommand(b []byte, k Command) []byte {
	c := coder{buf: b}
	wireCommand(&c, &k)
	if c.end > 0 {
		return c.buf[:c.end]
	}
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

// DecodeRow reads one row from the front of b and returns the rest. Unknown fields are refused: for stored rows.
func DecodeRow(b []byte) (Row, []byte, error) { return decodeRow(b, false) }

// DecodeSentRow is DecodeRow for workers and clients, whose server may be newer: unknown fields are ignored.
func DecodeSentRow(b []byte) (Row, []byte, error) { return decodeRow(b, true) }

func decodeRow(b []byte, lenient bool) (Row, []byte, error) {
	c := coder{buf: b, reading: true, lenient: lenient}
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

func wireSkills(c *coder, s *Skills) {
	word(c, &s.App)
	word(c, &s.Handler)
	word(c, &s.Work)
}
