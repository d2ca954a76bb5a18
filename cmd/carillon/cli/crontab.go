package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

func (a *asker) importCommand() *cobra.Command {
	return group("import", "Convert other schedulers' files for apply", lines("carillon import crontab my.crontab > jobs.yaml"), a.importCrontab())
}

func (a *asker) importCrontab() *cobra.Command {
	var app string
	var system bool
	c := &cobra.Command{Use: "crontab <file>", Short: "Convert a crontab to job definitions", Args: one("a file, or - for standard input"),
		Long: "Convert the lines of a crontab to a file for \"carillon apply\", without a server. A job gets the line's schedule, a key made\n" +
			"of its command, and the command as its description. A worker must register a recurring job with that key to run it.\n" +
			"Lines that cannot be a job (such as @reboot) are reported, and the exit code is then 1.",
		Example: lines("crontab -l | carillon import crontab - > jobs.yaml", "carillon import crontab /etc/crontab --system --app ops", "carillon import crontab my.crontab | carillon apply -f - --dry-run"),
		RunE: a.does(func(_ context.Context, args []string) error {
			raw, err := jobfile.Read(args[0], a.in)
			if err != nil {
				return err
			}
			list, wrong := readCrontab(string(raw), app, system)
			for _, w := range wrong {
				a.remark("%s:%s", args[0], w)
			}
			out, err := json.Marshal(map[string]any{"jobs": list})
			if err != nil {
				return err
			}
			if a.format == "" {
				a.format = "yaml"
			}
			v := view{raw: out}
			for _, j := range list {
				v.names = append(v.names, j.Key)
			}
			if err := a.show(v); err != nil || len(wrong) == 0 {
				return err
			}
			return &Exit{Code: Failed}
		})}
	c.Flags().StringVar(&app, "app", "crontab", "app (worker group) of the jobs")
	c.Flags().BoolVar(&system, "system", false, "the sixth field of a line is a user, as in /etc/crontab")
	return c
}

// entry is a line of a crontab as a job, its fields in the order of the help.
type entry struct {
	Key         string `json:"key"`
	Kind        string `json:"kind"`
	App         string `json:"app"`
	Schedule    string `json:"schedule"`
	Zone        string `json:"zone,omitempty"`
	Description string `json:"description"`
	Disabled    bool   `json:"disabled,omitempty"`
}

var (
	assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$`)
	notInKeys  = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	scriptEnd  = regexp.MustCompile(`\.(sh|bash|py|pl|rb|php|js)$`)
	blanks     = regexp.MustCompile(`[ \t]+`)
)

// readCrontab returns the jobs of a crontab, and its other lines with their numbers.
func readCrontab(text, app string, system bool) (list []entry, wrong []string) {
	zone, taken := "", map[string]int{}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		complain := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("%d: %s", n+1, fmt.Sprintf(format, args...)))
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if m := assignment.FindStringSubmatch(line); m != nil {
			if m[1] == "CRON_TZ" || m[1] == "TZ" {
				zone = strings.Trim(m[2], `"' `)
			}
			continue // other variables are for the command
		}
		timing := 5
		if strings.HasPrefix(line, "@") {
			timing = 1
		}
		lead := timing
		if system {
			lead++
		}
		parts := blanks.Split(line, lead+1)
		if len(parts) <= lead {
			complain("%.60q has no command after %d fields", line, lead)
			continue
		}
		e := entry{Kind: kernel.Recurring.String(), App: app, Zone: zone, Schedule: strings.Join(parts[:timing], " "), Description: parts[lead]}
		if len(e.Description) > kernel.MaxDescription {
			complain("its command is longer than a description may be (%d bytes)", kernel.MaxDescription)
			continue
		}
		if e.Schedule == "@reboot" {
			complain("@reboot is not a schedule: do it when a worker starts")
			continue
		}
		if _, err := schedule.Parse(schedule.Spec{Expr: e.Schedule, Zone: zone}); err != nil {
			complain("%v", err)
			continue
		}
		e.Key = keyOf(app, e.Description, taken)
		list = append(list, e)
	}
	return list, wrong
}

// keyOf makes a key from a command: the program's name, and the name of its file argument.
func keyOf(app, command string, taken map[string]int) string {
	var name []string
	for _, part := range strings.Fields(command) {
		if strings.Contains(part, "=") && len(name) == 0 || strings.HasPrefix(part, "-") {
			continue
		}
		if strings.ContainsAny(part, "|&;<>") || len(name) == 2 {
			break
		}
		name = append(name, strings.Trim(notInKeys.ReplaceAllString(scriptEnd.ReplaceAllString(path.Base(part), ""), "-"), "-."))
	}
	key := app + "." + strings.Trim(strings.Join(name, "-"), "-.")
	if key = strings.Trim(key, "."); len(key) > 180 {
		key = key[:180]
	}
	taken[key]++
	if n := taken[key]; n > 1 {
		key = fmt.Sprintf("%s-%d", key, n)
	}
	return key
}
