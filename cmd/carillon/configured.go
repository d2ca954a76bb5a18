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
	"github.com/carillon-scheduler/carillon/ops"
)

// applyConfigured sends the scheduler's settings of the configuration, if they differ from the stored ones. The store
// has them apart from those that users set, which override them until they are reset. A node whose configuration has
// none leaves those of another node as they are.
func (p *process) applyConfigured(ctx context.Context, s *embed.Scheduler) error {
	who := ops.Who{Actor: "config:" + p.cfg.Node, Reason: "set in the configuration of this node", Role: ops.Admin}
	g, err := s.Ops().Settings(ctx, who)
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	file := p.cfg.Scheduler
	if !file.Same(&g.File) && (!file.Empty() || g.File.By == who.Actor) {
		done, err := s.Ops().Configure(ctx, who, kernel.Configure{File: &file}, ops.HeldRelease)
		if err != nil {
			return fmt.Errorf("apply the settings of the configuration: %w", err)
		}
		g = done.Global
		p.log.Info("settings changed by the configuration", "recurring_debug", g.RecurringDebug.On, "triggered_debug", g.TriggeredDebug.On, "released", done.Released)
	}
	for _, source := range ops.Sources(g) {
		if source.File != nil {
			p.log.Warn("a stored setting overrules the configuration: to undo it, run carillon settings reset NAME",
				"name", source.Name, "value", source.Value, "configured", source.File, "actor", source.By)
		}
	}
	return nil
}

// applied is what this node applied last, in applied.json in its data directory.
type applied struct {
	Jobs string `json:"jobs"` // fingerprint of the watched jobs
}

func (p *process) lastApplied() (applied, error) {
	var last applied
	path := p.dir("applied.json")
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
		return last, fmt.Errorf("read the fingerprint of the jobs that were applied last: %w", err)
	}
	return last, nil
}

func (p *process) remember(now applied) error {
	path := p.dir("applied.json")
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
		return fmt.Errorf("record the applied jobs: %w", err)
	}
	return nil
}
