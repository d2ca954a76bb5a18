package metastore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Alarms: rules and targets, which people set, and the problems that rules find. Runs that fail, due times that are
// missed and jobs that pause themselves are found here, in the commit in which it happens. The leader finds the rest,
// sends, and ends alarms.

func (c *change) alarmSettings() *kernel.AlarmSettings {
	s, _ := c.tx.Get(kernel.AlarmSettingsRef(c.env.Tenant)).(*kernel.AlarmSettings)
	return s
}

// changeAlarms puts the targets and rules after a change to a copy of them.
func (c *change) changeAlarms(change func(*kernel.AlarmSettings)) {
	next := kernel.AlarmSettings{Tenant: c.env.Tenant}
	if s := c.alarmSettings(); s != nil {
		next = *s
		next.Targets, next.Rules = slices.Clone(s.Targets), slices.Clone(s.Rules)
	}
	change(&next)
	c.tx.Put(&next)
}

func (c *change) setAlarmTarget(k kernel.SetAlarmTarget) error {
	want := k.Target
	var was *kernel.AlarmTarget
	s := c.alarmSettings()
	if s != nil {
		was = s.Target(want.Name)
	}
	switch {
	case was == nil && s != nil && len(s.Targets) >= kernel.MaxAlarmTargets:
		return kernel.Exhausted(kernel.BoundAlarmTargets, "too many targets of alarms: %d are allowed (target %s)", kernel.MaxAlarmTargets, want.Name)
	case was != nil && was.Kind == want.Kind:
		if want.Secret == "" && was.Secret != "" && want.URL != "" && hostOf(want.URL) != hostOf(was.URL) {
			return kernel.Invalid("target %s: its secret is not sent to another host: enter it again", want.Name)
		}
		want.URL, want.Secret = cmp.Or(want.URL, was.URL), cmp.Or(want.Secret, was.Secret)
	}
	if want.By, want.Edited = c.env.Actor, c.at; was != nil && was.URL == want.URL && was.Secret == want.Secret && was.Kind == want.Kind && slices.Equal(was.To, want.To) {
		c.effect.Existing = true
		return nil
	}
	c.changeAlarms(func(s *kernel.AlarmSettings) {
		at, there := slices.BinarySearchFunc(s.Targets, want.Name, func(t kernel.AlarmTarget, name string) int { return strings.Compare(t.Name, name) })
		if there {
			s.Targets[at] = want
		} else {
			s.Targets = slices.Insert(s.Targets, at, want)
		}
	})
	before, after := targetFields(was), targetFields(&want)
	if was != nil && (was.URL != want.URL || was.Secret != want.Secret) {
		after["secrets"] = "changed"
	}
	c.audit("alarm target "+want.Name, before, after)
	return nil
}

// hostOf is the host and port in a URL, as far as plain text shows them: the parser of package url may change with its
// version.
func hostOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if end := strings.IndexAny(rest, `/?#\`); end >= 0 {
		rest = rest[:end]
	}
	return strings.ToLower(rest[strings.LastIndexByte(rest, '@')+1:])
}

// targetFields is a target in an audit, without its secrets.
func targetFields(t *kernel.AlarmTarget) fields {
	if t == nil {
		return nil
	}
	f := fields{"kind": t.Kind}
	if len(t.To) > 0 {
		f["to"] = t.To
	}
	return f
}

func (c *change) dropAlarmTarget(k kernel.DropAlarmTarget) error {
	s := c.alarmSettings()
	if s == nil || s.Target(k.Name) == nil {
		c.effect.Existing = true
		return nil
	}
	for i := range s.Rules {
		if slices.Contains(s.Rules[i].Targets, k.Name) {
			return kernel.Refuse(jobs.Conflict, "target %s is used by alarm rule %s: take it out there first", k.Name, s.Rules[i].Name)
		}
	}
	was := *s.Target(k.Name)
	c.changeAlarms(func(s *kernel.AlarmSettings) {
		s.Targets = slices.DeleteFunc(s.Targets, func(t kernel.AlarmTarget) bool { return t.Name == k.Name })
	})
	c.audit("alarm target "+k.Name, targetFields(&was), nil)
	return nil
}

func (c *change) setAlarmRule(k kernel.SetAlarmRule) error {
	want := k.Rule
	s := c.alarmSettings()
	var was *kernel.AlarmRule
	if s != nil {
		was = s.Rule(want.Name)
	}
	for _, name := range want.Targets {
		if s == nil || s.Target(name) == nil {
			return kernel.Refuse(jobs.NotFound, "alarm rule %s: there is no target %q: create it first", want.Name, name)
		}
	}
	if was == nil && s != nil && len(s.Rules) >= kernel.MaxAlarmRules {
		return kernel.Exhausted(kernel.BoundAlarmRules, "too many alarm rules: %d are allowed (rule %s)", kernel.MaxAlarmRules, want.Name)
	}
	before, after := ruleFields(was), ruleFields(&want)
	if want.By, want.Edited, want.Open, want.OpenOf = c.env.Actor, c.at, 0, nil; was != nil {
		if was.Kind != want.Kind {
			return kernel.Refuse(jobs.Conflict, "alarm rule %s is of kind %s, not %s: delete it first, or choose another name", want.Name, was.Kind, want.Kind)
		}
		if want.Open, want.OpenOf = was.Open, was.OpenOf; string(before.json()) == string(after.json()) {
			c.effect.Existing = true
			return nil
		}
	}
	c.changeAlarms(func(s *kernel.AlarmSettings) {
		at, there := slices.BinarySearchFunc(s.Rules, want.Name, func(r kernel.AlarmRule, name string) int { return strings.Compare(r.Name, name) })
		if there {
			s.Rules[at] = want
		} else {
			s.Rules = slices.Insert(s.Rules, at, want)
		}
	})
	c.audit("alarm rule "+want.Name, before, after)
	return nil
}

// ruleFields is a rule in an audit.
func ruleFields(r *kernel.AlarmRule) fields {
	if r == nil {
		return nil
	}
	f := fields{"kind": r.Kind, "targets": r.Targets}
	for name, value := range map[string]string{"scope": r.Scope.String(), "at": r.At, "zone": r.Zone, "quietFrom": r.Quiet.From, "quietTo": r.Quiet.To} {
		if value != "" {
			f[name] = value
		}
	}
	for name, value := range map[string]time.Duration{"after": r.After, "every": r.Every} {
		if value != 0 {
			f[name] = value.String()
		}
	}
	if r.InRow > 0 {
		f["inRow"] = r.InRow
	}
	if r.Factor != 0 {
		f["factor"] = r.Factor
	}
	if r.Urgent {
		f["urgent"] = true
	}
	if r.Off {
		f["off"] = true
	}
	return f
}

func (c *change) dropAlarmRule(k kernel.DropAlarmRule) error {
	s := c.alarmSettings()
	if s == nil || s.Rule(k.Name) == nil {
		c.effect.Existing = true
		return nil
	}
	was := *s.Rule(k.Name)
	c.changeAlarms(func(s *kernel.AlarmSettings) {
		s.Rules = slices.DeleteFunc(s.Rules, func(r kernel.AlarmRule) bool { return r.Name == k.Name })
	})
	c.audit("alarm rule "+k.Name, ruleFields(&was), nil)
	return nil
}

// finding is what a rule found.
type finding struct {
	job  jobs.Key
	app  string
	text string
	run  jobs.ID
	n    uint64 // how many
}

// alarmed raises alarms of the rules of a kind that a job is in.
func (c *change) alarmed(kind kernel.AlarmKind, f finding) {
	s := c.alarmSettings()
	if s == nil {
		return
	}
	var tags []string
	known := false
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Kind != kind || r.Off {
			continue
		}
		if len(r.Scope.Tags) > 0 && !known {
			if d := c.row(f.job); d != nil {
				tags = d.Policy.Tags
			}
			known = true
		}
		if r.Scope.Has(f.job, f.app, tags) {
			c.raise(r, f)
		}
	}
}

// ofAnother reports whether a count, of what is not yet an alarm, is that of a deleted rule with the same name.
func ofAnother(a *kernel.Alarm, r *kernel.AlarmRule) bool { return a.Pending && a.Kind != r.Kind }

// raise opens an alarm, or adds what was found to the open one.
func (c *change) raise(r *kernel.AlarmRule, f finding) {
	key := f.job
	if r.Kind.OfApps() {
		key = ""
	}
	a, _ := c.tx.Get(kernel.OpenAlarmRef(c.env.Tenant, r.Name, key, f.app)).(*kernel.Alarm)
	next := kernel.Alarm{Tenant: c.env.Tenant, Rule: r.Name, Kind: r.Kind, Job: key, App: f.app, Since: c.at, Pending: true}
	if a != nil && !ofAnother(a, r) {
		next = *a
	}
	next.Last, next.Text, next.Run, next.Succeeded = c.at, f.text, f.run, time.Time{}
	next.Count += f.n
	if next.Pending && next.Count >= uint64(max(1, r.InRow)) {
		if now := c.alarmSettings().Rule(r.Name); !kernel.OpenAlarms.Room(now.OpenOfApp(f.app), now.Open) {
			if a != nil { // it waits for room
				c.tx.Put(&next)
			}
			return
		}
		next.Pending, next.Since = false, c.at
		for _, name := range r.Targets {
			next.Sends = append(next.Sends, kernel.AlarmSend{Target: name})
		}
		c.changeAlarms(func(s *kernel.AlarmSettings) {
			s.Last++
			next.N = s.Last
			s.Rule(r.Name).Count(f.app, 1)
		})
	}
	c.tx.Put(&next)
}

// alarms follows a run that has ended.
func (c *change) alarms(run *kernel.Run) {
	if run.State == jobs.Terminated {
		c.alarmed(kernel.AlarmFailed, finding{run.Key, run.App, cut(run.Error, kernel.MaxAlarmText), run.ID, 1})
		return
	}
	s := c.alarmSettings()
	if s == nil || run.State != jobs.Succeeded {
		return
	}
	for i := range s.Rules {
		if r := &s.Rules[i]; r.Kind == kernel.AlarmFailed {
			a, _ := c.tx.Get(kernel.OpenAlarmRef(c.env.Tenant, r.Name, run.Key, run.App)).(*kernel.Alarm)
			switch {
			case a == nil || !a.Succeeded.IsZero():
			case a.Pending:
				c.tx.Delete(a.Ref())
			default:
				next := *a
				next.Succeeded = c.at
				c.tx.Put(&next)
			}
		}
	}
}

func (c *change) raiseAlarm(k kernel.RaiseAlarm) error {
	s := c.alarmSettings()
	if s == nil || s.Rule(k.Rule) == nil || s.Rule(k.Rule).Off {
		return kernel.Refuse(jobs.NotFound, "there is no alarm rule %q, or it is off", k.Rule)
	}
	job := k.Job
	if s.Rule(k.Rule).Kind.OfApps() {
		job = ""
	}
	if a, _ := c.tx.Get(kernel.OpenAlarmRef(c.env.Tenant, k.Rule, job, k.App)).(*kernel.Alarm); a != nil && !ofAnother(a, s.Rule(k.Rule)) {
		c.effect.Existing = true
		return nil
	}
	c.raise(s.Rule(k.Rule), finding{k.Job, k.App, k.Text, k.Run, 1})
	return nil
}

// alarmOf returns an alarm, open or ended.
func (c *change) alarmOf(rule string, job jobs.Key, app string, n uint64) *kernel.Alarm {
	if a, _ := c.tx.Get(kernel.OpenAlarmRef(c.env.Tenant, rule, job, app)).(*kernel.Alarm); a != nil && a.N == n {
		return a
	}
	a, _ := c.tx.Get(kernel.EndedAlarmRef(c.env.Tenant, n)).(*kernel.Alarm)
	if a != nil && a.Rule != rule {
		return nil
	}
	return a
}

func (c *change) endAlarm(k kernel.EndAlarm) error {
	a := c.alarmOf(k.Rule, k.Job, k.App, k.N)
	switch {
	case a == nil:
		return kernel.Refuse(jobs.NotFound, "there is no alarm %d of rule %s about %s", k.N, k.Rule, cmp.Or(string(k.Job), k.App))
	case !a.Ended.IsZero():
		c.effect.Existing = true
		return nil
	}
	c.tx.Delete(a.Ref())
	if a.Pending {
		return nil
	}
	next := *a
	next.Ended, next.Why = c.at, k.Why
	c.tx.Put(&next)
	c.changeAlarms(func(s *kernel.AlarmSettings) {
		if r := s.Rule(k.Rule); r != nil {
			r.Count(a.App, -1)
		}
	})
	if c.byPerson() {
		c.audit(fmt.Sprintf("alarm %d of rule %s about %s", a.N, a.Rule, a.About()), nil, nil)
	}
	return nil
}

func (c *change) sentAlarm(k kernel.SentAlarm) error {
	a := c.alarmOf(k.Rule, k.Job, k.App, k.N)
	if a == nil {
		return kernel.Refuse(jobs.NotFound, "there is no alarm %d of rule %s", k.N, k.Rule)
	}
	if n := len(a.Sent); n > 0 && a.Sent[n-1] == k.Sent { // a repeated command
		c.effect.Existing = true
		return nil
	}
	c.tx.Put(a.Record(k))
	return nil
}

func (c *change) purgeAlarms(k kernel.PurgeAlarms) error {
	for _, n := range k.N {
		if a, _ := c.tx.Get(kernel.EndedAlarmRef(c.env.Tenant, n)).(*kernel.Alarm); a != nil {
			c.tx.Delete(a.Ref())
		}
	}
	return nil
}
