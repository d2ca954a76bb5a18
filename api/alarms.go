package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// AlarmTarget receives messages of alarms. Its URL and secret are never shown.
type AlarmTarget struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"`
	URL     string    `json:"url,omitempty" doc:"Without its path."`
	To      []string  `json:"to,omitempty" doc:"Addresses of e-mail."`
	By      string    `json:"by"`
	Changed time.Time `json:"changed"`
}

// AlarmRule is what is looked for, and who is notified.
type AlarmRule struct {
	AlarmRuleFields
	Name    string    `json:"name"`
	Open    int       `json:"open" doc:"Alarms of the rule that have not ended."`
	By      string    `json:"by"`
	Changed time.Time `json:"changed"`
}

// AlarmRuleFields are what may be set of a rule.
type AlarmRuleFields struct {
	Kind      kernel.AlarmKind `json:"kind" enum:"failed,missed,gap,paused,expected,slow,backlog,no_worker"`
	Jobs      []string         `json:"jobs,omitempty" maxItems:"100" doc:"Keys or patterns such as billing.*. Without jobs, apps and tags: all jobs."`
	Apps      []string         `json:"apps,omitempty" maxItems:"100"`
	Tags      []string         `json:"tags,omitempty" maxItems:"100"`
	InRow     int              `json:"inRow,omitempty" maximum:"1000" doc:"Kind failed: so many failures without a success between. Default: 1."`
	At        string           `json:"at,omitempty" maxLength:"5" example:"06:00" doc:"Kind expected: the time of day by which a run must have succeeded. Or give after: how long a job may be without a success."`
	Zone      string           `json:"zone,omitempty" maxLength:"100" doc:"IANA name, for at and quiet hours. Default: UTC."`
	Factor    float64          `json:"factor,omitempty" maximum:"1000" doc:"Kind slow: how many times as long as on average."`
	After     Duration         `json:"after,omitempty" doc:"Kinds slow, backlog and no_worker: a duration below which nothing is wrong."`
	Targets   []string         `json:"targets" maxItems:"10" nullable:"false"`
	Urgent    bool             `json:"urgent,omitempty" doc:"Sent in quiet hours, too."`
	QuietFrom string           `json:"quietFrom,omitempty" maxLength:"5" example:"22:00"`
	QuietTo   string           `json:"quietTo,omitempty" maxLength:"5" example:"07:00"`
	Every     Duration         `json:"every,omitempty" doc:"Minimum interval between two messages about one alarm. Default: 5m."`
	Off       bool             `json:"off,omitempty"`
}

// Alarm is a problem that a rule found.
type Alarm struct {
	Number uint64           `json:"number"`
	Rule   string           `json:"rule"`
	Kind   kernel.AlarmKind `json:"kind"`
	Job    jobs.Key         `json:"job,omitempty"`
	App    string           `json:"app"`
	Title  string           `json:"title"`
	Text   string           `json:"text,omitempty"`
	Run    string           `json:"run,omitempty" doc:"The last run that failed."`
	Count  uint64           `json:"count" doc:"How often it was found."`
	Since  time.Time        `json:"since"`
	Last   time.Time        `json:"last"`
	Ended  *time.Time       `json:"ended,omitempty"`
	Why    string           `json:"why,omitempty" doc:"Why it ended."`
	To     []AlarmSend      `json:"to" nullable:"false"`
	Sent   []AlarmSent      `json:"sent" nullable:"false" doc:"The last messages, oldest first."`
}

// AlarmSend is how far a target has been notified.
type AlarmSend struct {
	Target   string     `json:"target"`
	Notified bool       `json:"notified" doc:"It took a message about the alarm."`
	Closed   bool       `json:"closed" doc:"It was notified of the end, or never will be."`
	Tries    int        `json:"tries,omitempty" doc:"Failures since the last message that it took."`
	Next     *time.Time `json:"next,omitempty" doc:"The next try, after a failure."`
}

// AlarmSent is a message and its answer.
type AlarmSent struct {
	Target string           `json:"target"`
	At     time.Time        `json:"at"`
	What   kernel.AlarmNews `json:"what" enum:"raised,again,resolved"`
	OK     bool             `json:"ok"`
	Status int              `json:"status,omitempty" doc:"Of HTTP or SMTP."`
	Answer string           `json:"answer,omitempty"`
}

func alarmOf(a *kernel.Alarm) Alarm {
	out := Alarm{Number: a.N, Rule: a.Rule, Kind: a.Kind, Job: a.Job, App: a.App, Title: alarms.Title(a), Text: a.Text, Count: a.Count, Since: a.Since, Last: a.Last,
		Ended: when(a.Ended), Why: a.Why, To: []AlarmSend{}, Sent: []AlarmSent{}}
	if !a.Run.IsZero() {
		out.Run = a.Run.String()
	}
	for _, s := range a.Sends {
		out.To = append(out.To, AlarmSend{Target: s.Target, Notified: !s.At.IsZero(), Closed: s.Closed, Tries: s.Tries, Next: when(s.Next)})
	}
	for _, s := range a.Sent {
		out.Sent = append(out.Sent, AlarmSent{Target: s.Target, At: s.At, What: s.What, OK: s.OK, Status: s.Status, Answer: s.Text})
	}
	return out
}

func alarmRuleOf(r *kernel.AlarmRule) AlarmRule {
	return AlarmRule{Name: r.Name, Open: r.Open, By: r.By, Changed: r.Edited, AlarmRuleFields: AlarmRuleFields{Kind: r.Kind, Jobs: r.Scope.Keys, Apps: r.Scope.Apps, Tags: r.Scope.Tags,
		InRow: r.InRow, At: r.At, Zone: r.Zone, Factor: r.Factor, Targets: r.Targets, Urgent: r.Urgent, QuietFrom: r.Quiet.From, QuietTo: r.Quiet.To, Off: r.Off, After: Duration(r.After), Every: Duration(r.Every)}}
}

// rule returns the rule of a name.
func (f AlarmRuleFields) rule(name string) kernel.AlarmRule {
	return kernel.AlarmRule{Name: name, Kind: f.Kind, Scope: kernel.Scope{Keys: f.Jobs, Apps: f.Apps, Tags: f.Tags}, InRow: f.InRow, At: f.At, Zone: f.Zone, Factor: f.Factor,
		After: time.Duration(f.After), Every: time.Duration(f.Every), Targets: f.Targets, Urgent: f.Urgent, Quiet: kernel.Quiet{From: f.QuietFrom, To: f.QuietTo}, Off: f.Off}
}

type (
	alarmList struct {
		Items []Alarm `json:"items" nullable:"false"`
	}
	alarmTargetList struct {
		Items []AlarmTarget `json:"items" nullable:"false"`
	}
	alarmRuleList struct {
		Items []AlarmRule `json:"items" nullable:"false"`
	}
	// AlarmNumber names an alarm.
	AlarmNumber struct {
		Number uint64 `path:"number"`
	}
	// AlarmName names a target or a rule.
	AlarmName struct {
		Name string `path:"name" minLength:"1" maxLength:"200"`
	}
	// AlarmTest is a target's answer to a test message.
	AlarmTest struct {
		OK     bool   `json:"ok"`
		Status int    `json:"status,omitempty" doc:"Of HTTP or SMTP."`
		Answer string `json:"answer,omitempty"`
	}
)

type alarmsInput struct {
	State  string `query:"state" enum:"open,unsettled" doc:"Only open ones, or those and ended ones of which a target was not notified."`
	Before uint64 `query:"before" doc:"Those with a number below this."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type setAlarmTargetInput struct {
	AlarmName
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   struct {
		Kind   string   `json:"kind" enum:"webhook,email,slack,teams,pagerduty,dingtalk,wecom,feishu"`
		URL    string   `json:"url,omitempty" maxLength:"2048" doc:"Missing: as it is."`
		To     []string `json:"to,omitempty" maxItems:"50" doc:"Addresses of e-mail."`
		Secret string   `json:"secret,omitempty" maxLength:"1024" doc:"Signs, or is PagerDuty's integration key. Missing: as it is."`
		Rules  bool     `json:"rules,omitempty" doc:"If there are no rules, create the usual ones: failed, missed, paused, no-worker."`
	}
}

type setAlarmRuleInput struct {
	AlarmName
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   AlarmRuleFields
}

func because(ctx context.Context, reason string) ops.Who {
	asker := who(ctx)
	asker.Reason = reason
	return asker
}

func (a *API) routeAlarms() {
	tags := []string{"alarms"}
	register(a, ops.Viewer, huma.Operation{OperationID: "list-alarms", Method: http.MethodGet, Path: "/alarms", Tags: tags, Summary: "List alarms, newest first"},
		func(ctx context.Context, in *alarmsInput) (*struct{ Body alarmList }, error) {
			list, err := a.ops.Alarms(ctx, who(ctx), metastore.AlarmState(in.State), in.Before, in.Limit)
			if err != nil {
				return nil, err
			}
			out := alarmList{Items: make([]Alarm, len(list))}
			for i, one := range list {
				out.Items[i] = alarmOf(one)
			}
			return &struct{ Body alarmList }{out}, nil
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "get-alarm", Method: http.MethodGet, Path: "/alarms/{number}", Tags: tags, Summary: "Read an alarm"},
		func(ctx context.Context, in *AlarmNumber) (*struct{ Body Alarm }, error) {
			one, err := a.ops.Alarm(ctx, who(ctx), in.Number)
			if err != nil {
				return nil, err
			}
			return &struct{ Body Alarm }{alarmOf(one)}, nil
		})
	register(a, ops.Operator, huma.Operation{OperationID: "end-alarm", Method: http.MethodPost, Path: "/alarms/{number}/end", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "End an alarm", Description: "A condition that still holds raises another one."},
		func(ctx context.Context, in *struct {
			AlarmNumber
			Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
		}) (*struct{}, error) {
			return nil, a.ops.EndAlarm(ctx, because(ctx, in.Reason), in.Number)
		})
	a.routeAlarmTargets(tags)
	a.routeAlarmRules(tags)
}

func (a *API) routeAlarmTargets(tags []string) {
	register(a, ops.Viewer, huma.Operation{OperationID: "list-alarm-targets", Method: http.MethodGet, Path: "/alarm-targets", Tags: tags, Summary: "List targets of alarms by name"},
		func(ctx context.Context, _ *none) (*struct{ Body alarmTargetList }, error) {
			s, err := a.ops.AlarmSettings(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			out := alarmTargetList{Items: []AlarmTarget{}}
			for _, t := range s.Targets {
				out.Items = append(out.Items, AlarmTarget{Name: t.Name, Kind: t.Kind, URL: t.URL, To: t.To, By: t.By, Changed: t.Edited})
			}
			return &struct{ Body alarmTargetList }{out}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "set-alarm-target", Method: http.MethodPut, Path: "/alarm-targets/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Create or replace a target of alarms"},
		func(ctx context.Context, in *setAlarmTargetInput) (*struct{}, error) {
			t := kernel.AlarmTarget{Name: in.Name, Kind: in.Body.Kind, URL: in.Body.URL, To: in.Body.To, Secret: in.Body.Secret}
			return nil, a.ops.SetAlarmTarget(ctx, because(ctx, in.Reason), t, in.Body.Rules)
		})
	register(a, ops.Admin, huma.Operation{OperationID: "delete-alarm-target", Method: http.MethodDelete, Path: "/alarm-targets/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a target of alarms", Description: "Refused while a rule names it."},
		func(ctx context.Context, in *AlarmName) (*struct{}, error) {
			return nil, a.ops.DropAlarmTarget(ctx, who(ctx), in.Name)
		})
	register(a, ops.Admin, huma.Operation{OperationID: "test-alarm-target", Method: http.MethodPost, Path: "/alarm-targets/{name}/test", Tags: tags, Summary: "Send a test message to a target",
		Description: "It is sent once, by the node that was asked."},
		func(ctx context.Context, in *AlarmName) (*struct{ Body AlarmTest }, error) {
			answer, err := a.ops.TestAlarmTarget(ctx, who(ctx), in.Name)
			if err != nil {
				return nil, err
			}
			return &struct{ Body AlarmTest }{AlarmTest{OK: answer.Delivered, Status: answer.Status, Answer: answer.Text}}, nil
		})
}

func (a *API) routeAlarmRules(tags []string) {
	register(a, ops.Viewer, huma.Operation{OperationID: "list-alarm-rules", Method: http.MethodGet, Path: "/alarm-rules", Tags: tags, Summary: "List alarm rules by name"},
		func(ctx context.Context, _ *none) (*struct{ Body alarmRuleList }, error) {
			s, err := a.ops.AlarmSettings(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			out := alarmRuleList{Items: []AlarmRule{}}
			for i := range s.Rules {
				out.Items = append(out.Items, alarmRuleOf(&s.Rules[i]))
			}
			return &struct{ Body alarmRuleList }{out}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "set-alarm-rule", Method: http.MethodPut, Path: "/alarm-rules/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Create or replace an alarm rule"},
		func(ctx context.Context, in *setAlarmRuleInput) (*struct{}, error) {
			return nil, a.ops.SetAlarmRule(ctx, because(ctx, in.Reason), in.Body.rule(in.Name))
		})
	register(a, ops.Admin, huma.Operation{OperationID: "delete-alarm-rule", Method: http.MethodDelete, Path: "/alarm-rules/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete an alarm rule", Description: "Its open alarms end."},
		func(ctx context.Context, in *AlarmName) (*struct{}, error) {
			return nil, a.ops.DropAlarmRule(ctx, who(ctx), in.Name)
		})
}
