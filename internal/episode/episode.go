// Package episode logs failures that repeat: a line when they begin, reminders while they last, and a line when they
// end, with their number and duration. Begin with [Log].
package episode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// Quiet is the time without a failure after which an episode has ended.
	Quiet = 30 * time.Second
	// most is how many episodes a Log tracks; further failures of the same message share one.
	most = 256
)

// reminders are the ages at which an episode is logged again; after the last one, every hour.
var reminders = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, time.Hour}

// Suffixes of the messages of later lines: a search for the first line finds all.
const (
	continues = ": continues"
	ended     = ": ended"
)

// Log logs episodes. An episode is all failures with the same message and subject, such as a peer's address. Messages
// must be constant: their number is not bounded here. Repeated failures are logged at level Debug. A nil Log logs nothing.
type Log struct {
	log *slog.Logger

	mu    sync.Mutex
	open  map[id]*episode
	timer *time.Timer // the only one, stopped while there are no episodes
}

type id struct{ message, of string }

type episode struct {
	level       slog.Level
	args        []any // of the last failure
	count       int
	first, last time.Time
	logged      bool // its beginning was
	holds       bool // it ends only with End
	reminded    int
	remind      time.Time
}

// New returns a Log that writes to a logger, by default to none.
func New(to *slog.Logger) *Log {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return &Log{log: to, open: map[id]*episode{}}
}

// Level returns Warn for an error that ends when a store, a bus or a leader returns, and Error for others.
func Level(err error) slog.Level {
	if code, coded := errors.AsType[jobs.Code](err); coded && (code == jobs.Unavailable || code == jobs.Unknown || code == jobs.Stale) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Failed records a failure of a subject. The first one is logged. The episode ends with End, or when none was recorded
// for [Quiet].
func (l *Log) Failed(level slog.Level, of, message string, args ...any) {
	l.record(0, level, of, message, args, false)
}

// Lasts is Failed for what a start or a change of leaders causes, too: nothing is logged before it has lasted for
// patience.
func (l *Log) Lasts(patience time.Duration, level slog.Level, of, message string, args ...any) {
	l.record(patience, level, of, message, args, false)
}

// Began is Failed for a state that is reported once and lasts until End.
func (l *Log) Began(level slog.Level, of, message string, args ...any) {
	l.record(0, level, of, message, args, true)
}

// End ends the episode of a subject, if there is one.
func (l *Log) End(of, message string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.open[id{message, of}]; e != nil {
		l.end(id{message, of}, e, time.Now())
	}
}

// Reset forgets all episodes without a line, when its owner stops.
func (l *Log) Reset() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.open)
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *Log) record(patience time.Duration, level slog.Level, of, message string, args []any, holds bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	of = l.within(of, message)
	e := l.open[id{message, of}]
	if e != nil && !e.holds && now.Sub(e.last) >= Quiet { // the timer is late
		l.end(id{message, of}, e, e.last)
		e = nil
	}
	if e == nil {
		e = &episode{first: now, remind: now.Add(reminders[0])}
		l.open[id{message, of}] = e
	}
	e.count++
	e.last, e.args, e.holds = now, args, holds
	switch {
	case e.logged && level <= e.level && !now.Before(e.remind):
		l.remind(message, e, now)
	case e.logged && level <= e.level, now.Sub(e.first) < patience:
		l.write(slog.LevelDebug, message, args)
	default: // a failure that is worse than before is worth a line, too
		e.logged, e.level = true, level
		l.write(level, message, args)
	}
	if e.count == 1 {
		l.arm(now)
	}
}

// within returns the subject under which a failure is counted: none if there are too many.
func (l *Log) within(of, message string) string {
	if len(l.open) >= most && l.open[id{message, of}] == nil {
		return ""
	}
	return of
}

// end removes an episode. For readers of the log one failure is no episode, unless its end was observed.
func (l *Log) end(of id, e *episode, at time.Time) {
	delete(l.open, of)
	if e.logged && (e.count > 1 || at != e.last) {
		l.write(slog.LevelInfo, of.message+ended, e.with(at))
	}
}

func (e *episode) with(at time.Time) []any {
	return append(e.args[:len(e.args):len(e.args)], "count", e.count, "took", at.Sub(e.first).Round(time.Millisecond))
}

// tick ends and reminds.
func (l *Log) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for of, e := range l.open {
		switch {
		case !e.holds && now.Sub(e.last) >= Quiet:
			l.end(of, e, e.last)
		case e.holds && !now.Before(e.remind):
			l.remind(of.message, e, now)
		}
	}
	l.arm(now)
}

// remind logs that an episode continues.
func (l *Log) remind(message string, e *episode, now time.Time) {
	l.write(e.level, message+continues, e.with(now))
	e.reminded++
	e.remind = now.Add(time.Hour)
	if e.reminded < len(reminders) {
		e.remind = e.first.Add(reminders[e.reminded])
	}
}

// arm sets the timer to the next end or reminder.
func (l *Log) arm(now time.Time) {
	var next time.Time
	for _, e := range l.open {
		at := e.remind
		if !e.holds { // its reminders come with failures
			at = e.last.Add(Quiet)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	switch {
	case next.IsZero():
	case l.timer == nil:
		l.timer = time.AfterFunc(next.Sub(now), l.tick)
	default:
		l.timer.Reset(next.Sub(now))
	}
}

func (l *Log) write(level slog.Level, message string, args []any) {
	l.log.Log(context.Background(), level, message, args...)
}
