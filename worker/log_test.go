package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

func TestLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.start(worker.Config{}, handler(jobs.Options{}, func(ctx context.Context, _ json.RawMessage) error {
			log := jobs.Log(ctx)
			log.Info("begun")
			log.With("customer", "c7").WithGroup("card").Warn("declined", "code", 51, "text", "no money")
			log.Debug("msg", "msg", "kept", "level", 3, "time", "noon")
			log.Info("\x00\xff\xfeend")
			log.Log(ctx, slog.LevelError+2, strings.Repeat("é", 512<<10))
			return nil
		}))
		began := time.Now()
		id := s.create("j", struct{}{})
		time.Sleep(249 * time.Millisecond)
		if len(s.written()) > 0 {
			t.Error("lines are sent before they are a batch")
		}
		time.Sleep(time.Millisecond)
		want := []string{
			"INFO begun",
			`WARN declined customer=c7 card.code=51 card.text="no money"`,
			"DEBUG msg msg=kept level=3 time=noon",
			"INFO \ufffd\ufffdend",
			"ERROR " + strings.Repeat("é", 4<<10),
		}
		lines := s.written()
		if len(lines) != len(want) {
			t.Fatalf("%d lines came, want %d", len(lines), len(want))
		}
		for i, l := range lines {
			if got := l.Level + " " + l.Text; got != want[i] {
				t.Errorf("line %d is %.100q, want %.100q", i, got, want[i])
			}
			if l.Run != id || l.Attempt != 1 || l.Sequence != uint64(i+1) || !l.At.Equal(began) {
				t.Errorf("line %d is of run %s, attempt %d, number %d at %v", i, l.Run, l.Attempt, l.Sequence, l.At)
			}
		}
	})
}

// An echo has what handlers write, and why an attempt failed, with the names of both; success leaves no line.
func TestEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var out strings.Builder
		noTime := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		s.start(worker.Config{Echo: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: noTime}))},
			handler(jobs.Options{Retries: 1}, func(ctx context.Context, _ json.RawMessage) error {
				jobs.Log(ctx).With("customer", "c7").Info("begun")
				jobs.Log(ctx).Debug("below what the echo wants")
				if jobs.Attempt(ctx).Number == 1 {
					return errors.New("no money")
				}
				return nil
			}))
		id := s.create("j", struct{}{})
		time.Sleep(time.Minute)
		synctest.Wait()
		of := func(attempt int) string { return fmt.Sprintf("key=j run=%s attempt=%d ", id, attempt) }
		want := "level=INFO msg=begun " + of(1) + "customer=c7\n" +
			"level=WARN msg=\"attempt failed\" " + of(1) + "err=\"no money\"\n" +
			"level=INFO msg=begun " + of(2) + "customer=c7\n"
		if out.String() != want {
			t.Errorf("the echo is\n%swant\n%s", out.String(), want)
		}
		if n := len(s.written()); n != 4 {
			t.Errorf("%d lines are kept with the run, want 4", n)
		}
	})
}

// Of a handler that writes without end, 1 MiB is kept, and the last line marks the cut.
func TestAnEndlessLogIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.start(worker.Config{}, handler(jobs.Options{}, func(ctx context.Context, _ json.RawMessage) error {
			for i := range 100_000 {
				jobs.Log(ctx).Info("a line of some length, as handlers write them", "i", i)
			}
			return nil
		}))
		s.create("j", struct{}{})
		time.Sleep(time.Second)
		lines := s.written()
		size := 0
		for _, l := range lines {
			size += len(l.Text)
		}
		last := lines[len(lines)-1]
		if size > metastore.MaxLog || !strings.Contains(last.Text, "limit of 1 MiB") {
			t.Errorf("%d bytes in %d lines, the last one %.100q", size, len(lines), last.Text)
		}
	})
}

// The last lines of handlers are sent before the worker leaves.
func TestTheLastLinesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		_, stop := s.start(worker.Config{}, handler(jobs.Options{}, func(ctx context.Context, _ json.RawMessage) error {
			time.Sleep(time.Second)
			jobs.Log(ctx).Info("done")
			return nil
		}))
		s.create("j", struct{}{})
		synctest.Wait()
		stop()
		if lines := s.written(); len(lines) != 1 || lines[0].Text != "done" {
			t.Errorf("lines are %v", lines)
		}
	})
}

// slowBus delays log lines.
type slowBus struct{ worker.Bus }

func (b slowBus) Signal(ctx context.Context, s bus.Signal) error {
	if s.Topic == bus.TopicLog {
		time.Sleep(time.Minute)
	}
	return b.Bus.Signal(ctx, s)
}

// A bus that is slow makes lines pile up to a bound, and no further; handlers do not wait for it.
func TestLinesThatCannotBeSentAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		end := s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"})
		defer end.Close()
		var out strings.Builder
		w, err := worker.New(worker.Config{Name: "w", Logger: slog.New(slog.NewTextHandler(&out, nil))}, s, slowBus{end},
			handler(jobs.Options{}, func(ctx context.Context, _ json.RawMessage) error {
				for range 1000 {
					jobs.Log(ctx).Info(strings.Repeat("x", 900))
				}
				return nil
			}))
		s.must(err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		for range 20 {
			s.wantState(s.create("j", struct{}{}), jobs.Succeeded, "")
		}
		time.Sleep(10 * time.Hour)
		cancel()
		s.must(<-ended)
		size := 0
		for _, l := range s.written() {
			size += len(l.Text)
		}
		if size < 3<<20 || size > 5<<20 {
			t.Errorf("%d bytes of 18 MB were kept, want about 4 MiB", size)
		}
		if !strings.Contains(out.String(), "lines are dropped") {
			t.Error("the cut is not marked")
		}
	})
}
