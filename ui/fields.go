package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// setting is one field of a job's options: how it is shown, and how a form writes and reads it.
type setting struct {
	Name    string // as in kernel.Fields
	Label   string
	Hint    string
	Input   string      // text, area, number, choice, check, time
	Choices [][2]string // value and label
	Group   string
	only    kernel.Kind                                  // 0 = both kinds have it
	text    func(*kernel.Policy) string                  // the value in a form
	read    func(*kernel.Settings, string, string) error // from the form: a text, and the form's zone
	words   func(*kernel.Policy) string                  // the value on pages; nil = text
}

// Words returns the value as pages show it.
func (s setting) Words(p *kernel.Policy) string {
	text := s.text(p)
	if s.words != nil {
		text = s.words(p)
	}
	for _, c := range s.Choices {
		if c[0] == text {
			return c[1]
		}
	}
	if text == "" {
		return "–"
	}
	return text
}

// normal returns the server's text of the field: some browsers leave out seconds that are zero.
func (s setting) normal(text string) string {
	text = normal(text)
	if t, err := time.Parse(wallMinute, text); err == nil && s.Input == "time" {
		return t.Format(wallTime)
	}
	return text
}

// For reports whether jobs of a kind have this field.
func (s setting) For(k kernel.Kind) bool { return s.only == 0 || s.only == k }

func choice[T ~string](name, label, hint, group string, at func(*kernel.Policy) T, to func(*kernel.Settings, *T), choices ...[2]string) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "choice", Choices: choices,
		text: func(p *kernel.Policy) string { return string(at(p)) },
		read: func(s *kernel.Settings, text, _ string) error { to(s, new(T(text))); return nil }}
}

func number(name, label, hint, group, none string, at func(*kernel.Policy) int, to func(*kernel.Settings, *int)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "number",
		text: func(p *kernel.Policy) string { return strconv.Itoa(at(p)) },
		read: func(s *kernel.Settings, text, _ string) error {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				return kernel.Invalid("invalid number %.20q: want a whole number", text)
			}
			to(s, &n)
			return nil
		},
		words: func(p *kernel.Policy) string {
			if n := at(p); n != 0 || none == "" {
				return strconv.Itoa(n)
			}
			return none
		}}
}

func duration(name, label, hint, group, none string, at func(*kernel.Policy) time.Duration, to func(*kernel.Settings, *time.Duration)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "text",
		text: func(p *kernel.Policy) string { return span(at(p)) },
		read: func(s *kernel.Settings, text, _ string) error {
			d, err := parseSpan(text)
			if err == nil {
				to(s, &d)
			}
			return err
		},
		words: func(p *kernel.Policy) string {
			if d := at(p); d != 0 {
				return span(d)
			}
			return none
		}}
}

// texted is a field whose text package jobs parses.
func texted[T any](name, label, hint, group string, at func(*kernel.Policy) string, parse func(string) (T, error), to func(*kernel.Settings, *T)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "text", text: at,
		read: func(s *kernel.Settings, text, _ string) error {
			v, err := parse(strings.TrimSpace(text))
			if err == nil {
				to(s, &v)
			}
			return err
		}}
}

func parseFactor(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, kernel.Invalid("invalid number %.20q: want a number such as 1.5", text)
	}
	return f, nil
}

func bound(name, label, hint string, at func(*kernel.Policy) time.Time, to func(*kernel.Settings, *time.Time)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: "When", Input: "time", only: kernel.Recurring,
		text: func(p *kernel.Policy) string {
			if at(p).IsZero() {
				return ""
			}
			return at(p).In(location(p.Zone)).Format(wallTime)
		},
		read: func(s *kernel.Settings, text, zone string) error {
			if text == "" {
				to(s, new(time.Time))
				return nil
			}
			t, err := parseWall(text, zone)
			if err == nil {
				to(s, &t)
			}
			return err
		}}
}

func line(name, label, hint, group, input string, at func(*kernel.Policy) string, to func(*kernel.Settings, *string)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: input, text: at,
		read: func(s *kernel.Settings, text, _ string) error { to(s, new(strings.TrimSpace(text))); return nil }}
}

// words is a field of comma-separated names.
func words(name, label, hint, group string, at func(*kernel.Policy) []string, to func(*kernel.Settings, *[]string)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "text",
		text: func(p *kernel.Policy) string { return strings.Join(at(p), ", ") },
		read: func(s *kernel.Settings, text, _ string) error {
			to(s, new(commas(text)))
			return nil
		}}
}

// settings are all that a user can edit, in the order of the form.
var settings = []setting{
	{Name: "schedule", Label: "Schedule", Hint: "cron of 5 to 7 fields, @daily, an interval such as 15m, an ISO 8601 repeat or one instant", Group: "When", Input: "text", only: kernel.Recurring,
		text: func(p *kernel.Policy) string { return p.Schedule },
		read: func(s *kernel.Settings, text, _ string) error { s.Schedule = new(strings.TrimSpace(text)); return nil }},
	{Name: "zone", Label: "Time zone", Hint: "IANA name such as Europe/Berlin; empty means UTC", Group: "When", Input: "text", only: kernel.Recurring,
		text:  func(p *kernel.Policy) string { return p.Zone },
		read:  func(s *kernel.Settings, text, _ string) error { s.Zone = new(strings.TrimSpace(text)); return nil },
		words: func(p *kernel.Policy) string { return zones(p.Zone)[0] }},
	bound("start", "Not before", "in the time zone above; empty: no bound", func(p *kernel.Policy) time.Time { return p.Start }, func(s *kernel.Settings, v *time.Time) { s.Start = v }),
	bound("end", "Not after", "", func(p *kernel.Policy) time.Time { return p.End }, func(s *kernel.Settings, v *time.Time) { s.End = v }),
	recurring(choice("gap", "If clocks skip its time", "", "When", func(p *kernel.Policy) jobs.Gap { return p.Gap }, func(s *kernel.Settings, v *jobs.Gap) { s.Gap = v },
		[2]string{"after", "right after the gap"}, [2]string{"before", "in the last second before it"}, [2]string{"skip", "not that day"})),
	recurring(choice("twice", "If its time occurs twice", "", "When", func(p *kernel.Policy) jobs.Twice { return p.Twice }, func(s *kernel.Settings, v *jobs.Twice) { s.Twice = v },
		[2]string{"first", "the first time"}, [2]string{"second", "the second time"}, [2]string{"both", "both times"})),
	recurring(choice("misfire", "Missed due times", "not fired in time, for example without a leader", "When", func(p *kernel.Policy) jobs.Misfire { return p.Misfire }, func(s *kernel.Settings, v *jobs.Misfire) { s.Misfire = v },
		[2]string{"fire_once", "fire the newest"}, [2]string{"fire_all", "fire each"}, [2]string{"skip", "skip them"})),
	bound("first", "First due", "of an interval; later due times count from it", func(p *kernel.Policy) time.Time { return p.First }, func(s *kernel.Settings, v *time.Time) { s.First = v }),
	recurring(duration("ttl", "Ends after", "duration after the schedule starts; 0: never", "When", "never", func(p *kernel.Policy) time.Duration { return p.TTL }, func(s *kernel.Settings, v *time.Duration) { s.TTL = v })),
	recurring(duration("early", "May start early", "duration before the due time; 0: not early", "When", "never", func(p *kernel.Policy) time.Duration { return p.Early }, func(s *kernel.Settings, v *time.Duration) { s.Early = v })),
	recurring(duration("jitter", "Jitter", "delays each start by up to this duration, fixed for each due time; 0: none", "When", "none", func(p *kernel.Policy) time.Duration { return p.Jitter }, func(s *kernel.Settings, v *time.Duration) { s.Jitter = v })),
	recurring(words("calendars", "Calendars", "names, comma-separated; excluded times are not due", "When",
		func(p *kernel.Policy) []string { return p.Calendars }, func(s *kernel.Settings, v *[]string) { s.Calendars = v })),

	number("maxConcurrency", "Max concurrent runs", "0: no limit", "Limits", "no limit", func(p *kernel.Policy) int { return p.MaxConcurrency }, func(s *kernel.Settings, v *int) { s.MaxConcurrency = v }),
	choice("overlap", "Without a free slot, a run", "", "Limits", func(p *kernel.Policy) jobs.Overlap { return p.Overlap }, func(s *kernel.Settings, v *jobs.Overlap) { s.Overlap = v },
		[2]string{"skip", "is skipped"}, [2]string{"queue", "waits for its turn"}, [2]string{"queue_one", "waits unless another run waits"}, [2]string{"replace", "replaces the oldest run"}),
	texted("limits", "Limits shared with other jobs", "concurrent runs and start rate, such as db=3, mail=2:10/s; tenant=2@args.customer_id for each value of an argument", "Limits", func(p *kernel.Policy) string { return kernel.LimitsText(p.Limits) }, kernel.ParseLimits, func(s *kernel.Settings, v *[]jobs.Limit) { s.Limits = v }),
	texted("rate", "Start rate", "such as 10/s, 100/m or 5/30s; none: no limit", "Limits", func(p *kernel.Policy) string { return p.Rate.String() }, kernel.ParseRate, func(s *kernel.Settings, v *jobs.Rate) { s.Rate = v }),
	duration("timeout", "Timeout of an attempt", "such as 90s or 1h30m; 0: none", "Limits", "none", func(p *kernel.Policy) time.Duration { return p.Timeout }, func(s *kernel.Settings, v *time.Duration) { s.Timeout = v }),
	duration("startWithin", "Start within", "after its due time, else the run is skipped; 0: no deadline", "Limits", "no deadline", func(p *kernel.Policy) time.Duration { return p.StartWithin }, func(s *kernel.Settings, v *time.Duration) { s.StartWithin = v }),
	number("priority", "Priority", "higher goes first", "Limits", "", func(p *kernel.Policy) int { return p.Priority }, func(s *kernel.Settings, v *int) { s.Priority = v }),

	number("retries", "Retries", "after the first attempt", "Failures", "none", func(p *kernel.Policy) int { return p.Retries }, func(s *kernel.Settings, v *int) { s.Retries = v }),
	duration("retryDelay", "Delay before the first retry", "0: immediately", "Failures", "immediately", func(p *kernel.Policy) time.Duration { return p.RetryDelay }, func(s *kernel.Settings, v *time.Duration) { s.RetryDelay = v }),
	duration("retryDelayMax", "Longest delay", "the delay grows up to this", "Failures", "no bound", func(p *kernel.Policy) time.Duration { return p.RetryDelayMax }, func(s *kernel.Settings, v *time.Duration) { s.RetryDelayMax = v }),
	texted("retryFactor", "Delay factor", "for each retry; 1: constant", "Failures", func(p *kernel.Policy) string { return strconv.FormatFloat(p.RetryFactor, 'g', -1, 64) }, parseFactor, func(s *kernel.Settings, v *float64) { s.RetryFactor = v }),
	choice("retryJitter", "Retry jitter", "shortens delays at random, so that failed runs do not retry together", "Failures", func(p *kernel.Policy) jobs.Jitter { return p.RetryJitter }, func(s *kernel.Settings, v *jobs.Jitter) { s.RetryJitter = v },
		[2]string{"half", "by up to half"}, [2]string{"full", "by up to the whole delay"}, [2]string{"none", "none"}),
	texted("retryRules", "Rules by error code", "codes:attempts:delay:factor:longest delay, such as 502+503:3:10s:2:1m; timeout:1", "Failures", func(p *kernel.Policy) string { return kernel.RulesText(p.RetryRules) }, kernel.ParseRules, func(s *kernel.Settings, v *[]jobs.RetryRule) { s.RetryRules = v }),
	texted("retryBudget", "Retry budget", "such as 10/s; retries above it are delayed; none: no limit", "Failures", func(p *kernel.Policy) string { return p.RetryBudget.String() }, kernel.ParseRate, func(s *kernel.Settings, v *jobs.Rate) { s.RetryBudget = v }),
	number("pauseAfter", "Pause after failed runs", "in a row; 0: never", "Failures", "never", func(p *kernel.Policy) int { return p.PauseAfter }, func(s *kernel.Settings, v *int) { s.PauseAfter = v }),
	choice("onLost", "If its worker dies", "", "Failures", func(p *kernel.Policy) jobs.OnLost { return p.OnLost }, func(s *kernel.Settings, v *jobs.OnLost) { s.OnLost = v },
		[2]string{"retry", "another worker retries it"}, [2]string{"fail", "the run fails"}),
	choice("leaseLost", "If no control plane responds", "", "Failures", func(p *kernel.Policy) jobs.LeaseLost { return p.LeaseLost }, func(s *kernel.Settings, v *jobs.LeaseLost) { s.LeaseLost = v },
		[2]string{"continue", "a run continues"}, [2]string{"cancel", "a run is cancelled"}),

	words("onSuccess", "After success, run", "job keys, comma-separated, at most 8; they receive the outcome", "Related jobs",
		func(p *kernel.Policy) []string { return p.OnSuccess }, func(s *kernel.Settings, v *[]string) { s.OnSuccess = v }),
	words("onFailure", "After final failure, run", "job keys, comma-separated, at most 8", "Related jobs",
		func(p *kernel.Policy) []string { return p.OnFailure }, func(s *kernel.Settings, v *[]string) { s.OnFailure = v }),
	texted("parent", "Belongs to the job", "its key; empty: none", "Related jobs", func(p *kernel.Policy) string { return p.Parent }, func(text string) (string, error) { return strings.TrimSpace(text), nil }, func(s *kernel.Settings, v *string) { s.Parent = v }),

	choice("route", "Route", "among workers that have the job and meet its requirements; free: with a free slot", "Routing", func(p *kernel.Policy) jobs.Route { return cmp.Or(p.Route, jobs.RouteAny) }, func(s *kernel.Settings, v *jobs.Route) { s.Route = v },
		[2]string{"any", "any"}, [2]string{"first", "first free by name"}, [2]string{"last", "last free by name"},
		[2]string{"round_robin", "free workers in turn"}, [2]string{"random", "random free worker"},
		[2]string{"consistent_hash", "same worker for the same key; waits for it"}, [2]string{"least_recent", "free worker with the oldest last run"},
		[2]string{"least_frequent", "free worker with the fewest runs in 24 h"}, [2]string{"failover", "first live by name; waits for it"},
		[2]string{"idle", "worker without runs; waits for one"}, [2]string{"broadcast", "broadcast: one run per worker"}),
	line("routeBy", "Key for the same worker", "path of an argument such as customer.id; empty: the job key", "Routing", "text", func(p *kernel.Policy) string { return p.RouteBy }, func(s *kernel.Settings, v *string) { s.RouteBy = v }),
	{Name: "needs", Label: "Required worker tags", Hint: "tag or key=value, comma-separated", Group: "Routing", Input: "text",
		text: func(p *kernel.Policy) string { return strings.Join(p.Needs, ", ") },
		read: func(s *kernel.Settings, text, _ string) error { s.Needs = new(commas(text)); return nil }},
	line("pin", "Only this worker", "by its configured name; empty: any worker", "Routing", "text", func(p *kernel.Policy) string { return p.Pin }, func(s *kernel.Settings, v *string) { s.Pin = v }),
	choice("pinAway", "While that worker is away", "", "Routing", func(p *kernel.Policy) jobs.PinAway { return cmp.Or(p.PinAway, jobs.PinWait) }, func(s *kernel.Settings, v *jobs.PinAway) { s.PinAway = v },
		[2]string{"wait", "runs wait for it"}, [2]string{"any", "another worker takes them"}),
	choice("codeVersion", "During a rollout", "while workers have different code versions", "Routing", func(p *kernel.Policy) jobs.CodeVersion { return cmp.Or(p.CodeVersion, jobs.CodeAny) }, func(s *kernel.Settings, v *jobs.CodeVersion) { s.CodeVersion = v },
		[2]string{"any", "any worker with the job"}, [2]string{"current", "only workers with the current version"}),
	number("slots", "Slots on one worker", "max runs of this job on one worker; 0: no limit", "Routing", "no limit", func(p *kernel.Policy) int { return p.Slots }, func(s *kernel.Settings, v *int) { s.Slots = v }),

	duration("keepFor", "Keep runs for", "after they finish, such as 120h; 0: unlimited", "Retention", "unlimited", func(p *kernel.Policy) time.Duration { return p.KeepFor }, func(s *kernel.Settings, v *time.Duration) { s.KeepFor = v }),
	number("keepSucceeded", "Keep succeeded runs", "the newest, at most; 0: all", "Retention", "all", func(p *kernel.Policy) int { return p.KeepSucceeded }, func(s *kernel.Settings, v *int) { s.KeepSucceeded = v }),
	number("keepOthers", "Keep other finished runs", "the newest, at most; 0: all", "Retention", "all", func(p *kernel.Policy) int { return p.KeepOthers }, func(s *kernel.Settings, v *int) { s.KeepOthers = v }),

	line("name", "Name", "", "Description", "text", func(p *kernel.Policy) string { return p.Name }, func(s *kernel.Settings, v *string) { s.Name = v }),
	words("tags", "Tags", "comma-separated", "Description", func(p *kernel.Policy) []string { return p.Tags }, func(s *kernel.Settings, v *[]string) { s.Tags = v }),
	line("description", "Description", "", "Description", "area", func(p *kernel.Policy) string { return p.Description }, func(s *kernel.Settings, v *string) { s.Description = v }),
	{Name: "args", Label: "Default arguments", Hint: "a JSON object", Group: "Description", Input: "area",
		text: func(p *kernel.Policy) string { return pretty(p.Args) },
		read: func(s *kernel.Settings, text, _ string) error {
			if text = strings.TrimSpace(text); text == "" {
				text = "{}"
			}
			if err := kernel.CheckArgs([]byte(text)); err != nil {
				return err
			}
			s.Args = new(json.RawMessage(text))
			return nil
		}},
	{Name: "disabled", Label: "Disabled", Hint: "The job does not run, not even manually.", Group: "Description", Input: "check",
		text: func(p *kernel.Policy) string {
			if p.Disabled {
				return "on"
			}
			return ""
		},
		read:  func(s *kernel.Settings, text, _ string) error { s.Disabled = new(text == "on"); return nil },
		words: func(p *kernel.Policy) string { return map[bool]string{true: "yes", false: "no"}[p.Disabled] }},
}

// commas splits a text at commas.
func commas(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return slices.DeleteFunc(list, func(w string) bool { return w == "" })
}

func recurring(s setting) setting { s.only = kernel.Recurring; return s }

// span formats a duration as parseSpan reads it, without zero parts: 1h30m, 2d, 0.
func span(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	days := ""
	if n := d / (24 * time.Hour); n > 0 {
		days, d = fmt.Sprintf("%dd", n), d%(24*time.Hour)
		if d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}

var daysFirst = regexp.MustCompile(`^(\d{1,4})d`)

// parseSpan reads 90s, 1h30m, 2d12h; an empty text means 0.
func parseSpan(text string) (time.Duration, error) {
	text = strings.ReplaceAll(strings.TrimSpace(text), " ", "")
	rest, days := text, time.Duration(0)
	if m := daysFirst.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		days, rest = time.Duration(n)*24*time.Hour, text[len(m[0]):]
	}
	if rest == "" || rest == "0" {
		return days, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, kernel.Invalid("invalid duration %.40q: want 90s, 1h30m or 2d", text)
	}
	return days + d, nil
}

// wallTime is the format of browsers for a time without a zone, with seconds.
const wallTime = "2006-01-02T15:04:05"

// parseWall reads a wall time in a zone.
func parseWall(text, zone string) (time.Time, error) {
	for _, layout := range []string{wallTime, wallMinute} {
		if t, err := time.ParseInLocation(layout, text, location(zone)); err == nil {
			return kernel.Instant(t), nil
		}
	}
	return time.Time{}, kernel.Invalid("invalid time %.40q: want 2027-03-01T09:00", text)
}

// location returns a zone from the embedded database of schedules, or UTC if there is none of that name.
func location(zone string) *time.Location {
	s, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: zone})
	if err != nil {
		return time.UTC
	}
	return s.In(time.Now()).Location()
}

// checkZone returns an error for an unknown zone, or nil.
func checkZone(zone string) error {
	if _, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: zone}); err != nil {
		return kernel.Invalid("time zone: %v", err)
	}
	return nil
}
