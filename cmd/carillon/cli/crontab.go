package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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
			"CRON_TZ, or else TZ, becomes its time zone; without them it is UTC. RANDOM_DELAY becomes its jitter. It starts in HOME if\n" +
			"the crontab sets that, else in a new directory. Lines that cannot be a job (such as @reboot) are reported, and the exit\n" +
			"code is then 1. Unlike cron, a job has a timeout (1h by default), and a run is skipped while another one runs.",
		Example: lines("crontab -l | carillon import crontab - > jobs.yaml", "carillon import crontab /etc/crontab --system --app ops", "carillon import crontab my.crontab | carillon apply -f - --dry-run"),
	}
	c.RunE = a.does(func(_ context.Context, args []string) error {
		raw, err := jobfile.Read(args[0], a.in)
		if err != nil {
			return err
		}
		if !c.Flags().Changed("system") {
			system = systemFile.MatchString(args[0])
		}
		list, wrong, warnings := readCrontab(string(raw), app, system)
		for _, w := range append(warnings, wrong...) {
			a.remark("%s:%s", args[0], w)
		}
		if w := zoneWarning(list, time.Local, a.Getenv("TZ"), a.Now()); w != "" {
			a.remark("%s: warning: %s", args[0], w)
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
	})
	c.Flags().StringVar(&app, "app", "exec", "app (worker group) of the jobs")
	c.Flags().BoolVar(&system, "system", false, "the sixth field of a line is a user (default: in /etc/crontab and /etc/cron.d)")
	return c
}

// zoneWarning returns what to do about jobs without a zone, which cron runs in the zone of its machine: here, which has
// a name only in TZ.
func zoneWarning(list []entry, here *time.Location, name string, now time.Time) string {
	n := 0
	for _, e := range list {
		if e.Zone == "" {
			n++
		}
	}
	short, offset := now.In(here).Zone()
	_, other := now.AddDate(0, 6, 0).In(here).Zone() // summer time
	if n == 0 || offset == 0 && other == 0 {
		return ""
	}
	return fmt.Sprintf("jobs without a time zone: %d; they run in UTC, and this machine's zone is %s: set TZ in the crontab before their lines",
		n, cmp.Or(name, short))
}

// entry is a line of a crontab as a job, its fields in the order of the help.
type entry struct {
	Key      string           `json:"key"`
	Kind     string           `json:"kind"`
	App      string           `json:"app"`
	Schedule string           `json:"schedule"`
	Zone     string           `json:"zone,omitempty"`
	Jitter   string           `json:"jitter,omitempty"`
	Exec     execspec.Command `json:"exec"`
}

// crontab is what was read from a crontab so far.
type crontab struct {
	app    string
	system bool

	// Of the lines that follow: the zone of CRON_TZ, and that of TZ, which cron uses without it; a delay; variables.
	cronTZ, tz string
	jitter     string
	env        map[string]string

	taken map[string]bool // keys
	jobs  []entry
}

// zone returns the time zone of the lines that follow.
func (c *crontab) zone() string { return cmp.Or(c.cronTZ, c.tz) }

var (
	assignment = regexp.MustCompile(`^["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(.*)$`)
	systemFile = regexp.MustCompile(`^/etc/(crontab|cron\.d/[^/]+)$`)
	quietFlags = regexp.MustCompile(`^(-[nqs]+[ \t]+)+`)   // of OpenBSD: no mail, no log, one at a time
	randomTime = regexp.MustCompile(`^(?:(\d+)~(\d+)|~)$`) // of OpenBSD and cronie
	guard      = regexp.MustCompile(`^(?:cd[ \t]+("[^"]*"|'[^']*'|\S+)|test[ \t][^|&;]*|\[[ \t][^|&;]*\])[ \t]*(?:&&|\|\||;)[ \t]*(?:\{[ \t]*)?`)
	notInKeys  = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	scriptEnd  = regexp.MustCompile(`\.(sh|bash|py|pl|rb|php|js)$`)
	blanks     = regexp.MustCompile(`[ \t]+`)
)

// readCrontab returns the jobs of a crontab, the lines that are none and warnings, both with their numbers.
func readCrontab(text, app string, system bool) (list []entry, wrong, warnings []string) {
	c := crontab{app: app, system: system, env: map[string]string{}, taken: map[string]bool{}}
	for n, line := range strings.Split(strings.TrimPrefix(text, "\uFEFF"), "\n") {
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
	case "MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING":
		return name + " is ignored: output is in the run's log, and notifications are settings of the server", nil
	case "SHELL":
		return "SHELL is ignored: start the worker with --exec-shell " + value, nil
	case "START_HOURS_RANGE":
		return name + " is ignored: it is a setting of anacron", nil
	case "RANDOM_DELAY":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > 24*60 {
			return "", fmt.Errorf("invalid RANDOM_DELAY %.20q: want minutes, at most 1440", value)
		}
		if c.jitter = ""; n > 0 {
			c.jitter = strconv.Itoa(n) + "m"
		}
		return "", nil
	case "TZ", "CRON_TZ":
		zone := strings.TrimPrefix(value, ":")
		if _, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: zone}); err != nil {
			return "", fmt.Errorf("%w: the lines that follow keep the time zone before it", err)
		}
		if name == "CRON_TZ" {
			c.cronTZ = zone
			return "", nil
		}
		c.tz = zone
	}
	if strings.Contains(value, "$") {
		warning = name + " has a $, which cron does not replace, and a worker neither: write its value"
	}
	if err := checkCommand(execspec.Command{Script: ":", Env: map[string]string{name: value}}); err != nil {
		return "", err
	}
	c.env[name] = value
	return warning, nil
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
	parts := blanks.Split(strings.TrimPrefix(line, "-"), lead+1) // in front of a minute, it keeps cron from logging
	if len(parts) <= lead || parts[lead] == "" {
		return fmt.Errorf("%.60q has no command after %d fields", line, lead)
	}
	e := entry{Kind: kernel.Recurring.String(), App: c.app, Zone: c.zone(), Jitter: c.jitter}
	var err error
	if e.Schedule, err = scheduleOf(parts[:timing]); err != nil {
		return err
	}
	if _, err := schedule.Parse(schedule.Spec{Expr: e.Schedule, Zone: e.Zone}); err != nil {
		return err
	}
	command := quietFlags.ReplaceAllString(parts[lead], "")
	if !c.system && strings.Fields(command + " :")[0] == "root" {
		return errors.New("the command begins with the user root, as in /etc/crontab: add --system")
	}
	e.Exec = execspec.Command{Script: scriptOf(command), Env: maps.Clone(c.env), Stdin: execspec.None}
	if c.system {
		if e.Exec.User = parts[timing]; strings.ContainsAny(e.Exec.User, ":/") {
			return fmt.Errorf("invalid user %.60q: want a name without group and login class", e.Exec.User)
		}
	}
	if home := c.env["HOME"]; path.IsAbs(home) { // where cron starts commands
		e.Exec.Dir = home
	}
	if err := checkCommand(e.Exec); err != nil {
		return err
	}
	e.Key = keyOf(c.app, command, c.taken)
	c.jobs = append(c.jobs, e)
	return nil
}

// scheduleOf returns the schedule of a line, or why it would be another one than cron's.
func scheduleOf(fields []string) (string, error) {
	if len(fields) == 1 {
		macro := fields[0]
		if seconds, err := strconv.Atoi(macro[1:]); err == nil && seconds > 0 { // of FreeBSD, as the next two are
			return fmt.Sprintf("@every %ds", seconds), nil
		}
		switch macro {
		case "@reboot":
			return "", errors.New("@reboot is not a schedule: run the command by a unit of systemd, or in the script that starts the worker")
		case "@every_minute":
			return "* * * * *", nil
		case "@every_second":
			return "@every 1s", nil
		}
		return macro, nil
	}
	for i, field := range fields {
		if m := randomTime.FindStringSubmatch(field); m != nil { // cron chooses when it starts: the same each day
			if fields[i] = "H"; m[1] != "" {
				fields[i] = "H(" + m[1] + "-" + m[2] + ")"
			}
		}
	}
	text := strings.Join(fields, " ")
	day, weekday := fields[2], fields[4]
	switch {
	case strings.Contains(text, "?"):
		return "", fmt.Errorf("%q has a ?, after which days of the week have other numbers: want *", text)
	case day != "*" && weekday != "*" && (day[0] == '*' || weekday[0] == '*'):
		return "", fmt.Errorf("%q runs in cron on days that match both day fields, and in a job on days that match one: "+
			"use one of the fields, and check the other in the command, such as [ $(date +%%u) = 1 ]", text)
	}
	return text, nil
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
func keyOf(app, command string, taken map[string]bool) string {
	for {
		rest := guard.ReplaceAllString(command, "")
		if rest == command || rest == "" {
			break
		}
		command = rest
	}
	var name []string
	for _, part := range strings.Fields(command) {
		if strings.Contains(part, "=") && len(name) == 0 || strings.HasPrefix(part, "-") {
			continue
		}
		end := strings.IndexAny(part, "|&;<>")
		if end == 0 || len(name) == 2 {
			break
		}
		if end > 0 {
			part = part[:end]
		}
		name = append(name, strings.Trim(notInKeys.ReplaceAllString(scriptEnd.ReplaceAllString(path.Base(part), ""), "-"), "-."))
		if end > 0 {
			break
		}
	}
	base := app + "." + strings.Trim(strings.Join(name, "-"), "-.")
	if base = strings.Trim(base, "."); len(base) > 180 {
		base = base[:180]
	}
	key := base
	for n := 2; taken[key]; n++ {
		key = fmt.Sprintf("%s-%d", base, n)
	}
	taken[key] = true
	return key
}
