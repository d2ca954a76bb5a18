package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker/execjob"
)

func (h *workerProcess) addExecFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&h.exec, "exec", false, "run jobs that are commands (setting exec) instead of HTTP jobs")
	f.StringSliceVar(&h.commands.Allow, "exec-allow", nil, "programs that may run, comma-separated: /opt/jobs/*,/usr/bin/rsync; * allows all")
	f.StringVar(&h.commands.Shell, "exec-shell", "", "shell for scripts, such as /bin/sh; it allows any script (default: scripts are refused)")
	f.StringSliceVar(&h.commands.Users, "exec-users", nil, "users as whom commands may run, comma-separated; needs root; a job must then name one of them")
	f.StringSliceVar(&h.commands.Env, "exec-env", nil, "environment variables that jobs may set, comma-separated (default: none, or all with --exec-shell or --exec-allow '*')")
	f.StringSliceVar(&h.commands.Pass, "exec-pass", nil, "names of environment variables that commands get, comma-separated: AWS_PROFILE")
	f.StringVar(&h.commands.Cgroup, "exec-cgroup", "", "delegated cgroup (v2) in which each attempt gets a cgroup of its own: /sys/fs/cgroup/carillon")
}

// checkExec checks the flags of commands, before anything connects, and makes their runner.
func (h *workerProcess) checkExec(c *cobra.Command) error {
	if !h.exec {
		for _, name := range []string{"exec-allow", "exec-shell", "exec-users", "exec-env", "exec-pass", "exec-cgroup"} {
			if c.Flags().Changed(name) {
				return usage("--%s is given without --exec: add --exec", name)
			}
		}
		return nil
	}
	for _, name := range workerFlags {
		if strings.HasPrefix(name, "http-jobs") && c.Flags().Changed(name) {
			return usage("--%s is given with --exec: a worker runs HTTP jobs or commands, start one for each", name)
		}
	}
	runner, err := execjob.New(func(ctx context.Context, tenant jobs.Tenant, key jobs.Key) ([]byte, jobs.ID, error) {
		return h.definitions(ctx, tenant, key)
	}, h.commands)
	if err != nil {
		return usage("%v", err)
	}
	h.runner = runner
	return nil
}

// commandsLine describes what may run.
func (h *workerProcess) commandsLine() string {
	line := "programs " + strings.Join(h.commands.Allow, ", ")
	if len(h.commands.Allow) == 0 {
		line = "no programs"
	}
	if h.commands.Shell != "" {
		line += "; scripts by " + h.commands.Shell
	}
	if len(h.commands.Users) > 0 {
		line += "; as " + strings.Join(h.commands.Users, ", ")
	}
	if h.commands.Cgroup != "" {
		line += "; in " + h.commands.Cgroup
	}
	return line
}

// commandsOf reads commands from the jobs' definitions.
func commandsOf(store metastore.Reader) execjob.Source {
	return func(ctx context.Context, tenant jobs.Tenant, key jobs.Key) ([]byte, jobs.ID, error) {
		d, err := store.Definition(ctx, tenant, key)
		if err != nil {
			return nil, jobs.ID{}, err
		}
		return d.Policy.Exec, d.UID, nil
	}
}
