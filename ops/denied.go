package ops

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Refused requests are entries of the audit: failed sign-ins, and what callers may not do. A request that is refused for
// the first time is recorded within seconds. If it repeats, it is counted and recorded again after a minute, then after
// twice as long each time, up to an hour. New kinds of refused requests are limited for each tenant; those beyond are
// counted together. So no one can push other entries out of the audit by requests that are refused.

const (
	deniedFirst, deniedLeast, deniedMost = 5 * time.Second, time.Minute, time.Hour
	// deniedKinds is how many kinds a tenant may have at once; another one is possible each deniedRefill.
	deniedKinds  = 20
	deniedRefill = 10 * time.Minute
)

// WrongToken is why a token that exists is refused. Its text is that of ErrNotKnown: callers learn nothing.
type WrongToken struct {
	Token *kernel.Token
	Why   string // such as "expired"
}

func (w *WrongToken) Error() string { return ErrNotKnown.Error() }

func (w *WrongToken) Unwrap() error { return ErrNotKnown }

// wrong returns why a token is refused.
func wrong(t *kernel.Token, same bool) error {
	if !same {
		return &WrongToken{t, "the secret of the token is wrong"}
	}
	return &WrongToken{t, "the token was revoked, or expired, at " + t.Until.Format(time.RFC3339)}
}

// Denied is a request that was refused because of who sent it.
type Denied struct {
	Tenant jobs.Tenant // "" = the default tenant
	Actor  string      // "" = unknown
	Target string      // what was requested
	From   string      // address
	Why    string
}

type denied struct {
	times       uint64
	first, last time.Time
	due         time.Time     // when it is recorded, or forgotten if it did not repeat
	pause       time.Duration // before that
}

type denials struct {
	mu    sync.Mutex
	list  map[Denied]*denied
	fresh map[senders]*bucket
	timer *time.Timer // nil = nothing is due
	ended bool        // what comes now is recorded by RecordDenials only
}

// senders have kinds in common: those whom a tenant does not know take none from the others.
type senders struct {
	tenant  jobs.Tenant
	unknown bool
}

type bucket struct {
	free int
	at   time.Time
}

// take reports whether one more kind is possible.
func (b *bucket) take(now time.Time) bool {
	n := int(now.Sub(b.at) / deniedRefill)
	b.free, b.at = min(deniedKinds, b.free+n), b.at.Add(time.Duration(n)*deniedRefill)
	if b.free == 0 {
		return false
	}
	b.free--
	return true
}

// Denied notes a refused request for the audit.
func (o *Ops) Denied(d Denied) {
	if !o.authenticates {
		return
	}
	for _, text := range []*string{&d.Actor, &d.Target, &d.From, &d.Why} {
		*text = plain.Short(*text, kernel.MaxDenialText)
	}
	d.Tenant = Who{Tenant: d.Tenant}.tenant()
	now := o.Now()
	s := &o.denials
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list, s.fresh = map[Denied]*denied{}, map[senders]*bucket{}
	}
	is := s.list[d]
	if is == nil {
		of := senders{d.Tenant, d.Actor == ""}
		if b := s.fresh[of]; b == nil {
			s.fresh[of] = &bucket{deniedKinds - 1, now}
		} else if !b.take(now) {
			d = Denied{Tenant: d.Tenant, Target: "other requests", Why: "more kinds of refused requests than are recorded one by one"}
			is = s.list[d]
		}
	}
	if is == nil {
		is = &denied{pause: deniedFirst, due: now.Add(deniedFirst)}
		s.list[d] = is
	}
	if is.times == 0 {
		is.first = now
	}
	is.times, is.last = is.times+1, now
	o.wakeDenials(now)
}

// FailedSignIn notes for the audit that the sender of a token, or a person whom a provider sent, is not admitted. An
// error of another kind is not noted.
func (o *Ops) FailedSignIn(target, from string, err error) {
	if !errors.Is(err, jobs.Forbidden) {
		none, is := errors.AsType[*NoRights](err)
		if is {
			o.Denied(Denied{Actor: none.Person.Actor(), Target: target, From: from, Why: "no rule gives this person rights"})
		}
		return
	}
	d := Denied{Target: target, From: from, Why: err.Error()}
	if wrong, known := errors.AsType[*WrongToken](err); known {
		d.Tenant, d.Actor, d.Why = wrong.Token.Tenant, whoOf(wrong.Token).Actor, wrong.Why
	}
	o.Denied(d)
}

// wakeDenials sets the timer to the first that is due. The caller holds the mutex.
func (o *Ops) wakeDenials(now time.Time) {
	s := &o.denials
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	var next time.Time
	for _, is := range s.list {
		if next.IsZero() || is.due.Before(next) {
			next = is.due
		}
	}
	if !next.IsZero() && !s.ended {
		s.timer = time.AfterFunc(max(next.Sub(now), time.Millisecond), func() { o.RecordDenials(context.Background(), false) })
	}
}

// RecordDenials writes the refused requests that are due to the audit; with all, those that are not due, too: at the end
// of the process.
func (o *Ops) RecordDenials(ctx context.Context, all bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for tenant, list := range o.dueDenials(all) {
		for len(list) > 0 {
			n := min(len(list), kernel.MaxDenials)
			_, err := o.apply(ctx, Who{Tenant: tenant, Actor: "node:" + o.node, system: true}, kernel.Denied{List: list[:n]})
			if errors.Is(err, jobs.Unavailable) || errors.Is(err, jobs.Exhausted) || ctx.Err() != nil {
				o.keepDenials(tenant, list)
				break
			}
			if err != nil {
				o.log.Warn("refused requests could not be recorded", "tenant", tenant, "err", err)
			}
			list = list[n:]
		}
	}
}

// dueDenials takes what is due.
func (o *Ops) dueDenials(all bool) map[jobs.Tenant][]kernel.Denial {
	now := o.Now()
	s := &o.denials
	s.mu.Lock()
	defer s.mu.Unlock()
	due := map[jobs.Tenant][]kernel.Denial{}
	s.ended = s.ended || all
	for d, is := range s.list {
		switch {
		case !all && is.due.After(now):
		case is.times == 0:
			delete(s.list, d)
		default:
			due[d.Tenant] = append(due[d.Tenant], kernel.Denial{Actor: d.Actor, Target: d.Target, From: d.From, Why: d.Why, Times: is.times, First: is.first, Last: is.last})
			is.times, is.pause = 0, min(max(2*is.pause, deniedLeast), deniedMost)
			is.due = now.Add(is.pause)
		}
	}
	o.wakeDenials(now)
	return due
}

// keepDenials keeps what could not be recorded, for the next time.
func (o *Ops) keepDenials(tenant jobs.Tenant, list []kernel.Denial) {
	s := &o.denials
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range list {
		d := Denied{Tenant: tenant, Actor: k.Actor, Target: k.Target, From: k.From, Why: k.Why}
		is := s.list[d]
		if is == nil {
			is = &denied{pause: deniedLeast, due: o.Now().Add(deniedLeast)}
			s.list[d] = is
		}
		if is.times == 0 {
			is.last = k.Last
		}
		is.first, is.times = k.First, is.times+k.Times
	}
	o.wakeDenials(o.Now())
}
