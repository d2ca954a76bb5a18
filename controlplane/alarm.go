package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Alarms: what fails or is missed raises them in its commit. The leader finds the conditions of time (conditions.go),
// ends alarms, and sends: it looks at rows only, so that another leader goes on where this one stopped. A message that
// was sent when a leader died is sent again, with the same ID.

const (
	// alarmsEvery is how often it is looked what is to be sent; conditionsEvery is how often at conditions.
	alarmsEvery, conditionsEvery = time.Second, 10 * time.Second
	// keepAlarms is how long ended alarms are kept.
	keepAlarms = 30 * 24 * time.Hour
)

// messages counts messages of alarms, and the alarms that are open while this process leads.
type messages struct {
	sent, failed atomic.Uint64
	open         atomic.Int64
}

// Messages returns how many messages of alarms this process has sent, how often it failed to, and how many alarms are
// open; 0 if it does not lead.
func (cp *ControlPlane) Messages() (sent, failed uint64, open int64) {
	return cp.messages.sent.Load(), cp.messages.failed.Load(), cp.messages.open.Load()
}

// alarmPost is what is under way to targets, in one term.
type alarmPost struct {
	mu    sync.Mutex
	busy  map[alarmTarget]bool
	again chan struct{} // a target is free again
}

type alarmTarget struct {
	tenant jobs.Tenant
	name   string
}

// take has a target be sent to, unless it is already, or its tenant has its share of what may be under way.
func (p *alarmPost) take(to alarmTarget) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := 0
	for other := range p.busy {
		if other.tenant == to.tenant {
			own++
		}
	}
	if p.busy[to] || !kernel.AlarmMessages.Room(own, len(p.busy)) {
		return false
	}
	p.busy[to] = true
	return true
}

// alarms looks after alarms until ctx ends.
func (cp *ControlPlane) alarms(ctx context.Context) error {
	ticker := time.NewTicker(alarmsEvery)
	defer ticker.Stop()
	poke(cp.ruled)
	d := cp.duty("alarms")
	post := &alarmPost{busy: map[alarmTarget]bool{}, again: make(chan struct{}, 1)}
	look := conditions{cp: cp}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cp.messages.open.Store(0)
	for {
		select {
		case <-ticker.C:
		case <-cp.ruled:
			ticker.Reset(alarmsEvery)
		case <-post.again:
		case <-ctx.Done():
			return ctx.Err()
		}
		d.begin()
		none, err := cp.alarmsOnce(ctx, post, &look, &sending)
		if none { // until a target is set
			ticker.Stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			cp.episodes.Began(episode.Level(err), "", "alarms are held up", "err", err)
		} else {
			cp.episodes.End("", "alarms are held up")
		}
		if err := d.end(err); err != nil {
			return err
		}
	}
}

// alarmsOnce looks once at what is to be raised, ended and sent. It reports whether there are no rules and targets.
func (cp *ControlPlane) alarmsOnce(ctx context.Context, post *alarmPost, look *conditions, sending *sync.WaitGroup) (none bool, err error) {
	list, err := cp.cfg.Store.AlarmSettings(ctx, "*")
	if err != nil || len(list) == 0 {
		return err == nil, err
	}
	settings := map[jobs.Tenant]*kernel.AlarmSettings{}
	for _, s := range list {
		settings[s.Tenant] = s
	}
	unsettled, err := cp.cfg.Store.Alarms(ctx, metastore.AlarmQuery{Tenant: "*", Which: metastore.UnsettledAlarm})
	if err != nil {
		return false, err
	}
	now := cp.cfg.Clock.Now()
	if now.Sub(look.at) >= conditionsEvery {
		look.at = now
		if err := look.find(ctx, list, unsettled, now); err != nil {
			return false, err
		}
		if err := cp.dropAlarms(ctx, list, now); err != nil {
			return false, err
		}
	}
	cp.messages.open.Store(int64(len(unsettled)))
	for _, a := range unsettled {
		if !a.Ended.IsZero() {
			cp.messages.open.Add(-1)
		}
		rule := settings[a.Tenant].Rule(a.Rule)
		if a.Ended.IsZero() {
			why := "the rule was deleted"
			if rule != nil {
				why = alarms.Over(a, rule, now)
			}
			if err := cp.endAlarm(ctx, a, why); err != nil {
				return false, err
			}
		}
		for i := range a.Sends {
			cp.send(ctx, post, sending, settings[a.Tenant], a, rule, &a.Sends[i], now)
		}
	}
	return false, nil
}

// endAlarm ends an alarm if there is a reason to.
func (cp *ControlPlane) endAlarm(ctx context.Context, a *kernel.Alarm, why string) error {
	if why == "" {
		return nil
	}
	r := cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(a.Tenant, kernel.EndAlarm{Rule: a.Rule, Job: a.Job, App: a.App, N: a.N, Why: why})})[0]
	return unlessRefused(r.Err)
}

// unlessRefused returns an error after which the pass is tried again: not a refusal, as in a tenant that is being
// deleted, which must hold up no other.
func unlessRefused(err error) error {
	switch jobs.CodeOf(err) {
	case jobs.NotFound, jobs.Conflict, jobs.Stale, jobs.Forbidden:
		return nil
	}
	return err
}

// send begins to send what a target is to get now, unless something is under way to it.
func (cp *ControlPlane) send(ctx context.Context, post *alarmPost, sending *sync.WaitGroup, s *kernel.AlarmSettings, a *kernel.Alarm, rule *kernel.AlarmRule, to *kernel.AlarmSend, now time.Time) {
	if news, _ := alarms.Due(a, rule, to, now); news == "" {
		return
	}
	key := alarmTarget{a.Tenant, to.Target}
	if !post.take(key) {
		return
	}
	target := s.Target(to.Target)
	sending.Go(func() {
		defer func() {
			post.mu.Lock()
			delete(post.busy, key)
			post.mu.Unlock()
			poke(post.again)
		}()
		// The row may have been read before the last message to this target was recorded.
		a, to := cp.alarmNow(ctx, a, to.Target)
		if to == nil {
			return
		}
		if news, _ := alarms.Due(a, rule, to, now); news != "" {
			cp.sent(ctx, a, to, news, cp.deliverAlarm(ctx, target, a, news))
		}
	})
}

// alarmNow reads an alarm again, and how far a target of it is; nil if that cannot be read now.
func (cp *ControlPlane) alarmNow(ctx context.Context, a *kernel.Alarm, target string) (*kernel.Alarm, *kernel.AlarmSend) {
	list, err := cp.cfg.Store.Alarms(ctx, metastore.AlarmQuery{Tenant: a.Tenant, Before: a.N + 1, Limit: 1})
	if err != nil || len(list) == 0 || list[0].N != a.N {
		return nil, nil
	}
	for i := range list[0].Sends {
		if s := &list[0].Sends[i]; s.Target == target {
			return list[0], s
		}
	}
	return nil, nil
}

// deliverAlarm sends a message once.
func (cp *ControlPlane) deliverAlarm(ctx context.Context, t *kernel.AlarmTarget, a *kernel.Alarm, news kernel.AlarmNews) alarms.Answer {
	switch {
	case t == nil:
		return alarms.Answer{Final: true, Text: "the target was deleted"}
	case cp.cfg.Alarm == nil:
		return alarms.Answer{Final: true, Text: "this server sends no alarms"}
	}
	return cp.cfg.Alarm(ctx, alarms.TargetOf(t), alarms.About(a, news, cp.cfg.Page))
}

// sent records an answer. If that fails, the message is sent again.
func (cp *ControlPlane) sent(ctx context.Context, a *kernel.Alarm, to *kernel.AlarmSend, news kernel.AlarmNews, answer alarms.Answer) {
	if ctx.Err() != nil {
		return
	}
	if answer.Delivered {
		cp.messages.sent.Add(1)
	} else {
		cp.messages.failed.Add(1)
	}
	now := cp.cfg.Clock.Now()
	k := kernel.SentAlarm{Rule: a.Rule, Job: a.Job, App: a.App, N: a.N, Reported: a.Count,
		Sent: kernel.AlarmSent{Target: to.Target, At: now, What: news, Status: answer.Status, Text: answer.Text, OK: answer.Delivered}}
	if wait := alarms.Retry(to.Tries + 1); !answer.Delivered && !answer.Final && wait > 0 {
		k.Next = now.Add(max(wait, answer.After))
	}
	if !answer.Delivered {
		cp.episodes.Failed(slog.LevelWarn, to.Target, "an alarm was not delivered", "tenant", a.Tenant, "alarm", a.N, "target", to.Target, "status", answer.Status, "err", answer.Text)
	}
	if r := cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(a.Tenant, k)})[0]; r.Err != nil && ctx.Err() == nil {
		cp.episodes.Failed(episode.Level(r.Err), to.Target, "the record of a message of an alarm was not stored: it is sent again", "err", r.Err)
	}
}

// dropAlarms deletes the ended alarms of each tenant that are old, or too many.
func (cp *ControlPlane) dropAlarms(ctx context.Context, list []*kernel.AlarmSettings, now time.Time) error {
	for _, s := range list {
		ended, err := cp.cfg.Store.Alarms(ctx, metastore.AlarmQuery{Tenant: s.Tenant})
		if err != nil {
			return err
		}
		var drop []uint64
		for i, a := range ended {
			if !a.Ended.IsZero() && (i >= kernel.MaxAlarms || now.Sub(a.Ended) > keepAlarms) && len(drop) < kernel.MaxTrim {
				drop = append(drop, a.N)
			}
		}
		if len(drop) == 0 {
			continue
		}
		if r := cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(s.Tenant, kernel.PurgeAlarms{N: drop})})[0]; unlessRefused(r.Err) != nil {
			return fmt.Errorf("drop old alarms: %w", r.Err)
		}
	}
	return nil
}
