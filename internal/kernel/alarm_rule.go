package kernel

import (
	"slices"
	"strings"
	"time"
)

// AlarmRule is what is looked for, and who is notified.
type AlarmRule struct {
	Name    string
	Kind    AlarmKind
	Scope   Scope         // the jobs; of kinds that are OfApps, its apps
	InRow   int           // AlarmFailed: 1 or more
	At      string        // AlarmExpected: time of day, HH:MM
	Zone    string        // of At and Quiet; "" = UTC
	Factor  float64       // AlarmSlow: above 1
	After   time.Duration // AlarmSlow: runs that take less are not slow. AlarmExpected: without At, how long. AlarmBacklog, AlarmNoWorker: how long
	Targets []string
	Urgent  bool          // sent in quiet hours, too
	Quiet   Quiet         // when nothing is sent
	Every   time.Duration // between two messages about one alarm; 0 = DefaultAlarmEvery. It ends when nothing new came for as long
	Off     bool
	By      string
	Edited  time.Time

	Open   int        // alarms of the rule that have not ended
	OpenOf []AppCount // the same by app, without those that have none
}

// AppCount is how many things are an app's.
type AppCount struct {
	App string
	N   int
}

// OpenOfApp returns how many alarms of the rule that have not ended are an app's.
func (r *AlarmRule) OpenOfApp(app string) int {
	if i, ok := r.findApp(app); ok {
		return r.OpenOf[i].N
	}
	return 0
}

func (r *AlarmRule) findApp(app string) (int, bool) {
	return slices.BinarySearchFunc(r.OpenOf, app, func(c AppCount, app string) int { return strings.Compare(c.App, app) })
}

// Count adds n open alarms of an app; there are never fewer than none.
func (r *AlarmRule) Count(app string, n int) {
	r.Open = max(0, r.Open+n)
	i, ok := r.findApp(app)
	r.OpenOf = slices.Clone(r.OpenOf) // rows are shared
	switch {
	case ok && r.OpenOf[i].N+n > 0:
		r.OpenOf[i].N += n
	case ok:
		r.OpenOf = slices.Delete(r.OpenOf, i, i+1)
	case n > 0:
		r.OpenOf = slices.Insert(r.OpenOf, i, AppCount{app, n})
	}
	if len(r.OpenOf) == 0 {
		r.OpenOf = nil
	}
}

// Quiet is hours of each day, such as 22:00 to 07:00. The zero value is none.
type Quiet struct{ From, To string }

// Pause returns Every, or its default.
func (r *AlarmRule) Pause() time.Duration {
	if r.Every > 0 {
		return r.Every
	}
	return DefaultAlarmEvery
}

// Check validates the rule.
func (c SetAlarmRule) Check() error {
	r := &c.Rule
	if err := CheckName("alarm rule", r.Name); err != nil {
		return err
	}
	if strings.Contains(r.Name, "/") {
		return Invalid("invalid alarm rule %q: its name contains a slash", r.Name)
	}
	if !slices.Contains(AlarmKinds, r.Kind) {
		return Invalid("invalid kind of alarm rule %.40q: want one of %v", r.Kind, AlarmKinds)
	}
	if err := r.Scope.Check(RoleOperator); err != nil {
		return err
	}
	if r.Kind.OfApps() && len(r.Scope.Keys)+len(r.Scope.Tags) > 0 {
		return Invalid("alarm rule %s is about apps: limit it to apps, not to jobs or tags", r.Name)
	}
	if len(r.Targets) == 0 || len(r.Targets) > 10 {
		return Invalid("alarm rule %s has %d targets: want 1 to 10", r.Name, len(r.Targets))
	}
	for _, name := range r.Targets {
		if err := CheckName("target of alarms", name); err != nil {
			return err
		}
	}
	if len(r.Zone) > MaxZone {
		return Invalid("time zone has %d bytes, at most %d are allowed", len(r.Zone), MaxZone)
	}
	if (r.Quiet.From == "") != (r.Quiet.To == "") {
		return Invalid("the quiet hours of alarm rule %s need a beginning and an end", r.Name)
	}
	for _, at := range []string{r.At, r.Quiet.From, r.Quiet.To} {
		if _, ok := TimeOfDay(at); at != "" && !ok {
			return Invalid("invalid time of day %.20q of alarm rule %s: want HH:MM, such as 06:00", at, r.Name)
		}
	}
	if r.Every < 0 || r.Every > 0 && r.Every < time.Minute || r.Every > 30*24*time.Hour {
		return Invalid("alarm rule %s: %v between messages: want 1m to 720h, or 0 for %v", r.Name, r.Every, DefaultAlarmEvery)
	}
	return r.checkKind()
}

// checkKind validates what the kind needs, and refuses what it does not read.
func (r *AlarmRule) checkKind() error {
	for _, f := range []struct {
		name  string
		given bool
		kinds []AlarmKind
	}{
		{"failures in a row", r.InRow != 0, []AlarmKind{AlarmFailed}},
		{"a time of day", r.At != "", []AlarmKind{AlarmExpected}},
		{"a factor", r.Factor != 0, []AlarmKind{AlarmSlow}},
		{"a duration", r.After != 0, []AlarmKind{AlarmExpected, AlarmSlow, AlarmBacklog, AlarmNoWorker}},
	} {
		reads := slices.Contains(f.kinds, r.Kind)
		if f.given && !reads {
			return Invalid("alarm rule %s of kind %s has %s, which only rules of kind %v read", r.Name, r.Kind, f.name, f.kinds)
		}
		if !f.given && reads && f.name != "a duration" && r.Kind != AlarmExpected {
			return Invalid("alarm rule %s of kind %s needs %s", r.Name, r.Kind, f.name)
		}
	}
	switch {
	case r.Kind == AlarmExpected && (r.At == "") == (r.After == 0):
		return Invalid("alarm rule %s of kind %s needs either a time of day or a duration", r.Name, r.Kind)
	case r.Kind == AlarmExpected && r.At == "" && r.After < time.Minute:
		return Invalid("alarm rule %s: %v without a success: want 1m or more", r.Name, r.After)
	case r.InRow < 0 || r.InRow > 1000:
		return Invalid("alarm rule %s: %d failures in a row: want 1 to 1000", r.Name, r.InRow)
	case r.Factor != 0 && !(r.Factor > 1 && r.Factor <= 1000):
		return Invalid("alarm rule %s: factor %v: want above 1 and at most 1000", r.Name, r.Factor)
	case r.After < 0 || r.After > 30*24*time.Hour:
		return Invalid("alarm rule %s: duration %v: want 0 to 720h", r.Name, r.After)
	case r.Kind == AlarmBacklog && r.After < time.Second:
		return Invalid("alarm rule %s of kind %s needs a duration of a second or more", r.Name, r.Kind)
	}
	return nil
}

// TimeOfDay returns the minutes since midnight of HH:MM.
func TimeOfDay(text string) (minutes int, ok bool) {
	t, err := time.Parse("15:04", text)
	return t.Hour()*60 + t.Minute(), err == nil && len(text) == 5
}

func wireAlarmRule(c *coder, r *AlarmRule) {
	text(c, &r.Name)
	text(c, &r.Kind)
	wireScope(c, &r.Scope)
	signed(c, &r.InRow)
	text(c, &r.At)
	text(c, &r.Zone)
	c.float(&r.Factor)
	signed(c, &r.After)
	wireStrings(c, &r.Targets)
	c.bool(&r.Urgent)
	text(c, &r.Quiet.From)
	text(c, &r.Quiet.To)
	signed(c, &r.Every)
	c.bool(&r.Off)
	text(c, &r.By)
	c.time(&r.Edited)
	signed(c, &r.Open)
	list(c, &r.OpenOf, 2, func(c *coder, a *AppCount) {
		text(c, &a.App)
		signed(c, &a.N)
	})
}
