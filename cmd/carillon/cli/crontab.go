package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/execspec"
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
			"of its command, and the command as a script, with the variables that the crontab sets. \"carillon worker --exec\" runs it.\n" +
			"TZ and CRON_TZ become its time zone; without them it is UTC. It starts in HOME if the crontab sets that, else in a new\n" +
			"directory. Lines that cannot be a job (such as @reboot) are reported, and the exit code is then 1.",
		Example: lines("crontab -l | carillon import crontab - > jobs.yaml", "carillon import crontab /etc/crontab --system --app ops", "carillon import crontab my.crontab | carillon apply -f - --dry-run"),
		RunE: a.does(func(_ context.Context, args []string) error {
			raw, err := jobfile.Read(args[0], a.in)
			if err != nil {
				return err
			}
			list, wrong, warnings := readCrontab(string(raw), app, system)
			for _, w := range append(warnings, wrong...) {
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
	c.Flags().StringVar(&app, "app", "exec", "app (worker group) of the jobs")
	c.Flags().BoolVar(&system, "system", false, "the sixth field of a line is a user, as in /etc/crontab")
	return c
}

// entry is a line of a crontab as a job, its fields in the order of the help.
type entry struct {
	Key      string           `json:"key"`
	Kind     string           `json:"kind"`
	App      string           `json:"app"`
	Schedule string           `json:"schedule"`
	Zone     string           `json:"zone,omitempty"`
	Exec     execspec.Command `json:"exec"`
}

// crontab is what was read from a crontab so far.
type crontab struct {
	app    string
	system bool

	zone  string
	env   map[string]string // of the lines that follow
	taken map[string]int    // keys
	jobs  []entry
}

var (
	assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$`)
	notInKeys  = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	scriptEnd  = regexp.MustCompile(`\.(sh|bash|py|pl|rb|php|js)$`)
	blanks     = regexp.MustCompile(`[ \t]+`)
)

// readCrontab returns the jobs of a crontab, the lines that are none and warnings, both with their numbers.
func readCrontab(text, app string, system bool) (list []entry, wrong, warnings []string) {
	c := crontab{app: app, system: system, env: map[string]string{}, taken: map[string]int{}}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var err error
		if m := assignment.FindStringSubmatch(line); m != nil {
			var warning string
			if warning, err = c.assign(m[1], unquote(m[2])); warning != "" {
				warnings = append(warnings, fmt.Sprintf("%d: warning: %s", n+1, warning))
			}
		} else {
			err = c.job(line)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%d: %v", n+1, err))
		}
	}
	return c.jobs, wrong, warnings
}

// unquote returns the value of an assignment as cron reads it.
func unquote(value string) string {
	if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	return value
}

// assign sets a variable for the lines that follow.
func (c *crontab) assign(name, value string) (warning string, err error) {
	switch name {
	case "MAILTO", "MAILFROM":
		return name + " is ignored: output is in the run's log, and notifications are settings of the server", nil
	case "SHELL":
		return "SHELL is ignored: carillon worker --exec-shell names the shell", nil
	case "TZ", "CRON_TZ":
		if _, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: value}); err != nil {
			return "", err
		}
		if c.zone = value; name == "CRON_TZ" {
			return "", nil
		}
	}
	if err := checkCommand(execspec.Command{Script: ":", Env: map[string]string{name: value}}); err != nil {
		return "", err
	}
	c.env[name] = value
	return "", nil
}

// checkCommand returns what a server would refuse.
func checkCommand(c execspec.Command) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if len(raw) > kernel.MaxWork {
		return fmt.Errorf("the command has %d bytes as JSON, at most %d are allowed", len(raw), kernel.MaxWork)
	}
	_, err = execspec.Parse(raw)
	return err
}

// job adds the job of a line.
func (c *crontab) job(line string) error {
	timing := 5
	if strings.HasPrefix(line, "@") {
		timing = 1
	}
	lead := timing
	if c.system {
		lead++
	}
	parts := blanks.Split(line, lead+1)
	if len(parts) <= lead {
		return fmt.Errorf("%.60q has no command after %d fields", line, lead)
	}
	e := entry{Kind: kernel.Recurring.String(), App: c.app, Zone: c.zone, Schedule: strings.Join(parts[:timing], " ")}
	if e.Schedule == "@reboot" {
		return errors.New("@reboot is not a schedule: do it when a worker starts")
	}
	if _, err := schedule.Parse(schedule.Spec{Expr: e.Schedule, Zone: c.zone}); err != nil {
		return err
	}
	e.Exec = execspec.Command{Script: scriptOf(parts[lead]), Env: maps.Clone(c.env), Stdin: execspec.None}
	if c.system {
		e.Exec.User = parts[timing]
	}
	if home := c.env["HOME"]; path.IsAbs(home) { // where cron starts commands
		e.Exec.Dir = home
	}
	if err := checkCommand(e.Exec); err != nil {
		return err
	}
	e.Key = keyOf(c.app, parts[lead], c.taken)
	c.jobs = append(c.jobs, e)
	return nil
}

// scriptOf returns the command of a line as a script. In a crontab, the first % ends the command: the rest is its
// standard input, and further % in it are newlines. \% is a %.
func scriptOf(command string) string {
	var parts []string
	var part strings.Builder
	escaped := false
	for _, r := range command {
		switch {
		case escaped && r == '%':
			part.WriteRune('%')
		case escaped:
			part.WriteString(`\` + string(r))
		case r == '%':
			parts = append(parts, part.String())
			part.Reset()
		case r != '\\':
			part.WriteRune(r)
		}
		escaped = r == '\\' && !escaped
	}
	if escaped {
		part.WriteRune('\\')
	}
	parts = append(parts, part.String())
	input := strings.Join(parts[1:], "\n")
	if input == "" {
		return parts[0]
	}
	end := "END"
	for slices.Contains(parts[1:], end) {
		end += "_"
	}
	return "{ " + parts[0] + "\n} <<'" + end + "'\n" + strings.TrimSuffix(input, "\n") + "\n" + end + "\n"
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
