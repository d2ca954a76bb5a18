package ui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// alarmRuleRow is a rule in a list.
type alarmRuleRow struct {
	*kernel.AlarmRule
	Words string // what it looks for
	Hours string // when nothing is sent; "" = none
}

// alarmRulePage is a rule with its form.
type alarmRulePage struct {
	visitor
	Name    string
	Kind    *alarmKind // nil = it is chosen first
	New     bool
	Kinds   []alarmKind
	Form    alarmRuleForm
	Targets []alarmTargetChoice
	Was     alarmRuleRow // the stored rule; without one if it is new
	Fault   string
}

// alarmRuleForm is the typed values of a rule.
type alarmRuleForm struct {
	Name, Jobs, Apps, Tags, InRow, At, Zone, Factor, After, From, To, Every string
	Urgent, Off                                                             bool
	Targets                                                                 []string
}

type alarmTargetChoice struct {
	Name string
	On   bool
}

// alarmKind is a kind of rules, and the fields of its form.
type alarmKind struct {
	Kind       kernel.AlarmKind
	Name, Help string
	After      string // the label of the duration; "" = there is none
}

// OfApps reports whether rules of the kind are about apps.
func (k alarmKind) OfApps() bool { return k.Kind.OfApps() }

var alarmKinds = []alarmKind{
	{kernel.AlarmFailed, "Failed", "runs of a job failed for good", ""},
	{kernel.AlarmMissed, "Missed", "due times of a job were missed", ""},
	{kernel.AlarmGap, "Gap", "the ledger of a job has a due time with neither a run nor a reason", ""},
	{kernel.AlarmPaused, "Paused itself", "a job paused itself because its runs failed", ""},
	{kernel.AlarmExpected, "Expected", "a job has not succeeded by a time of day, or for a while", "Or: has not succeeded for"},
	{kernel.AlarmSlow, "Slow", "a run takes longer than the job's runs do on average", "Runs that take less are not slow"},
	{kernel.AlarmBacklog, "Backlog", "ready runs of an app wait for too long", "A run is ready for longer than"},
	{kernel.AlarmNoWorker, "No worker", "runs of an app are ready, and it has no worker", "A run is ready for longer than"},
}

func alarmKindOf(kind kernel.AlarmKind) *alarmKind {
	for i := range alarmKinds {
		if alarmKinds[i].Kind == kind {
			return &alarmKinds[i]
		}
	}
	return nil
}

func alarmRuleRowOf(r *kernel.AlarmRule) alarmRuleRow {
	row := alarmRuleRow{AlarmRule: r, Words: string(r.Kind)}
	if k := alarmKindOf(r.Kind); k != nil {
		row.Words = k.Help
	}
	zone := " " + r.Zone
	if r.Zone == "" {
		zone = " UTC"
	}
	switch {
	case r.InRow > 1:
		row.Words = strconv.Itoa(r.InRow) + " " + row.Words + " in a row"
	case r.At != "":
		row.Words = "a job has not succeeded by " + r.At + zone
	case r.Factor > 0:
		row.Words = "a run takes " + factorText(r.Factor) + " times as long as the job's runs do on average"
	}
	switch after := shortDuration(r.After); {
	case r.After == 0:
	case r.Kind == kernel.AlarmExpected:
		row.Words = "a job has not succeeded for " + after
	case r.Kind == kernel.AlarmSlow:
		row.Words += ", and at least " + after
	case r.Kind == kernel.AlarmBacklog:
		row.Words = "ready runs of an app wait for over " + after
	case r.Kind == kernel.AlarmNoWorker:
		row.Words = "runs of an app are ready for over " + after + ", and it has no worker"
	}
	if r.Quiet.From != "" {
		row.Hours = r.Quiet.From + " to " + r.Quiet.To + zone
	}
	return row
}

func factorText(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func alarmRuleFormOf(r *kernel.AlarmRule) alarmRuleForm {
	f := alarmRuleForm{Name: r.Name, Jobs: strings.Join(r.Scope.Keys, ", "), Apps: strings.Join(r.Scope.Apps, ", "), Tags: strings.Join(r.Scope.Tags, ", "), At: r.At, Zone: r.Zone,
		From: r.Quiet.From, To: r.Quiet.To, Urgent: r.Urgent, Off: r.Off, Targets: r.Targets}
	if r.InRow > 0 {
		f.InRow = strconv.Itoa(r.InRow)
	}
	if r.Factor > 0 {
		f.Factor = factorText(r.Factor)
	}
	if r.After > 0 {
		f.After = shortDuration(r.After)
	}
	if r.Every > 0 {
		f.Every = shortDuration(r.Every)
	}
	return f
}

func readAlarmRuleForm(r *http.Request) (f alarmRuleForm) {
	for name, to := range map[string]*string{"name": &f.Name, "jobs": &f.Jobs, "apps": &f.Apps, "tags": &f.Tags, "inrow": &f.InRow, "at": &f.At, "zone": &f.Zone, "factor": &f.Factor,
		"after": &f.After, "from": &f.From, "to": &f.To, "every": &f.Every} {
		*to = normal(r.PostFormValue(name))
	}
	f.Urgent, f.Off, f.Targets = r.PostFormValue("urgent") != "", r.PostFormValue("off") != "", r.PostForm["target"]
	return f
}

// rule returns the rule of the form.
func (f *alarmRuleForm) rule(kind kernel.AlarmKind) (rule kernel.AlarmRule, err error) {
	duration := func(what, text string) (d time.Duration) {
		if text == "" || err != nil {
			return 0
		}
		if d, err = time.ParseDuration(text); err != nil {
			err = kernel.Invalid("invalid %s %.40q: want a duration such as 90s, 5m or 1h30m", what, text)
		}
		return d
	}
	rule = kernel.AlarmRule{Name: f.Name, Kind: kind, Scope: kernel.Scope{Keys: listed(f.Jobs), Apps: listed(f.Apps), Tags: listed(f.Tags)}, At: f.At, Zone: f.Zone,
		After: duration("duration", f.After), Every: duration("interval between messages", f.Every), Targets: f.Targets, Urgent: f.Urgent, Quiet: kernel.Quiet{From: f.From, To: f.To}, Off: f.Off}
	if f.InRow != "" && err == nil {
		if rule.InRow, err = strconv.Atoi(f.InRow); err != nil {
			err = kernel.Invalid("invalid number of failures %.40q: want 1 to 1000", f.InRow)
		}
	}
	if f.Factor != "" && err == nil {
		if rule.Factor, err = strconv.ParseFloat(f.Factor, 64); err != nil {
			err = kernel.Invalid("invalid factor %.40q: want a number above 1, such as 3", f.Factor)
		}
	}
	return rule, err
}

func (p alarmRulePage) answer(s *kernel.AlarmSettings, status int) answer {
	for i := range s.Targets {
		name := s.Targets[i].Name
		p.Targets = append(p.Targets, alarmTargetChoice{name, slices.Contains(p.Form.Targets, name)})
	}
	if p.Kind == nil {
		p.Kinds = alarmKinds
	}
	title := "Rule " + p.Name
	if p.New {
		title = "New rule"
	}
	return answer{page: "alarmrule", title: title, data: p, status: status}
}

func (u *UI) newAlarmRule(r *http.Request, v visitor) (answer, error) {
	s, err := u.ops.AlarmSettings(r.Context(), v.Who)
	p := alarmRulePage{visitor: v, New: true, Kind: alarmKindOf(kernel.AlarmKind(r.URL.Query().Get("kind")))}
	if len(s.Targets) == 1 {
		p.Form.Targets = []string{s.Targets[0].Name}
	}
	return p.answer(&s, 0), err
}

func (u *UI) alarmRule(r *http.Request, v visitor) (answer, error) {
	s, err := u.ops.AlarmSettings(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	rule := s.Rule(r.PathValue("name"))
	if rule == nil {
		return answer{}, kernel.Refuse(jobs.NotFound, "there is no alarm rule %.60q", r.PathValue("name"))
	}
	return alarmRulePage{visitor: v, Name: rule.Name, Kind: alarmKindOf(rule.Kind), Form: alarmRuleFormOf(rule), Was: alarmRuleRowOf(rule)}.answer(&s, 0), nil
}

// setAlarmRule creates or changes a rule, or shows its form again with the error.
func (u *UI) setAlarmRule(r *http.Request, v visitor) (answer, error) {
	form, kind, isNew := readAlarmRuleForm(r), kernel.AlarmKind(r.PostFormValue("kind")), r.PathValue("name") == ""
	s, err := u.ops.AlarmSettings(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	if !isNew {
		form.Name = r.PathValue("name")
	}
	v.Who.Reason = normal(r.PostFormValue("reason"))
	was := s.Rule(form.Name)
	switch {
	case isNew && was != nil:
		err = kernel.Refuse(jobs.Conflict, "alarm rule %s already exists", form.Name)
	case !isNew && was == nil:
		return answer{}, kernel.Refuse(jobs.NotFound, "there is no alarm rule %.60q", form.Name)
	case !isNew:
		kind = was.Kind
	}
	if err == nil {
		var rule kernel.AlarmRule
		if rule, err = form.rule(kind); err == nil {
			err = u.ops.SetAlarmRule(r.Context(), v.Who, rule)
		}
	}
	if err == nil {
		return goTo("/alarms", "saved"), nil
	}
	if !shownAgain(err) {
		return answer{}, err
	}
	p := alarmRulePage{visitor: v, Name: form.Name, Kind: alarmKindOf(kind), New: isNew, Form: form, Fault: said(err)}
	if was != nil && !isNew {
		p.Was = alarmRuleRowOf(was)
	}
	return p.answer(&s, statusOf(err)), nil
}

func (u *UI) dropAlarmRule(r *http.Request, v visitor) (answer, error) {
	v.Who.Reason = normal(r.PostFormValue("reason"))
	if err := u.ops.DropAlarmRule(r.Context(), v.Who, r.PathValue("name")); err != nil {
		return u.faulted(r, v, err)
	}
	return goTo("/alarms", "deleted"), nil
}
