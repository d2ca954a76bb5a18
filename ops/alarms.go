package ops

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// AlarmSettings returns the targets, without their secrets, and the rules of a tenant, by name.
func (o *Ops) AlarmSettings(ctx context.Context, who Who) (kernel.AlarmSettings, error) {
	s, err := o.alarmSettings(ctx, who)
	s.Targets = slices.Clone(s.Targets)
	for i := range s.Targets {
		s.Targets[i].URL, s.Targets[i].Secret = HostOf(s.Targets[i].URL), ""
	}
	return s, err
}

func (o *Ops) alarmSettings(ctx context.Context, who Who) (kernel.AlarmSettings, error) {
	list, err := o.store.AlarmSettings(ctx, who.tenant())
	if err != nil || len(list) == 0 {
		return kernel.AlarmSettings{Tenant: who.tenant()}, err
	}
	return *list[0], nil
}

// HostOf is what is shown of a target's URL: it may have a key in its path.
func HostOf(text string) string {
	if to, err := url.Parse(text); err == nil && to.Host != "" {
		return to.Scheme + "://" + to.Host + "/***"
	}
	return ""
}

// Alarms lists alarms, newest first; limit is 1 to metastore.MaxPage, 0 = 50.
func (o *Ops) Alarms(ctx context.Context, who Who, which metastore.AlarmState, before uint64, limit int) ([]*kernel.Alarm, error) {
	if which != metastore.AnyAlarm && which != metastore.OpenAlarm && which != metastore.UnsettledAlarm {
		return nil, kernel.Invalid("invalid state of alarms %.20q: want open or unsettled", which)
	}
	if limit <= 0 {
		limit = 50
	}
	return o.store.Alarms(ctx, metastore.AlarmQuery{Tenant: who.tenant(), Which: which, Before: before, Limit: min(limit, metastore.MaxPage)})
}

// Alarm returns one alarm.
func (o *Ops) Alarm(ctx context.Context, who Who, n uint64) (*kernel.Alarm, error) {
	list, err := o.store.Alarms(ctx, metastore.AlarmQuery{Tenant: who.tenant(), Before: n + 1, Limit: 1})
	if err == nil && (len(list) == 0 || list[0].N != n) {
		err = kernel.Refuse(jobs.NotFound, "there is no alarm %d: it has been deleted, or never was", n)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// SetAlarmTarget creates or replaces a target. With usual, the first target of a tenant without rules gets the usual
// ones: failed for good, missed, paused itself, no worker.
func (o *Ops) SetAlarmTarget(ctx context.Context, who Who, t kernel.AlarmTarget, usual bool) error {
	k := kernel.SetAlarmTarget{Target: t}
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	before, err := o.alarmSettings(ctx, who)
	if err != nil {
		return err
	}
	whole := t
	if was := before.Target(t.Name); was != nil && was.Kind == t.Kind { // what is empty stays
		if whole.URL == "" {
			whole.URL = was.URL
		}
		if whole.Secret == "" {
			whole.Secret = was.Secret
		}
	}
	if err := alarms.TargetOf(&whole).Check(); err != nil {
		return err
	}
	if _, err := o.apply(ctx, who, k); err != nil || !usual || len(before.Rules) > 0 {
		return err
	}
	for _, r := range []kernel.AlarmRule{
		{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1}, {Name: "missed", Kind: kernel.AlarmMissed}, {Name: "paused", Kind: kernel.AlarmPaused},
		{Name: "no-worker", Kind: kernel.AlarmNoWorker, After: time.Minute},
	} {
		r.Targets = []string{t.Name}
		if _, err := o.apply(ctx, who, kernel.SetAlarmRule{Rule: r}); err != nil {
			return err
		}
	}
	return nil
}

// DropAlarmTarget deletes a target that no rule names.
func (o *Ops) DropAlarmTarget(ctx context.Context, who Who, name string) error {
	k := kernel.DropAlarmTarget{Name: name}
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	e, err := o.apply(ctx, who, k)
	if err == nil && e.Existing {
		err = kernel.Refuse(jobs.NotFound, "there is no target of alarms %.60q", name)
	}
	return err
}

// SetAlarmRule creates or replaces a rule.
func (o *Ops) SetAlarmRule(ctx context.Context, who Who, r kernel.AlarmRule) error {
	if r.Kind == kernel.AlarmFailed && r.InRow == 0 {
		r.InRow = 1
	}
	k := kernel.SetAlarmRule{Rule: r}
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	if _, err := time.LoadLocation(r.Zone); err != nil || r.Zone == "Local" {
		return kernel.Invalid("unknown time zone %.60q of alarm rule %s: want an IANA name such as Europe/Berlin", r.Zone, r.Name)
	}
	_, err := o.apply(ctx, who, k)
	return err
}

// DropAlarmRule deletes a rule; its open alarms end.
func (o *Ops) DropAlarmRule(ctx context.Context, who Who, name string) error {
	k := kernel.DropAlarmRule{Name: name}
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	e, err := o.apply(ctx, who, k)
	if err == nil && e.Existing {
		err = kernel.Refuse(jobs.NotFound, "there is no alarm rule %.60q", name)
	}
	return err
}

// EndAlarm ends an open alarm by hand. A condition that still holds raises it anew.
func (o *Ops) EndAlarm(ctx context.Context, who Who, n uint64) error {
	a, err := o.Alarm(ctx, who, n)
	if err != nil {
		return err
	}
	why := "ended by " + who.Actor
	if who.Reason != "" {
		why += ": " + who.Reason
	}
	_, err = o.apply(ctx, who, kernel.EndAlarm{Rule: a.Rule, Job: a.Job, App: a.App, N: n, Why: plain.Short(why, kernel.MaxAlarmText)})
	return err
}

// TestAlarmTarget sends a test message to a target, once, and returns the answer.
func (o *Ops) TestAlarmTarget(ctx context.Context, who Who, name string) (alarms.Answer, error) {
	if err := who.unlimited(); err != nil {
		return alarms.Answer{}, err
	}
	s, err := o.alarmSettings(ctx, who)
	if err != nil {
		return alarms.Answer{}, err
	}
	t := s.Target(name)
	switch {
	case t == nil:
		return alarms.Answer{}, kernel.Refuse(jobs.NotFound, "there is no target of alarms %.60q", name)
	case o.sendAlarm == nil:
		return alarms.Answer{}, kernel.Refuse(jobs.Conflict, "this process sends no alarms")
	}
	now := o.Now()
	return o.sendAlarm(ctx, alarms.TargetOf(t), alarms.Message{ID: jobs.NewID(now).String(), Key: "test/" + name, Title: "A test of target " + name,
		Text: "Sent by " + who.Actor + ". Nothing is wrong.", Severity: alarms.Info, At: now, Source: string(who.tenant()), Tenant: who.tenant(),
		Facts: []alarms.Fact{{Name: "Tenant", Value: string(who.tenant())}}}), nil
}

// alarms reports open alarms, and the targets that do not accept messages about them.
func (l *look) alarms() {
	if l.err != nil {
		return
	}
	var list []*kernel.Alarm
	if list, l.err = l.o.Alarms(l.ctx, l.who, metastore.UnsettledAlarm, 0, metastore.MaxPage); l.err != nil || len(list) == 0 {
		return
	}
	settings, err := l.o.alarmSettings(l.ctx, l.who)
	if err != nil {
		l.err = err
		return
	}
	var open []*kernel.Alarm
	failing, last := map[string]int{}, map[string]kernel.AlarmSent{}
	for _, a := range list {
		if a.Ended.IsZero() {
			open = append(open, a)
		}
		for _, s := range a.Sends {
			if s.Tries > 0 {
				failing[s.Target]++
			}
		}
		for _, s := range a.Sent {
			if !s.OK && s.At.After(last[s.Target].At) {
				last[s.Target] = s
			}
		}
	}
	if n := len(open); n > 0 {
		what := count(n, "alarm") + " " + is(n) + " open"
		if n > 1 {
			what += ", the newest"
		}
		l.add(Attention{Kind: Alarmed, N: n, Since: open[0].Since}, "%s: %s.", what, alarms.Title(open[0]))
	}
	for i := range settings.Targets { // in the order of their names
		name := settings.Targets[i].Name
		if n := failing[name]; n > 0 {
			l.add(Attention{Kind: Alarmed, Target: name, N: n, Since: last[name].At}, "Target %s does not accept messages about %s%s.", name, count(n, "alarm"), answerText(last[name]))
		}
	}
}

// answerText is the beginning of an answer, to follow a sentence.
func answerText(s kernel.AlarmSent) string {
	text, _, _ := strings.Cut(strings.TrimSpace(s.Text), "\n")
	if text = strings.TrimSuffix(text, "."); text == "" && s.Status > 0 {
		return fmt.Sprintf(": status %d", s.Status)
	}
	if text == "" {
		return ""
	}
	return ": " + plain.Short(text, 200)
}
