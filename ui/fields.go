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

// simple is a field whose text is that of the value: format writes it, and parse reads it.
func simple[T any](name, label, hint, group string, format func(T) string, parse func(string) (T, error)) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "text",
		text: func(p *kernel.Policy) string { return format(p.At(name).Interface().(T)) },
		read: func(s *kernel.Settings, text, _ string) error {
			v, err := parse(strings.TrimSpace(text))
			if err == nil {
				s.Set(name, v)
			}
			return err
		}}
}

// orNone shows none on pages instead of the zero value.
func orNone(s setting, none string) setting {
	s.words = func(p *kernel.Policy) string {
		if none == "" || !p.At(s.Name).IsZero() {
			return s.text(p)
		}
		return none
	}
	return s
}

// choice is a field with a few values: kernel.Choices, each with its label. The first stands for none.
func choice(name, label, hint, group string, choices ...[2]string) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: "choice", Choices: choices,
		text: func(p *kernel.Policy) string { return cmp.Or(p.At(name).String(), choices[0][0]) },
		read: func(s *kernel.Settings, text, _ string) error { s.Set(name, text); return nil }}
}

func number(name, label, hint, group, none string) setting {
	s := orNone(simple(name, label, hint, group, strconv.Itoa, parseNumber), none)
	s.Input = "number"
	return s
}

func parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, kernel.Invalid("invalid number %.20q: want a whole number", text)
	}
	return n, nil
}

func duration(name, label, hint, group, none string) setting {
	return orNone(simple(name, label, hint, group, span, parseSpan), none)
}

func formatFactor(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func parseFactor(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, kernel.Invalid("invalid number %.20q: want a number such as 1.5", text)
	}
	return f, nil
}

func bound(name, label, hint string) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: "When", Input: "time", only: kernel.Recurring,
		text: func(p *kernel.Policy) string {
			t := p.At(name).Interface().(time.Time)
			if t.IsZero() {
				return ""
			}
			return t.In(location(p.Zone)).Format(wallTime)
		},
		read: func(s *kernel.Settings, text, zone string) (err error) {
			var t time.Time
			if text != "" {
				t, err = parseWall(text, zone)
			}
			if err == nil {
				s.Set(name, t)
			}
			return err
		}}
}

func line(name, label, hint, group, input string) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: group, Input: input,
		text: func(p *kernel.Policy) string { return p.At(name).String() },
		read: func(s *kernel.Settings, text, _ string) error { s.Set(name, strings.TrimSpace(text)); return nil }}
}

// words is a field of comma-separated names.
func words(name, label, hint, group string) setting {
	return simple(name, label, hint, group, func(list []string) string { return strings.Join(list, ", ") },
		func(text string) ([]string, error) { return commas(text), nil })
}

// object is a field of a JSON object; an empty text means {}.
func object(name, label, hint string, check func([]byte) error) setting {
	return setting{Name: name, Label: label, Hint: hint, Group: "Description", Input: "area",
		text: func(p *kernel.Policy) string { return pretty(p.At(name).Interface().(json.RawMessage)) },
		read: func(s *kernel.Settings, text, _ string) error {
			raw := json.RawMessage(cmp.Or(strings.TrimSpace(text), "{}"))
			if err := check(raw); err != nil {
				return err
			}
			s.Set(name, raw)
			return nil
		}}
}

// settings are all that a user can edit, in the order of the form.
var settings = []setting{
	recurring(line("schedule", "Schedule", "cron of 5 to 7 fields, @daily, an interval such as 15m, an ISO 8601 repeat or one instant", "When", "text")),
	{Name: "zone", Label: "Time zone", Hint: "IANA name such as Europe/Berlin; empty: the default zone", Group: "When", Input: "text", only: kernel.Recurring,
		text:  func(p *kernel.Policy) string { return p.Zone },
		read:  func(s *kernel.Settings, text, _ string) error { s.Zone = new(strings.TrimSpace(text)); return nil },
		words: func(p *kernel.Policy) string { return zones(p.Zone)[0] }},
	bound("start", "Not before", "in the time zone above; empty: no bound"),
	bound("end", "Not after", ""),
	recurring(choice("gap", "If clocks skip its time", "", "When",
		[2]string{"after", "right after the gap"}, [2]string{"before", "in the last second before it"}, [2]string{"skip", "not that day"})),
	recurring(choice("twice", "If its time occurs twice", "", "When",
		[2]string{"first", "the first time"}, [2]string{"second", "the second time"}, [2]string{"both", "both times"})),
	recurring(choice("misfire", "Missed due times", "not fired in time, for example without a leader", "When",
		[2]string{"fire_once", "fire the newest"}, [2]string{"fire_all", "fire each"}, [2]string{"skip", "skip them"})),
	bound("first", "First due", "of an interval; later due times count from it"),
	recurring(duration("ttl", "Ends after", "duration after the schedule starts; 0: never", "When", "never")),
	recurring(duration("early", "May start early", "duration before the due time; 0: not early", "When", "never")),
	recurring(duration("jitter", "Jitter", "delays each start by up to this duration, fixed for each due time; 0: none", "When", "none")),
	recurring(words("calendars", "Calendars", "names, comma-separated; excluded times are not due", "When")),

	number("maxConcurrency", "Max concurrent runs", "0: no limit", "Limits", "no limit"),
	choice("overlap", "Without a free slot, a run", "", "Limits",
		[2]string{"skip", "is skipped"}, [2]string{"queue", "waits for its turn"}, [2]string{"queue_one", "waits unless another run waits"}, [2]string{"replace", "replaces the oldest run"}),
	simple("limits", "Limits shared with other jobs", "concurrent runs and start rate, such as db=3, mail=2:10/s; tenant=2@args.customer_id for each value of an argument", "Limits", kernel.LimitsText, kernel.ParseLimits),
	simple("rate", "Start rate", "such as 10/s, 100/m or 5/30s; none: no limit", "Limits", jobs.Rate.String, kernel.ParseRate),
	duration("timeout", "Timeout of an attempt", "such as 90s or 1h30m; 0: none", "Limits", "none"),
	duration("startWithin", "Start within", "after its due time, else the run is skipped; 0: no deadline", "Limits", "no deadline"),
	number("priority", "Priority", "higher starts first", "Limits", ""),

	number("retries", "Retries", "after the first attempt", "Failures", "none"),
	duration("retryDelay", "Delay before the first retry", "0: immediately", "Failures", "immediately"),
	duration("retryDelayMax", "Longest delay", "the delay grows up to this", "Failures", "no bound"),
	simple("retryFactor", "Delay factor", "for each retry; 1: constant", "Failures", formatFactor, parseFactor),
	choice("retryJitter", "Retry jitter", "shortens delays at random, so that failed runs do not retry together", "Failures",
		[2]string{"half", "by up to half"}, [2]string{"full", "by up to the whole delay"}, [2]string{"none", "none"}),
	simple("retryRules", "Rules by error code", "codes:attempts:delay:factor:longest delay, such as 502+503:3:10s:2:1m; timeout:1", "Failures", kernel.RulesText, kernel.ParseRules),
	simple("retryBudget", "Retry budget", "such as 10/s; retries above it are delayed; none: no limit", "Failures", jobs.Rate.String, kernel.ParseRate),
	number("pauseAfter", "Pause after failed runs", "in a row; 0: never", "Failures", "never"),
	choice("onLost", "If its worker dies", "", "Failures",
		[2]string{"retry", "another worker retries it"}, [2]string{"fail", "the run fails"}),
	choice("leaseLost", "If no control plane responds", "", "Failures",
		[2]string{"continue", "a run continues"}, [2]string{"cancel", "a run is cancelled"}),

	words("after", "Run after all of", "job keys, comma-separated, at most 16; KEY:failed or KEY:ended for other ends than success", "Related jobs"),
	duration("afterWithin", "Wait for them at most", "from the first end, such as 24h", "Related jobs", ""),
	duration("afterSpan", "Due times of one occasion", "less than this apart, such as 6h; 0: equal due times", "Related jobs", "equal due times"),
	words("onSuccess", "After success, run", "job keys, comma-separated, at most 8; they receive the outcome", "Related jobs"),
	words("onFailure", "After final failure, run", "job keys, comma-separated, at most 8", "Related jobs"),
	line("parent", "Belongs to the job", "its key; empty: none", "Related jobs", "text"),

	choice("route", "Route", "among workers that have the job and meet its requirements; free: with a free slot", "Routing",
		[2]string{"any", "any"}, [2]string{"first", "first free by name"}, [2]string{"last", "last free by name"},
		[2]string{"round_robin", "free workers in turn"}, [2]string{"random", "random free worker"},
		[2]string{"consistent_hash", "same worker for the same key; waits for it"}, [2]string{"least_recent", "free worker with the oldest last run"},
		[2]string{"least_frequent", "free worker with the fewest runs in 24 h"}, [2]string{"failover", "first live by name; waits for it"},
		[2]string{"idle", "worker without runs; waits for one"}, [2]string{"broadcast", "broadcast: one run per worker"}),
	line("routeBy", "Key for the same worker", "path of an argument such as customer.id; empty: the job key", "Routing", "text"),
	line("handler", "Handler", "key of the job whose code runs this one; empty: the job key", "Routing", "text"),
	words("needs", "Required worker tags", "tag or key=value, comma-separated", "Routing"),
	line("pin", "Only this worker", "by its configured name; empty: any worker", "Routing", "text"),
	choice("pinAway", "While that worker is away", "", "Routing",
		[2]string{"wait", "runs wait for it"}, [2]string{"any", "another worker takes them"}),
	choice("codeVersion", "During a rollout", "while workers have different code versions", "Routing",
		[2]string{"any", "any worker with the job"}, [2]string{"current", "only workers with the current version"}),
	number("slots", "Slots on one worker", "max runs of this job on one worker; 0: no limit", "Routing", "no limit"),

	duration("keepFor", "Keep runs for", "after they finish, such as 120h; 0: unlimited", "Retention", "unlimited"),
	number("keepSucceeded", "Keep succeeded runs", "the newest, at most; 0: all", "Retention", "all"),
	number("keepOthers", "Keep other finished runs", "the newest, at most; 0: all", "Retention", "all"),

	line("name", "Name", "", "Description", "text"),
	words("tags", "Tags", "comma-separated", "Description"),
	line("description", "Description", "", "Description", "area"),
	object("args", "Default arguments", "a JSON object", kernel.CheckArgs),
	shown(object("exec", "Command", `JSON such as {"argv": ["backup", "--all"]} or {"script": "..."}; empty: none`, func(raw []byte) error {
		if kernel.NoWork(raw) {
			return nil
		}
		return parseCommand(raw)
	}), func(p *kernel.Policy) string {
		if w := execWorkOf(p.Exec); w != nil {
			return firstLine(cmp.Or(w.Line, w.Script))
		}
		return ""
	}),
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

// shown has pages show another text than forms.
func shown(s setting, words func(*kernel.Policy) string) setting { s.words = words; return s }

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

// parseWall reads a wall time in a zone; "" = the job's.
func parseWall(text, zone string) (time.Time, error) {
	in := kernel.WallClock
	if zone != "" {
		in = location(zone)
	}
	for _, layout := range []string{wallTime, wallMinute} {
		if t, err := time.ParseInLocation(layout, text, in); err == nil {
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
