package ops

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Ten thousand jobs have millions of due times within a day. So a forecast is computed piece by piece: each request
// works on it for a moment, and returns the progress if that was not enough. No work is done between requests, no lock
// is held meanwhile, and a complete forecast is cached.
const (
	forecastWork = 2 * time.Second  // that a call works or waits
	forecastKept = time.Minute      // at most, and twenty times as long as it took to make
	forecastOld  = 10 * time.Minute // a forecast that was begun so long ago is started anew
)

// forecasts are the forecasts of tenants.
type forecasts struct {
	mu sync.Mutex
	of map[jobs.Tenant]*sight
}

// sight is the forecast of one tenant.
type sight struct {
	turn chan struct{} // has room for one: the request that fills it works on next
	next *outlook      // in progress; nil = none is

	mu    sync.Mutex
	whole Forecast // the last complete one
	until time.Time
	part  Forecast // the progress of next
}

func (f *forecasts) sight(of jobs.Tenant) *sight {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.of[of]
	if s == nil {
		s = &sight{turn: make(chan struct{}, 1)}
		if f.of == nil {
			f.of = map[jobs.Tenant]*sight{}
		}
		f.of[of] = s
	}
	return s
}

// Forecast counts the planned fires. It returns within about two seconds, if necessary with an incomplete count.
func (o *Ops) Forecast(ctx context.Context, who Who) (Forecast, error) {
	if err := ctx.Err(); err != nil {
		return Forecast{}, err
	}
	s := o.ahead.sight(who.tenant())
	if f, fresh := s.kept(); fresh {
		return f, nil
	}
	end := time.Now().Add(o.forecastWork)
	wait := time.NewTimer(o.forecastWork)
	defer wait.Stop()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-wait.C:
		return s.sofar(o.Now()), nil
	case <-ctx.Done():
		return Forecast{}, ctx.Err()
	}
	if f, fresh := s.kept(); fresh {
		return f, nil
	}
	begun := time.Now()
	if s.next == nil || o.Now().Sub(s.next.now).Abs() > forecastOld {
		s.next = nil
		rows, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant()})
		if err != nil {
			return Forecast{}, err
		}
		global, err := o.store.Global(ctx, who.tenant())
		if err != nil {
			return Forecast{}, err
		}
		now := o.Now()
		s.next = &outlook{o: o, now: now, global: global, Forecast: Forecast{From: now.Truncate(time.Minute), Fires: make([]int, forecastFor)}}
		s.next.gather(rows)
	}
	l := s.next
	for l.counted < len(l.cohorts) {
		l.count(l.cohorts[l.counted])
		l.counted++
		if err := ctx.Err(); err != nil {
			return Forecast{}, err
		}
		if time.Now().After(end) {
			break
		}
	}
	l.took += time.Since(begun)
	if l.counted < len(l.cohorts) {
		s.put(l.sofar())
		return s.sofar(o.Now()), nil
	}
	l.crowd()
	s.next = nil
	s.done(l.Forecast, l.took)
	return l.Forecast, nil
}

// sofar returns what has been counted.
func (l *outlook) sofar() Forecast {
	f := l.Forecast
	f.Fires, f.Going = slices.Clone(f.Fires), true
	for _, c := range l.cohorts[l.counted:] {
		f.Left += len(c.defs)
	}
	return f
}

// kept returns the last complete forecast, while it is fresh.
func (s *sight) kept() (Forecast, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole, time.Now().Before(s.until)
}

func (s *sight) put(part Forecast) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = part
}

func (s *sight) done(f Forecast, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = Forecast{}
	if s.whole, s.until = f, time.Now().Add(min(20*took, forecastKept)); took < quick {
		s.until = time.Time{}
	}
}

// sofar returns the best that is known now: the last complete forecast, while the next one is computed, or the progress
// of that.
func (s *sight) sofar(now time.Time) Forecast {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.whole.Fires != nil && now.Sub(s.whole.From).Abs() < forecastOld:
		return s.whole
	case s.part.Fires != nil:
		return s.part
	}
	return Forecast{From: now.Truncate(time.Minute), Fires: make([]int, forecastFor), Going: true}
}
