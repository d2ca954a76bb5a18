package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// What the configuration says about the scheduler itself is a wish among others: people change the same things on the
// page. So it becomes a command only when it says something new, compared with what this process has said last; what
// it said is remembered in the data directory. The last one to speak wins, and who that was is shown.

// said is what the configuration says about the scheduler.
type said struct {
	Recurring      *bool           `json:"recurring,omitempty"`
	Triggered      *bool           `json:"triggered,omitempty"`
	MaxConcurrency *int            `json:"maxConcurrency,omitempty"`
	Overlap        *jobs.Overlap   `json:"overlap,omitempty"`
	NewJobs        *kernel.NewJobs `json:"newJobs,omitempty"`
	Keep           keeps           `json:"keep,omitzero"`
	Jobs           string          `json:"jobs,omitempty"` // fingerprint of the watched jobs that were applied last
}

// command is what is new in now; false if nothing is.
func (before said) command(now said) (kernel.Configure, bool) {
	var k kernel.Configure
	if news(before.Recurring, now.Recurring) {
		k.RecurringDebug = now.Recurring
	}
	if news(before.Triggered, now.Triggered) {
		k.TriggeredDebug = now.Triggered
	}
	if news(before.NewJobs, now.NewJobs) {
		k.NewJobs = now.NewJobs
	}
	defaults := now.MaxConcurrency != nil || now.Overlap != nil || now.Keep.said()
	if defaults && (!same(before.MaxConcurrency, now.MaxConcurrency) || !same(before.Overlap, now.Overlap) || !before.Keep.same(&now.Keep)) {
		k.RecurringDefaults = &kernel.Settings{MaxConcurrency: now.MaxConcurrency, Overlap: now.Overlap,
			KeepFor: now.Keep.For, KeepSucceeded: now.Keep.Succeeded, KeepOthers: now.Keep.Others}
		k.TriggeredDefaults = k.RecurringDefaults
	}
	return k, k != kernel.Configure{}
}

// news says that something is said now, and that it is not what was said before.
func news[T comparable](before, now *T) bool { return now != nil && !same(before, now) }

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// sayFile makes a command of what the configuration says, if that is new.
func (p *process) sayFile(ctx context.Context, s *embed.Scheduler) error {
	before, err := p.lastSaid()
	now := said{p.cfg.DebugRecurring, p.cfg.DebugTriggered, p.cfg.MaxConcurrency, p.cfg.Overlap, p.cfg.NewJobs, p.cfg.Keep, before.Jobs}
	if err != nil {
		return err
	}
	if k, fresh := before.command(now); fresh {
		who := ops.Who{Actor: "config:" + p.cfg.Node, Reason: "the configuration of this node says so"}
		done, err := s.Ops().Configure(ctx, who, k, ops.HeldRelease)
		if err != nil {
			return fmt.Errorf("say what the configuration says: %w", err)
		}
		p.log.Info("settings changed by the configuration", "recurring_debug", done.RecurringDebug.On, "triggered_debug", done.TriggeredDebug.On, "released", done.Released)
	}
	return p.remember(now)
}

func (p *process) lastSaid() (said, error) {
	var last said
	path := p.dir("said.json")
	if path == "" {
		return last, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &last)
	}
	if err != nil {
		return last, fmt.Errorf("what the configuration said last: %w", err)
	}
	return last, nil
}

func (p *process) remember(now said) error {
	path := p.dir("said.json")
	if path == "" {
		return nil
	}
	raw, err := json.Marshal(now)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // never half a file
	}
	if err != nil {
		return fmt.Errorf("remember what the configuration said: %w", err)
	}
	return nil
}
