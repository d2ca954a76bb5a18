package cli

import (
	"context"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// completeTime bounds a server's response to a completion. Slow or failed requests complete nothing.
const completeTime = time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

type completion = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// complete gives a flag its completion.
func complete(c *cobra.Command, flag string, fn completion) {
	must(c.RegisterFlagCompletionFunc(flag, fn))
}

// choices completes from a list.
func choices(list ...string) completion {
	return func(_ *cobra.Command, _ []string, begun string) (begin []string, _ cobra.ShellCompDirective) {
		for _, one := range list {
			if strings.HasPrefix(strings.ToLower(one), strings.ToLower(begun)) {
				begin = append(begin, one)
			}
		}
		return begin, noFiles
	}
}

// asked requests what a completion needs and reports whether the server responded.
func (a *asker) asked(c *cobra.Command, path string, q url.Values, into any) bool {
	if a.open() != nil {
		return false
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	a.link.timeout = completeTime
	got, err := a.link.get(ctx, path, q)
	return err == nil && got.into(into) == nil
}

// described returns a completion with its description.
func described(value, about string) string {
	if about = short(about); about != "" {
		return value + "\t" + about
	}
	return value
}

// completeKeys completes the key of a job.
func (a *asker) completeKeys(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var all struct{ Items []api.Job }
	// A flag is completed whatever arguments there are; an argument only if it is the first.
	if len(args) > 0 && c.ValidArgsFunction != nil || !a.asked(c, "/jobs", url.Values{"limit": {"1000"}}, &all) {
		return nil, noFiles
	}
	var keys []string
	for _, j := range all.Items {
		if strings.HasPrefix(string(j.Key), begun) {
			keys = append(keys, described(string(j.Key), or(value(j.Description), value(j.Schedule))))
		}
	}
	return keys, noFiles
}

// completeRuns completes the ID of one of the latest runs.
func (a *asker) completeRuns(over bool) completion {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		var all struct{ Items []api.Run }
		if len(args) > 0 && !strings.Contains(c.Use, "...") || !a.asked(c, "/runs", url.Values{"limit": {"100"}}, &all) {
			return nil, noFiles
		}
		var ids []string
		for _, r := range all.Items {
			if strings.HasPrefix(r.ID, begun) && (!over || final(r.State)) {
				ids = append(ids, described(r.ID, string(r.Job)+" "+r.State))
			}
		}
		return ids, noFiles
	}
}

// completeWorkers completes the name of a worker.
func (a *asker) completeWorkers(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var all struct{ Items []api.Worker }
	if !a.asked(c, "/workers", nil, &all) {
		return nil, noFiles
	}
	var names []string
	for _, w := range all.Items {
		if strings.HasPrefix(w.Name, begun) {
			names = append(names, described(w.Name, w.App+" on "+w.Host))
		}
	}
	return names, noFiles
}

// completeZones completes the name of a time zone.
func completeZones(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, name := range schedule.Zones() {
		if strings.HasPrefix(strings.ToLower(name), strings.ToLower(begun)) {
			names = append(names, name)
		}
	}
	return names, noFiles
}

// completeSet completes the field of field=value.
func completeSet(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, name := range kernel.Fields() {
		if strings.HasPrefix(name, begun) {
			names = append(names, name+"=")
		}
	}
	return names, noFiles | cobra.ShellCompDirectiveNoSpace
}

// completionCommand prints completion scripts for shells.
func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{Use: "completion bash|zsh|fish|powershell", Short: "Print a completion script for a shell",
		Long: "Print a script that makes a shell complete commands, flags, keys of jobs, IDs of runs and names of workers.\n\n" +
			"  bash        source <(carillon completion bash)            # needs the package bash-completion\n" +
			"  zsh         carillon completion zsh > \"${fpath[1]}/_carillon\"   # then start a new shell\n" +
			"  fish        carillon completion fish > ~/.config/fish/completions/carillon.fish\n" +
			"  powershell  carillon completion powershell | Out-String | Invoke-Expression",
		Example: lines("source <(carillon completion bash)", "carillon completion fish > ~/.config/fish/completions/carillon.fish"),
		Args:    counted("the name of a shell: bash, zsh, fish or powershell", 1, 1), ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			root, out := c.Root(), c.OutOrStdout()
			write, known := map[string]func(io.Writer) error{
				"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }, "zsh": root.GenZshCompletion,
				"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) }, "powershell": root.GenPowerShellCompletionWithDesc,
			}[args[0]]
			if !known {
				return kernel.Invalid("unknown shell %.20q: want bash, zsh, fish or powershell", args[0])
			}
			return write(out)
		}}
}
