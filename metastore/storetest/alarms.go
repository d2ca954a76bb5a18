package storetest

import (
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// alarmCommand reads the commands about alarms; nil: it is another one.
//
//	target NAME kind [url=] [secret=] [to=a,b]          notarget NAME
//	rule NAME kind targets=a,b [jobs=a.*+b] [apps=a] [tags=t] [inRow=n] [at=06:00] [zone=] [factor=2] [after=1m]
//	     [quiet=22:00-07:00] [every=1h] [urgent] [off]  norule NAME
//	raise RULE [job=KEY] [app=a] [text=...]             over RULE number [job=KEY] [app=a] [why=...]
//	sent RULE number TARGET raised|again|resolved count [job=KEY] [app=a] [failed] [next=+1m] [answer=...]
//	purgealarms number ...
func (tl *telling) alarmCommand(w words) kernel.Command {
	n := func(i int) uint64 { return uint64(tl.number(w.name(i))) }
	job, app := jobs.Key(w.take("job")), w.take("app")
	switch w.verb {
	case "target":
		t := kernel.AlarmTarget{Name: w.name(0), Kind: w.name(1), URL: w.take("url"), Secret: w.take("secret")}
		if to := w.take("to"); to != "" {
			t.To = strings.Split(to, ",")
		}
		return kernel.SetAlarmTarget{Target: t}
	case "notarget":
		return kernel.DropAlarmTarget{Name: w.name(0)}
	case "rule":
		r := kernel.AlarmRule{Name: w.name(0), Kind: kernel.AlarmKind(w.name(1)), InRow: tl.number(w.take("inRow")), At: w.take("at"), Zone: w.take("zone"),
			After: tl.duration(w.take("after")), Every: tl.duration(w.take("every")), Urgent: w.has("urgent"), Off: w.has("off"), Scope: scopeIn(w)}
		r.Factor, _ = strconv.ParseFloat(w.take("factor"), 64)
		if targets := w.take("targets"); targets != "" {
			r.Targets = strings.Split(targets, ",")
		}
		r.Quiet.From, r.Quiet.To, _ = strings.Cut(w.take("quiet"), "-")
		return kernel.SetAlarmRule{Rule: r}
	case "norule":
		return kernel.DropAlarmRule{Name: w.name(0)}
	case "raise":
		return kernel.RaiseAlarm{Rule: w.name(0), Job: job, App: app, Text: w.take("text")}
	case "over":
		return kernel.EndAlarm{Rule: w.name(0), N: n(1), Job: job, App: app, Why: w.take("why")}
	case "sent":
		return kernel.SentAlarm{Rule: w.name(0), N: n(1), Job: job, App: app, Reported: n(4), Next: tl.at(w.take("next")),
			Sent: kernel.AlarmSent{Target: w.name(2), At: tl.h.Clock.Now(), What: kernel.AlarmNews(w.name(3)), Text: w.take("answer"), OK: !w.has("failed")}}
	case "purgealarms":
		k := kernel.PurgeAlarms{}
		for i := range w.names {
			k.N = append(k.N, n(i))
		}
		return k
	}
	return nil
}

func showAlarms(tl *telling, w words) string {
	list, err := tl.h.Store.Alarms(tl.t.Context(), metastore.AlarmQuery{Tenant: tenantOf(w), Which: metastore.AlarmState(w.value["which"]), Limit: tl.number(w.value["limit"])})
	if err != nil {
		return refusedRead(err)
	}
	return several(list, func(a *kernel.Alarm) string {
		p := phrase{"alarm " + strconv.FormatUint(a.N, 10) + " of rule " + a.Rule + " about " + a.About()}
		p.add(true, "%d times from %s to %s", a.Count, since(a.Since), since(a.Last))
		p.add(a.Text != "", "%q", a.Text)
		p.add(!a.Succeeded.IsZero(), "succeeded at %s", since(a.Succeeded))
		p.add(!a.Ended.IsZero(), "ended at %s: %s", since(a.Ended), a.Why)
		for _, s := range a.Sends {
			p.add(s.Reported > 0, "%s was notified of %d", s.Target, s.Reported)
			p.add(s.Closed, "%s knows the end", s.Target)
			p.add(s.Tries > 0, "%s did not take %d", s.Target, s.Tries)
			p.add(!s.Next.IsZero(), "%s again at %s", s.Target, since(s.Next))
		}
		p.add(a.Settled(), "settled")
		return strings.Join(p, ", ")
	})
}

// showAlarmRules lists the targets and rules.
func showAlarmRules(tl *telling, w words) string {
	list, err := tl.h.Store.AlarmSettings(tl.t.Context(), tenantOf(w))
	if err != nil {
		return refusedRead(err)
	}
	var lines []string
	for _, s := range list {
		for _, t := range s.Targets {
			p := phrase{"target " + t.Name + " " + t.Kind}
			p.add(t.URL != "", "URL %s", t.URL)
			p.add(t.Secret != "", "secret %s", t.Secret)
			p.add(len(t.To) > 0, "to %s", strings.Join(t.To, " "))
			lines = append(lines, strings.Join(p, ", "))
		}
		for _, r := range s.Rules {
			p := phrase{"rule " + r.Name + " " + string(r.Kind) + " to " + strings.Join(r.Targets, " ")}
			p.add(!r.Scope.All(), "of %s", &r.Scope)
			p.add(r.Off, "off")
			p.add(r.Open > 0, "%d open", r.Open)
			lines = append(lines, strings.Join(p, ", "))
		}
	}
	if len(lines) == 0 {
		return "none"
	}
	return strings.Join(lines, "\n")
}
