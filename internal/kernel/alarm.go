package kernel

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// An alarm is a problem that people are notified of: a rule found it, and messages about it go to the rule's targets. What
// failed or was missed raises it in the commit in which that happened, so that none is lost; conditions of time are found
// by the leader. The leader sends, and ends alarms.

// AlarmKind is what a rule looks for.
type AlarmKind string

// The kinds of rules.
const (
	AlarmFailed   AlarmKind = "failed"    // runs of a job failed for good: InRow of them without a success between
	AlarmMissed   AlarmKind = "missed"    // due times passed that the scheduler did not fire
	AlarmGap      AlarmKind = "gap"       // the ledger of a job has a due time with neither a run nor a reason
	AlarmPaused   AlarmKind = "paused"    // a job has paused itself because its runs failed
	AlarmExpected AlarmKind = "expected"  // a job has not succeeded on a day by a time of day, or for a time
	AlarmSlow     AlarmKind = "slow"      // a run takes Factor times as long as the job's runs do on average
	AlarmBacklog  AlarmKind = "backlog"   // the next run of an app has been ready for longer than After
	AlarmNoWorker AlarmKind = "no_worker" // runs of an app have been ready for longer than After, and it has no worker
)

// AlarmKinds are all kinds, in the order of menus.
var AlarmKinds = []AlarmKind{AlarmFailed, AlarmMissed, AlarmGap, AlarmPaused, AlarmExpected, AlarmSlow, AlarmBacklog, AlarmNoWorker}

// OfApps reports whether alarms of the kind are about an app, and not about a job.
func (k AlarmKind) OfApps() bool { return k == AlarmBacklog || k == AlarmNoWorker }

// The limits of alarms.
const (
	MaxAlarmTargets = 50
	MaxAlarmRules   = 200
	// MaxAlarms is how many ended alarms of a tenant are kept.
	MaxAlarms = 10_000
	// MaxAlarmText limits the text of an alarm, and of a target's answer, in bytes.
	MaxAlarmText = 1024
	// mostSends is how many of the last messages of an alarm are kept.
	mostSends = 20
	// DefaultAlarmEvery is AlarmRule.Every if it is 0.
	DefaultAlarmEvery = 5 * time.Minute
)

// AlarmTarget receives messages. Package alarms checks what a kind needs.
type AlarmTarget struct {
	Name   string
	Kind   string   // one of alarms.Kinds
	URL    string   // secret
	To     []string // addresses of e-mail
	Secret string   // signs, or is a key
	By     string
	Edited time.Time
}

// AlarmSettings are the targets and rules of a tenant: one row.
type AlarmSettings struct {
	Tenant  jobs.Tenant
	Targets []AlarmTarget // by name
	Rules   []AlarmRule   // by name
	Last    uint64        // number of the last alarm
}

// Alarm is one problem of a rule and a job, or app.
type Alarm struct {
	Tenant jobs.Tenant
	N      uint64
	Rule   string
	Kind   AlarmKind
	Job    jobs.Key // "" of kinds that are OfApps
	App    string
	Since  time.Time
	Last   time.Time // when it was found last
	Count  uint64    // how often it was found
	Text   string    // what was found last
	Run    jobs.ID   // the last run that failed; zero = none
	// Pending alarms are not raised yet: there are fewer failures in a row than the rule has.
	Pending   bool
	Succeeded time.Time // of AlarmFailed: when the job succeeded after the last failure; zero = it did not
	Ended     time.Time // zero = it is open
	Why       string    // it ended
	Sends     []AlarmSend
	Sent      []AlarmSent // the last ones, oldest first
}

// AlarmSend is how far a target has been notified.
type AlarmSend struct {
	Target   string
	Reported uint64    // Alarm.Count in the last message that it took; 0 = none was taken
	Closed   bool      // it was notified of the end, or never will be
	At       time.Time // of the last message that it took
	Tries    int       // that failed since
	Next     time.Time // not before; after a failure
}

// AlarmSent is a message that was sent, and its answer.
type AlarmSent struct {
	Target string
	At     time.Time
	What   AlarmNews
	Status int // of HTTP or SMTP; 0 = none
	Text   string
	OK     bool
}

// AlarmNews is what a message says.
type AlarmNews string

// The messages about an alarm.
const (
	AlarmRaised AlarmNews = "raised"
	AlarmAgain  AlarmNews = "again"
	AlarmOver   AlarmNews = "resolved"
)

// SetAlarmTarget creates or replaces a target. An empty URL and Secret stay as they are if the kind does: they are never
// shown.
type SetAlarmTarget struct{ Target AlarmTarget }

// DropAlarmTarget deletes a target. Refused as Conflict while a rule names it. Repeating it changes nothing.
type DropAlarmTarget struct{ Name string }

// SetAlarmRule creates or replaces a rule. Refused as NotFound if there is no such target. Its alarms stay open.
type SetAlarmRule struct{ Rule AlarmRule }

// DropAlarmRule deletes a rule. The leader ends its alarms. Repeating it changes nothing.
type DropAlarmRule struct{ Name string }

// RaiseAlarm records that a rule's condition holds: it opens an alarm, unless one is open. Refused as NotFound if there
// is no such rule, or it is off.
type RaiseAlarm struct {
	Rule string
	Job  jobs.Key
	App  string
	Text string
	Run  jobs.ID
}

// EndAlarm ends an open alarm: its condition does not hold any more, or a person says so. Refused as NotFound if it is
// not open; repeating it changes nothing.
type EndAlarm struct {
	Rule string
	Job  jobs.Key
	App  string
	N    uint64
	Why  string
}

// SentAlarm records that a message was sent, or could not be.
type SentAlarm struct {
	Rule     string
	Job      jobs.Key
	App      string
	N        uint64
	Sent     AlarmSent
	Reported uint64    // Alarm.Count in the message
	Next     time.Time // of a failure: when to try again; zero = never
}

// PurgeAlarms deletes ended alarms, by their numbers.
type PurgeAlarms struct{ N []uint64 }

// Verb returns the verb of each command.
func (SetAlarmTarget) Verb() Verb  { return VerbSetAlarmTarget }
func (DropAlarmTarget) Verb() Verb { return VerbDropAlarmTarget }
func (SetAlarmRule) Verb() Verb    { return VerbSetAlarmRule }
func (DropAlarmRule) Verb() Verb   { return VerbDropAlarmRule }
func (RaiseAlarm) Verb() Verb      { return VerbRaiseAlarm }
func (EndAlarm) Verb() Verb        { return VerbEndAlarm }
func (SentAlarm) Verb() Verb       { return VerbSentAlarm }
func (PurgeAlarms) Verb() Verb     { return VerbPurgeAlarms }

// Check validates the name and the sizes. No error names a secret.
func (c SetAlarmTarget) Check() error {
	t := &c.Target
	if err := CheckName("target of alarms", t.Name); err != nil {
		return err
	}
	if err := CheckName("kind of target", t.Kind); err != nil {
		return err
	}
	if len(t.URL) > 2048 || len(t.Secret) > 1024 {
		return Invalid("the URL or the secret of target %s is too long: want at most 2048 and 1024 bytes of text", t.Name)
	}
	if len(t.To) > 50 {
		return Invalid("target %s has %d addresses, at most 50 are allowed", t.Name, len(t.To))
	}
	for _, to := range t.To {
		if !plainName(to, 320) {
			return Invalid("invalid address %.320q of target %s", to, t.Name)
		}
	}
	return nil
}

// Check validates the name.
func (c DropAlarmTarget) Check() error { return CheckName("target of alarms", c.Name) }

// Check validates the name.
func (c DropAlarmRule) Check() error { return CheckName("alarm rule", c.Name) }

// Check validates the names and the text.
func (c RaiseAlarm) Check() error {
	if len(c.Text) > MaxAlarmText {
		return Invalid("the text of an alarm of rule %s has %d bytes: want at most %d of text", c.Rule, len(c.Text), MaxAlarmText)
	}
	return checkAlarm(c.Rule, c.Job, c.App)
}

// Check validates the names and the text.
func (c EndAlarm) Check() error {
	if len(c.Why) > MaxAlarmText {
		return Invalid("the end of an alarm of rule %s has %d bytes: want at most %d of text", c.Rule, len(c.Why), MaxAlarmText)
	}
	return checkAlarm(c.Rule, c.Job, c.App)
}

// Check validates the names and the answer.
func (c SentAlarm) Check() error {
	if s := &c.Sent; len(s.Text) > MaxAlarmText || !slices.Contains([]AlarmNews{AlarmRaised, AlarmAgain, AlarmOver}, s.What) {
		return Invalid("invalid record of a message of rule %s", c.Rule)
	}
	if err := CheckName("target of alarms", c.Sent.Target); err != nil {
		return err
	}
	return checkAlarm(c.Rule, c.Job, c.App)
}

// Check validates how many there are.
func (c PurgeAlarms) Check() error {
	if len(c.N) > MaxTrim {
		return Invalid("%d alarms at once, at most %d are deleted", len(c.N), MaxTrim)
	}
	return nil
}

func checkAlarm(rule string, job jobs.Key, app string) error {
	if err := CheckName("alarm rule", rule); err != nil {
		return err
	}
	if job != "" {
		return job.Check()
	}
	return CheckName("app", app)
}

// AlarmSettingsRef returns the reference of a tenant's targets and rules.
func AlarmSettingsRef(t jobs.Tenant) Ref { return Ref{Kind: RowAlarmSettings, Tenant: t} }

// OpenAlarmRef returns the reference of an alarm that has not ended: of a rule and a job, or an app.
func OpenAlarmRef(t jobs.Tenant, rule string, job jobs.Key, app string) Ref {
	name := rule + "/job/" + string(job)
	if job == "" {
		name = rule + "/app/" + app
	}
	return Ref{Kind: RowAlarm, Tenant: t, Name: name}
}

// EndedAlarmRef returns the reference of an alarm that has ended.
func EndedAlarmRef(t jobs.Tenant, n uint64) Ref { return Ref{Kind: RowAlarm, Tenant: t, At: int64(n)} }

// Ref returns the reference of the row.
func (s *AlarmSettings) Ref() Ref { return AlarmSettingsRef(s.Tenant) }

// Ref returns the reference of the alarm; another one once it has ended.
func (a *Alarm) Ref() Ref {
	if !a.Ended.IsZero() {
		return EndedAlarmRef(a.Tenant, a.N)
	}
	return OpenAlarmRef(a.Tenant, a.Rule, a.Job, a.App)
}

// Target returns a target, or nil.
func (s *AlarmSettings) Target(name string) *AlarmTarget {
	if s == nil { // of a tenant that is being deleted
		return nil
	}
	for i := range s.Targets {
		if s.Targets[i].Name == name {
			return &s.Targets[i]
		}
	}
	return nil
}

// Rule returns a rule, or nil.
func (s *AlarmSettings) Rule(name string) *AlarmRule {
	if s == nil {
		return nil
	}
	for i := range s.Rules {
		if s.Rules[i].Name == name {
			return &s.Rules[i]
		}
	}
	return nil
}

// About is the job or app of an alarm, for people.
func (a *Alarm) About() string {
	if a.Job != "" {
		return "job " + string(a.Job)
	}
	return "app " + a.App
}

// Record returns the alarm with a message that was sent to a target.
func (a *Alarm) Record(k SentAlarm) *Alarm {
	next := *a
	next.Sends, next.Sent = slices.Clone(a.Sends), slices.Clone(a.Sent)
	at := slices.IndexFunc(next.Sends, func(s AlarmSend) bool { return s.Target == k.Sent.Target })
	if at < 0 {
		at = len(next.Sends)
		next.Sends = append(next.Sends, AlarmSend{Target: k.Sent.Target})
	}
	s := &next.Sends[at]
	switch {
	case k.Sent.OK:
		s.Reported, s.At, s.Tries, s.Next = k.Reported, k.Sent.At, 0, time.Time{}
		s.Closed = s.Closed || k.Sent.What == AlarmOver
	default:
		s.Tries++
		if s.Next = k.Next; k.Next.IsZero() { // given up: nothing more is sent about it
			s.Reported, s.Closed = k.Reported, true
		}
	}
	next.Sent = append(next.Sent, k.Sent)
	next.Sent = next.Sent[max(0, len(next.Sent)-mostSends):]
	return &next
}

// Settled reports whether an alarm has ended and all of its targets know.
func (a *Alarm) Settled() bool {
	return !a.Ended.IsZero() && !slices.ContainsFunc(a.Sends, func(s AlarmSend) bool { return !s.Closed })
}

func wireAlarmTarget(c *coder, t *AlarmTarget) {
	text(c, &t.Name)
	text(c, &t.Kind)
	text(c, &t.URL)
	wireStrings(c, &t.To)
	text(c, &t.Secret)
	text(c, &t.By)
	c.time(&t.Edited)
}

func wireAlarmSettings(c *coder, s *AlarmSettings) {
	text(c, &s.Tenant)
	list(c, &s.Targets, 7, wireAlarmTarget)
	list(c, &s.Rules, 18, wireAlarmRule)
	number(c, &s.Last)
}

func wireAlarm(c *coder, a *Alarm) {
	text(c, &a.Tenant)
	number(c, &a.N)
	text(c, &a.Rule)
	text(c, &a.Kind)
	text(c, &a.Job)
	text(c, &a.App)
	c.time(&a.Since)
	c.time(&a.Last)
	number(c, &a.Count)
	text(c, &a.Text)
	c.id(&a.Run)
	c.bool(&a.Pending)
	c.time(&a.Succeeded)
	c.time(&a.Ended)
	text(c, &a.Why)
	list(c, &a.Sends, 6, func(c *coder, s *AlarmSend) {
		text(c, &s.Target)
		number(c, &s.Reported)
		c.bool(&s.Closed)
		c.time(&s.At)
		signed(c, &s.Tries)
		c.time(&s.Next)
	})
	list(c, &a.Sent, 6, wireAlarmSent)
}

func wireAlarmSent(c *coder, s *AlarmSent) {
	text(c, &s.Target)
	c.time(&s.At)
	text(c, &s.What)
	signed(c, &s.Status)
	text(c, &s.Text)
	c.bool(&s.OK)
}

// wireAlarmCommand carries the commands about alarms; false: verb is another one.
func wireAlarmCommand(c *coder, verb Verb, v *Command) bool {
	switch verb {
	case VerbSetAlarmTarget:
		wireValue(c, v, func(c *coder, k *SetAlarmTarget) { wireAlarmTarget(c, &k.Target) })
	case VerbDropAlarmTarget:
		wireValue(c, v, func(c *coder, k *DropAlarmTarget) { text(c, &k.Name) })
	case VerbSetAlarmRule:
		wireValue(c, v, func(c *coder, k *SetAlarmRule) { wireAlarmRule(c, &k.Rule) })
	case VerbDropAlarmRule:
		wireValue(c, v, func(c *coder, k *DropAlarmRule) { text(c, &k.Name) })
	case VerbRaiseAlarm:
		wireValue(c, v, func(c *coder, k *RaiseAlarm) {
			text(c, &k.Rule)
			text(c, &k.Job)
			text(c, &k.App)
			text(c, &k.Text)
			c.id(&k.Run)
		})
	case VerbEndAlarm:
		wireValue(c, v, func(c *coder, k *EndAlarm) {
			text(c, &k.Rule)
			text(c, &k.Job)
			text(c, &k.App)
			number(c, &k.N)
			text(c, &k.Why)
		})
	case VerbSentAlarm:
		wireValue(c, v, func(c *coder, k *SentAlarm) {
			text(c, &k.Rule)
			text(c, &k.Job)
			text(c, &k.App)
			number(c, &k.N)
			wireAlarmSent(c, &k.Sent)
			number(c, &k.Reported)
			c.time(&k.Next)
		})
	case VerbPurgeAlarms:
		wireValue(c, v, func(c *coder, k *PurgeAlarms) { list(c, &k.N, 1, number[uint64]) })
	default:
		return false
	}
	return true
}
