package episode_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// written is a log whose lines are compared.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) lines() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.FieldsFunc(w.b.String(), func(r rune) bool { return r == '\n' })
}

func newLog(level slog.Level) (*episode.Log, *written) {
	w := &written{}
	return episode.New(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))), w
}

func want(t *testing.T, w *written, lines ...string) {
	t.Helper()
	if got := w.lines(); strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// Failures that repeat are a line when they begin and a line when they have stopped, with count and duration.
func TestBeginningAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		for range 40 {
			l.Failed(slog.LevelWarn, "", "the store fails", "err", "down")
			time.Sleep(time.Second)
		}
		want(t, w, `level=WARN msg="the store fails" err=down`)
		time.Sleep(episode.Quiet)
		want(t, w, `level=WARN msg="the store fails" err=down`, `level=INFO msg="the store fails: ended" err=down count=40 took=39s`)
		l.Failed(slog.LevelWarn, "", "the store fails", "err", "again")
		if got := w.lines(); len(got) != 3 || got[2] != `level=WARN msg="the store fails" err=again` {
			t.Errorf("after its end an episode begins anew: %q", got)
		}
	})
}

// Reminders come after 1, 5, 30 and 60 minutes, then hourly.
func TestReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		l.Began(slog.LevelWarn, "", "disconnected", "err", "EOF")
		time.Sleep(3*time.Hour + time.Second)
		l.End("", "disconnected")
		l.End("", "disconnected")
		want(t, w, `level=WARN msg=disconnected err=EOF`,
			`level=WARN msg="disconnected: continues" err=EOF count=1 took=1m0s`,
			`level=WARN msg="disconnected: continues" err=EOF count=1 took=5m0s`,
			`level=WARN msg="disconnected: continues" err=EOF count=1 took=30m0s`,
			`level=WARN msg="disconnected: continues" err=EOF count=1 took=1h0m0s`,
			`level=WARN msg="disconnected: continues" err=EOF count=1 took=2h0m0s`,
			`level=WARN msg="disconnected: continues" err=EOF count=1 took=3h0m0s`,
			`level=INFO msg="disconnected: ended" err=EOF count=1 took=3h0m1s`)
	})
}

// Reminders come from failures that repeat, too, with the latest cause.
func TestRemindersOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		for i := range 62 {
			l.Failed(slog.LevelError, "", "full", "err", i)
			time.Sleep(time.Second)
		}
		want(t, w, `level=ERROR msg=full err=0`, `level=ERROR msg="full: continues" err=60 count=61 took=1m0s`)
	})
}

// One failure is one line; subjects have their own episodes; a worse level is worth a line; a short trouble none.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		l.Failed(slog.LevelWarn, "a", "once", "node", "a")
		l.Failed(slog.LevelWarn, "b", "once", "node", "b")
		for range 4 {
			l.Lasts(5*time.Second, slog.LevelWarn, "", "not yet")
			time.Sleep(time.Second)
		}
		l.End("", "not yet")
		time.Sleep(time.Minute)
		want(t, w, `level=WARN msg=once node=a`, `level=WARN msg=once node=b`)
	})
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		for range 7 {
			l.Lasts(5*time.Second, slog.LevelWarn, "", "not yet")
			time.Sleep(time.Second)
		}
		l.Lasts(0, slog.LevelError, "", "not yet")
		l.End("", "not yet")
		want(t, w, `level=WARN msg="not yet"`, `level=ERROR msg="not yet"`, `level=INFO msg="not yet: ended" count=8 took=7s`)
	})
}

// With level Debug, every failure is a line.
func TestDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelDebug)
		l.Failed(slog.LevelWarn, "", "fails", "err", 1)
		l.Failed(slog.LevelWarn, "", "fails", "err", 2)
		want(t, w, `level=WARN msg=fails err=1`, `level=DEBUG msg=fails err=2`)
	})
}

// However many subjects fail, the log and the memory stay small.
func TestManySubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		for i := range 10_000 {
			l.Failed(slog.LevelWarn, fmt.Sprint(i), "stranger")
		}
		if n := len(w.lines()); n > 300 {
			t.Errorf("10,000 subjects made %d lines", n)
		}
	})
}

// After Reset, no end and no reminder follows.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLog(slog.LevelInfo)
		l.Failed(slog.LevelWarn, "", "fails")
		l.Failed(slog.LevelWarn, "", "fails")
		l.Reset()
		time.Sleep(2 * episode.Quiet)
		want(t, w, `level=WARN msg=fails`)
	})
}

func TestConcurrentUse(t *testing.T) {
	l := episode.New(nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1_000 {
				l.Failed(slog.LevelWarn, fmt.Sprint(i+j%3), "fails")
				l.End(fmt.Sprint(i+j%3), "fails")
			}
		})
	}
	all.Wait()
	l.Reset()
}

func TestLevel(t *testing.T) {
	for err, level := range map[error]slog.Level{
		kernel.Refuse(jobs.Unavailable, "x"): slog.LevelWarn,
		kernel.Refuse(jobs.Unknown, "x"):     slog.LevelWarn,
		kernel.Refuse(jobs.Stale, "x"):       slog.LevelWarn,
		kernel.Refuse(jobs.BadInput, "x"):    slog.LevelError,
		context.DeadlineExceeded:             slog.LevelWarn,
		fmt.Errorf("no space left"):          slog.LevelError,
	} {
		if got := episode.Level(err); got != level {
			t.Errorf("%v: %v, want %v", err, got, level)
		}
	}
}
