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

// Users can change the scheduler's settings of the configuration on the page, too. So the process sends them only if
// they differ from those that it sent last, which configured.json in the data directory records. The last write wins, and its
// actor is shown.

// configured are the scheduler's settings of the configuration.
type configured struct {
	Recurring      *bool           `json:"recurring,omitempty"`
	Triggered      *bool           `json:"triggered,omitempty"`
	MaxConcurrency *int            `json:"maxConcurrency,omitempty"`
	Overlap        *jobs.Overlap   `json:"overlap,omitempty"`
	NewJobs        *kernel.NewJobs `json:"newJobs,omitempty"`
	Keep           keeps           `json:"keep,omitzero"`
	Jobs           string          `json:"jobs,omitempty"` // fingerprint of the watched jobs applied last
}

// command returns the changes in now; false if there are none.
func (before configured) command(now configured) (kernel.Configure, bool) {
	var k kernel.Configure
	if changed(before.Recurring, now.Recurring) {
		k.RecurringDebug = now.Recurring
	}
	if changed(before.Triggered, now.Triggered) {
		k.TriggeredDebug = now.Triggered
	}
	if changed(before.NewJobs, now.NewJobs) {
		k.NewJobs = now.NewJobs
	}
	defaults := now.MaxConcurrency != nil || now.Overlap != nil || now.Keep.set()
	if defaults && (!same(before.MaxConcurrency, now.MaxConcurrency) || !same(before.Overlap, now.Overlap) || !before.Keep.same(&now.Keep)) {
		k.RecurringDefaults = &kernel.Settings{MaxConcurrency: now.MaxConcurrency, Overlap: now.Overlap,
			KeepFor: now.Keep.For, KeepSucceeded: now.Keep.Succeeded, KeepOthers: now.Keep.Others}
		k.TriggeredDefaults = k.RecurringDefaults
	}
	return k, k != kernel.Configure{}
}

// changed reports whether now is set and differs from before.
func changed[T comparable](before, now *T) bool { return now != nil && !same(before, now) }

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// applyConfigured sends the scheduler's settings of the configuration, if they are new.
func (p *process) applyConfigured(ctx context.Context, s *embed.Scheduler) error {
	before, err := p.lastConfigured()
	now := configured{p.cfg.DebugRecurring, p.cfg.DebugTriggered, p.cfg.MaxConcurrency, p.cfg.Overlap, p.cfg.NewJobs, p.cfg.Keep, before.Jobs}
	if err != nil {
		return err
	}
	if k, fresh := before.command(now); fresh {
		who := ops.Who{Actor: "config:" + p.cfg.Node, Reason: "set in the configuration of this node"}
		done, err := s.Ops().Configure(ctx, who, k, ops.HeldRelease)
		if err != nil {
			return fmt.Errorf("apply the settings of the configuration: %w", err)
		}
		p.log.Info("settings changed by the configuration", "recurring_debug", done.RecurringDebug.On, "triggered_debug", done.TriggeredDebug.On, "released", done.Released)
	}
	return p.remember(now)
}

func (p *process) lastConfigured() (configured, error) {
	var last configured
	path := p.dir("configured.json")
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
		return last, fmt.Errorf("read the settings that were applied last: %w", err)
	}
	return last, nil
}

func (p *process) remember(now configured) error {
	path := p.dir("configured.json")
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
		err = os.Rename(path+".new", path) // never a partial file
	}
	if err != nil {
		return fmt.Errorf("record the applied settings: %w", err)
	}
	return nil
}
