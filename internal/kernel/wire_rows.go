package kernel

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The wire format of rows.

func wireMove(c *coder, m *Move) {
	number(c, &m.State)
	word(c, &m.Cause)
	c.time(&m.At)
	number(c, &m.Attempt)
	word(c, &m.By)
	text(c, &m.Text)
}

func wireTerms(c *coder, t *Terms) {
	signed(c, &t.Retries)
	signed(c, &t.RetryDelay)
	signed(c, &t.RetryDelayMax)
	signed(c, &t.Timeout)
	word(c, &t.OnLost)
	word(c, &t.LeaseLost)
	word(c, &t.Overlap)
}

func wireString(c *coder, s *string) { text(c, s) }

func wireStrings(c *coder, v *[]string) { list(c, v, 1, wireString) }

func wireRun(c *coder, run *Run) {
	word(c, &run.Tenant)
	c.id(&run.ID)
	c.id(&run.Job)
	word(c, &run.Key)
	word(c, &run.App)
	number(c, &run.Kind)
	number(c, &run.Revision)
	number(c, &run.State)
	word(c, &run.Cause)
	word(c, &run.Origin)
	word(c, &run.Actor)
	bytesOf(c, &run.Args)
	wireTerms(c, &run.Terms)
	signed(c, &run.Priority)
	c.time(&run.Due)
	c.time(&run.Created)
	c.time(&run.Queued)
	number(c, &run.Turn)
	number(c, &run.Version)
	c.time(&run.Started)
	c.time(&run.Ended)
	number(c, &run.Attempt)
	word(c, &run.Worker)
	c.time(&run.Deadline)
	c.time(&run.StartBy)
	number(c, &run.Failures)
	number(c, &run.Losses)
	c.time(&run.RetryAt)
	list(c, &run.Gates, 1, wireString)
	c.bool(&run.Holds)
	text(c, &run.Waits)
	c.bool(&run.First)
	c.bool(&run.Lingering)
	bytesOf(c, &run.Checkpoint)
	bytesOf(c, &run.Result)
	text(c, &run.Error)
	list(c, &run.Moves, 6, wireMove)
	c.id(&run.Parent)
	text(c, &run.Unique)
	text(c, &run.Trace)
	some(c, &run.Place, wirePlace)
	wireRare(c, run)
	wireNextRun(c, run)
}

// wireRare is the fields that most runs do not have: one byte says so.
func wireRare(c *coder, run *Run) {
	has := len(run.Faults) > 0 || !run.Opens.IsZero() || run.Late || run.Reserved || run.Forced || run.Budgeted > 0 || run.Terms.Failing != nil || run.Depth > 0 || run.Feedback != nil || run.Handler != "" || run.Execution > 0 || run.Work != "" || run.Unbegun > 0 || run.Occasion != "" || !run.Batch.IsZero()
	c.bool(&has)
	if !has {
		return
	}
	list(c, &run.Faults, 4, wireFault)
	c.time(&run.Opens)
	c.bool(&run.Late)
	c.bool(&run.Reserved)
	c.bool(&run.Forced)
	number(c, &run.Budgeted)
	some(c, &run.Terms.Failing, wireFailing)
	number(c, &run.Depth)
	some(c, &run.Feedback, wireFeedback)
	word(c, &run.Handler)
	number(c, &run.Execution)
	text(c, &run.Work)
	number(c, &run.Unbegun)
	text(c, &run.Occasion)
	c.rareID(&run.Batch)
}

func wireFault(c *coder, f *Fault) {
	number(c, &f.Attempt)
	text(c, &f.Code)
	signed(c, &f.Rule)
	signed(c, &f.Used)
}

func wireFailing(c *coder, f *Failing) {
	c.float(&f.Factor)
	text(c, &f.Jitter)
	list(c, &f.Rules, 5, wireRule)
	signed(c, &f.PauseAfter)
}

func wireRule(c *coder, r *jobs.RetryRule) {
	list(c, &r.Codes, 1, wireString)
	signed(c, &r.Attempts)
	signed(c, &r.Delay)
	c.float(&r.Factor)
	signed(c, &r.MaxDelay)
}

func wireRules(c *coder, v *[]jobs.RetryRule) { list(c, v, 5, wireRule) }

func wireRate(c *coder, r *jobs.Rate) { signed(c, &r.Max); signed(c, &r.Per) }

// wireMore carries the fields of limits beyond a number, where limits used to end.
func wireMore(c *coder, limits []jobs.Limit) {
	has := false
	for _, l := range limits {
		has = has || l.By != "" || l.Rate != jobs.Rate{}
	}
	c.bool(&has)
	for i := range limits {
		if has {
			text(c, &limits[i].By)
			wireRate(c, &limits[i].Rate)
		}
	}
}

func wireLimits(c *coder, v *[]jobs.Limit) { list(c, v, 2, wireLimit); wireMore(c, *v) }

func wireLimit(c *coder, l *jobs.Limit) { text(c, &l.Name); signed(c, &l.Max) }

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
	some(c, &s.Limits, func(c *coder, v *[]jobs.Limit) { list(c, v, 2, wireLimit) })
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
	some(c, &s.Route, text)
	some(c, &s.RouteBy, wireString)
	some(c, &s.Needs, func(c *coder, v *[]string) { list(c, v, 1, wireString) })
	some(c, &s.Pin, wireString)
	some(c, &s.PinAway, text)
	some(c, &s.CodeVersion, text)
	some(c, &s.Slots, signed)
	some(c, &s.First, (*coder).time)
	some(c, &s.TTL, signed)
	some(c, &s.Early, signed)
	some(c, &s.Jitter, signed)
	some(c, &s.Calendars, func(c *coder, v *[]string) { list(c, v, 1, wireString) })
	if s.Limits != nil {
		wireMore(c, *s.Limits)
	}
	some(c, &s.Rate, wireRate)
	some(c, &s.RetryFactor, (*coder).float)
	some(c, &s.RetryJitter, text)
	some(c, &s.RetryRules, wireRules)
	some(c, &s.RetryBudget, wireRate)
	some(c, &s.PauseAfter, signed)
	some(c, &s.HTTP, bytesOf)
	some(c, &s.OnSuccess, wireStrings)
	some(c, &s.OnFailure, wireStrings)
	some(c, &s.Parent, wireString)
	some(c, &s.KeepFor, signed)
	some(c, &s.KeepSucceeded, signed)
	some(c, &s.KeepOthers, signed)
	some(c, &s.Handler, wireString)
	some(c, &s.Exec, bytesOf)
	some(c, &s.After, wireStrings)
	some(c, &s.AfterWithin, signed)
	some(c, &s.AfterSpan, signed)
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
	text(c, &p.Route)
	text(c, &p.RouteBy)
	list(c, &p.Needs, 1, wireString)
	text(c, &p.Pin)
	text(c, &p.PinAway)
	text(c, &p.CodeVersion)
	signed(c, &p.Slots)
	c.time(&p.First)
	signed(c, &p.TTL)
	signed(c, &p.Early)
	signed(c, &p.Jitter)
	list(c, &p.Calendars, 1, wireString)
	wireMore(c, p.Limits)
	wireRate(c, &p.Rate)
	c.float(&p.RetryFactor)
	text(c, &p.RetryJitter)
	wireRules(c, &p.RetryRules)
	wireRate(c, &p.RetryBudget)
	signed(c, &p.PauseAfter)
	bytesOf(c, &p.HTTP)
	list(c, &p.OnSuccess, 1, wireString)
	list(c, &p.OnFailure, 1, wireString)
	text(c, &p.Parent)
	signed(c, &p.KeepFor)
	signed(c, &p.KeepSucceeded)
	signed(c, &p.KeepOthers)
	text(c, &p.Handler)
	bytesOf(c, &p.Exec)
	list(c, &p.After, 1, wireString)
	signed(c, &p.AfterWithin)
	signed(c, &p.AfterSpan)
}

func wireHeld(c *coder, p *Held) {
	text(c, &p.Reason)
	text(c, &p.By)
	c.time(&p.At)
	c.time(&p.Until)
	signed(c, &p.Failed)
	c.id(&p.Run)
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
	some(c, &d.AfterPause, wireAfterPause)
	c.time(&d.Created)
	c.time(&d.Edited)
	number(c, &d.Revision)
	number(c, &d.Change)
	number(c, &d.Defaults)
	c.time(&d.Cursor)
	c.time(&d.Missed)
	c.time(&d.SetAt)
	c.time(&d.Anchor)
	c.time(&d.TTLFrom)
	c.time(&d.Deleted)
	list(c, &d.Undecided, 8, wireEarlier)
	list(c, &d.Ahead, 8, wireEarlier)
	list(c, &d.Silences, 3, wireSilence)
	c.id(&d.Running)
	c.time(&d.Ended)
	c.time(&d.Stopped)
	signed(c, &d.Failing)
	c.time(&d.Purged)
	number(c, &d.Executions)
	c.bool(&d.Registered)
	text(c, &d.Bundle)
	list(c, &d.BundleFields, 1, wireString)
}

func wireEarlier(c *coder, e *Earlier) {
	text(c, &e.Schedule)
	text(c, &e.Zone)
	c.time(&e.Start)
	c.time(&e.End)
	text(c, &e.Gap)
	text(c, &e.Twice)
	c.time(&e.SetAt)
	c.time(&e.Anchor)
	c.time(&e.TTLFrom)
	c.time(&e.Until)
	c.time(&e.First)
	signed(c, &e.TTL)
	wireStrings(c, &e.Calendars)
	c.time(&e.Decided)
}

func wireSilence(c *coder, s *Silence) { word(c, &s.Why); c.time(&s.From); c.time(&s.Until) }

func wireAfterPause(c *coder, a *AfterPause) { c.bool(&a.Discard); c.time(&a.From); text(c, &a.By) }

func wireDebug(c *coder, d *Debug) { c.bool(&d.On); text(c, &d.By); c.time(&d.At); c.bool(&d.Discard) }

func wireGlobal(c *coder, g *Global) {
	text(c, &g.Tenant)
	wireDebug(c, &g.RecurringDebug)
	wireDebug(c, &g.TriggeredDebug)
	signed(c, &g.MisfireAfter)
	number(c, &g.Revision)
	signed(c, &g.MaxJobs)
	signed(c, &g.Jobs)
	signed(c, &g.Admins)
	number(c, &g.Audits)
	bytesOf(c, &g.AuditHead)
	number(c, &g.AuditsFrom)
	list(c, &g.AuditSinks, 7, wireAuditSink)
	number(c, &g.Calendars)
	signed(c, &g.CalendarCount)
	text(c, &g.NewJobs)
	wireLimits(c, &g.AppLimits)
	some(c, &g.RetryBudget, wireRate)
	c.time(&g.Purged)
	wireTenancy(c, &g.Tenancy)
	signed(c, &g.Tenants)
	signed(c, &g.Batches)
	wireFile(c, &g.File)
	c.row(func(c *coder) { wireSettings(c, &g.Defaults) })
	list(c, &g.Apps, 2, func(c *coder, a *AppDefaults) {
		text(c, &a.App)
		c.row(func(c *coder) { wireSettings(c, &a.Set) })
	})
	list(c, &g.Setters, 4, func(c *coder, m *Setter) {
		text(c, &m.App)
		text(c, &m.Name)
		text(c, &m.By)
		c.time(&m.At)
	})
	list(c, &g.Silences, 3, wireSilence)
}

func wireFile(c *coder, f *File) {
	some(c, &f.RecurringDebug, (*coder).bool)
	some(c, &f.TriggeredDebug, (*coder).bool)
	some(c, &f.NewJobs, text)
	c.row(func(c *coder) { wireSettings(c, &f.Defaults) })
	text(c, &f.By)
	c.time(&f.At)
}

func wireGate(c *coder, g *Gate) {
	text(c, &g.Tenant)
	text(c, &g.Name)
	signed(c, &g.Limit)
	signed(c, &g.Taken)
	signed(c, &g.Late)
	wireRate(c, &g.Rate)
	c.time(&g.Opens)
	signed(c, &g.Admitted)
	list(c, &g.Runs, 16, (*coder).id)
}

func wireUnique(c *coder, u *UniqueKey) {
	text(c, &u.Tenant)
	text(c, &u.Name)
	c.id(&u.ID)
	c.id(&u.Digest)
	c.time(&u.Until)
	word(c, &u.Code)
}

func wireMissed(c *coder, m *Missed) {
	text(c, &m.Tenant)
	c.id(&m.Job)
	text(c, &m.Key)
	c.time(&m.From)
	c.time(&m.To)
	number(c, &m.Count)
	text(c, &m.Reason)
	list(c, &m.Parents, 4, wireEnded)
}

func wireStoreRow(c *coder, s *StoreRow) {
	number(c, &s.Changes)
	number(c, &s.Term)
	text(c, &s.Leader)
	c.time(&s.At)
	number(c, &s.ApplyVersion)
	number(c, &s.Turns)
	number(c, &s.Version)
	signed(c, &s.Named)
	signed(c, &s.NamedBefore)
	bytesOf(c, &s.LedgerSeed)
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
		case RowRun:
			wireAs(c, r, wireRun)
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
		case RowToken:
			wireAs(c, r, wireToken)
		case RowSession:
			wireAs(c, r, wireSession)
		case RowAudit:
			wireAs(c, r, wireAudit)
		case RowHistory:
			wireAs(c, r, wireHistory)
		case RowCalendar:
			wireAs(c, r, wireCalendar)
		case RowFollowers:
			wireAs(c, r, wireFollowers)
		case RowOccasion:
			wireAs(c, r, wireOccasion)
		case RowBatch:
			wireAs(c, r, wireBatch)
		case RowParcel:
			wireAs(c, r, wireParcel)
		case RowAlarmSettings:
			wireAs(c, r, wireAlarmSettings)
		case RowAlarm:
			wireAs(c, r, wireAlarm)
		default:
			c.fail(fmt.Sprintf("unknown kind of row %d", kind))
		}
	})
}
