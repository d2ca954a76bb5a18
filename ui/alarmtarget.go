package ui

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// alarmTargetRow is a target in a list.
type alarmTargetRow struct {
	kernel.AlarmTarget
	Service string
	Rules   []string // that name it
}

// alarmTargetPage is a target with its form. URL and secret are write-only: no page has them.
type alarmTargetPage struct {
	visitor
	Is        alarmTargetRow
	New       bool
	Services  []targetService // to choose from; for a new target without a kind
	Usual     bool            // there are no rules yet
	Addresses string          // one a line
	Fault     string
}

// targetService is a kind of target and what its form has.
type targetService struct {
	Kind              alarms.Kind
	Name, Help        string
	URL, Secret       string // hints; "" = there is no such field
	NoURL, MustSecret bool   // the URL may be left out; the secret may not
}

var targetServices = []targetService{
	{Kind: alarms.Email, Name: "E-mail", Help: "sent by the server's SMTP settings"},
	{Kind: alarms.Slack, Name: "Slack", Help: "incoming webhook of a channel", URL: "the URL of the incoming webhook"},
	{Kind: alarms.Teams, Name: "Microsoft Teams", Help: "webhook of a workflow", URL: "the URL of the workflow"},
	{Kind: alarms.PagerDuty, Name: "PagerDuty", Help: "Events API v2", URL: "only for another region", NoURL: true, Secret: "the integration key of the service", MustSecret: true},
	{Kind: alarms.DingTalk, Name: "DingTalk", Help: "robot of a group", URL: "the webhook of the robot", Secret: "its signing secret, if it has one"},
	{Kind: alarms.WeCom, Name: "WeCom", Help: "robot of a group", URL: "the webhook of the robot"},
	{Kind: alarms.Feishu, Name: "Feishu", Help: "robot of a group", URL: "the webhook of the robot", Secret: "its signing secret, if it has one"},
	{Kind: alarms.Webhook, Name: "Webhook", Help: "JSON to a URL of yours", URL: "http or https", Secret: "signs requests; at least 16 bytes, or none"},
}

func serviceOf(kind string) *targetService {
	for i := range targetServices {
		if string(targetServices[i].Kind) == kind {
			return &targetServices[i]
		}
	}
	return nil
}

// Form returns the fields of the target's kind; nil if it is unknown.
func (p alarmTargetPage) Form() *targetService { return serviceOf(p.Is.Kind) }

func alarmTargetRowOf(s *kernel.AlarmSettings, t *kernel.AlarmTarget) alarmTargetRow {
	row := alarmTargetRow{AlarmTarget: *t, Service: t.Kind}
	if service := serviceOf(t.Kind); service != nil {
		row.Service = service.Name
	}
	for i := range s.Rules {
		if slices.Contains(s.Rules[i].Targets, t.Name) {
			row.Rules = append(row.Rules, s.Rules[i].Name)
		}
	}
	return row
}

func (p alarmTargetPage) answer(status int) answer {
	title := "Target " + p.Is.Name
	if p.New {
		title = "New target"
	}
	return answer{page: "alarmtarget", title: title, data: p, status: status}
}

func (u *UI) newAlarmTarget(r *http.Request, v visitor) (answer, error) {
	s, err := u.ops.AlarmSettings(r.Context(), v.Who)
	p := alarmTargetPage{visitor: v, New: true, Usual: len(s.Rules) == 0}
	if p.Is.Kind = r.URL.Query().Get("kind"); p.Form() == nil {
		p.Is.Kind, p.Services = "", targetServices
	}
	return p.answer(0), err
}

func (u *UI) alarmTarget(r *http.Request, v visitor) (answer, error) {
	s, err := u.ops.AlarmSettings(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	t := s.Target(r.PathValue("name"))
	if t == nil {
		return answer{}, kernel.Refuse(jobs.NotFound, "there is no target of alarms %.60q", r.PathValue("name"))
	}
	return alarmTargetPage{visitor: v, Is: alarmTargetRowOf(&s, t), Addresses: strings.Join(t.To, "\n")}.answer(0), nil
}

// setAlarmTarget creates or changes a target, or shows its form again with the error, without what was typed as URL and
// secret.
func (u *UI) setAlarmTarget(r *http.Request, v visitor) (answer, error) {
	t := kernel.AlarmTarget{Name: r.PathValue("name"), Kind: r.PostFormValue("kind"), URL: normal(r.PostFormValue("url")), Secret: normal(r.PostFormValue("secret")), To: listed(oneSpace(r.PostFormValue("to")))}
	isNew := t.Name == ""
	if isNew {
		t.Name = normal(r.PostFormValue("name"))
	}
	v.Who.Reason = normal(r.PostFormValue("reason"))
	s, err := u.ops.AlarmSettings(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	switch was := s.Target(t.Name); {
	case isNew && was != nil:
		err = kernel.Refuse(jobs.Conflict, "target %s already exists", t.Name)
	case !isNew && was == nil:
		return answer{}, kernel.Refuse(jobs.NotFound, "there is no target of alarms %.60q", t.Name)
	default:
		if !isNew {
			t.Kind = was.Kind
		}
		err = u.ops.SetAlarmTarget(r.Context(), v.Who, t, r.PostFormValue("rules") != "")
	}
	if err == nil {
		return goTo("/alarms", "saved"), nil
	}
	if !shownAgain(err) {
		return answer{}, err
	}
	t.URL, t.Secret = "", ""
	if was := s.Target(t.Name); was != nil && !isNew {
		t.URL = was.URL // its host
	}
	p := alarmTargetPage{visitor: v, Is: alarmTargetRowOf(&s, &t), New: isNew, Usual: len(s.Rules) == 0, Addresses: strings.Join(t.To, "\n"), Fault: said(err)}
	if p.Form() == nil {
		p.Is.Kind, p.Services = "", targetServices
	}
	return p.answer(statusOf(err)), nil
}

// oneSpace replaces the ends of lines, so that a list may have one item a line.
func oneSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

func (u *UI) dropAlarmTarget(r *http.Request, v visitor) (answer, error) {
	v.Who.Reason = normal(r.PostFormValue("reason"))
	if err := u.ops.DropAlarmTarget(r.Context(), v.Who, r.PathValue("name")); err != nil {
		return u.faulted(r, v, err)
	}
	return goTo("/alarms", "deleted"), nil
}

// testAlarmTarget sends a test message and shows the answer. It does not redirect: the answer is stored nowhere.
func (u *UI) testAlarmTarget(r *http.Request, v visitor) (answer, error) {
	name := r.PathValue("name")
	got, err := u.ops.TestAlarmTarget(r.Context(), v.Who, name)
	if err != nil {
		return u.faulted(r, v, err)
	}
	return u.alarmsAnswer(r, v, func(p *alarmsPage) { p.Test = &targetTest{name, got} })
}
