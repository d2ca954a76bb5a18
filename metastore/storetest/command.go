package storetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The commands of a story:
//
//	register KEY [recurring] [again] [app=a] [worker=w] [version=n] [bundle=b] [FIELD=value ...]
//	edit KEY [clear=FIELD,FIELD] [if=revision] [bundle=b] [takeover] [leave] [FIELD=value ...]
//	pause KEY [because=...] [until=+1h]     resume KEY [discard] [from=+1m]     refresh KEY
//	create RUN KEY [delay=1h] [due=+1h] [unique=u] [for=1h] [request=idempotency key] [args={...}] [origin=person]
//	       [priority=n] [retries=n] [timeout=1h] [startWithin=1h] [parent=RUN] [trace=...] [occasion=RUN]
//	fire KEY to=+1m [due=+30s,+1m] [missed=+10s..+20s/11/paused] [origin=misfire] [from=+0s] [rev=n] [global=n] [term=n]
//	backfill NAME KEY due=+10s,+20s! [parallel=2] [priority=n] [take=+10s..+20s/2/paused] [give=...] [job=KEY]
//	release RUN [force]     start RUN WORKER attempt     checkpoint RUN WORKER attempt data
//	finish RUN WORKER attempt success|error|fatal|timeout|handback|snooze [result=json] [error=text] [code=c] [delay=1m]
//	       [running]
//	expand RUN [WORKER ...]                                  its parts are RUN, RUN/1, RUN/2 ...
//	returned RUN WORKER attempt     expire RUN attempt lost|timeout [unbegun]     unstart RUN attempt     cancel RUN
//	configure [recurringDebug=on] [triggeredDebug=on] [discard] [misfireAfter=1m] [maxJobs=n] [retryBudget=10/s] [apps=a:2]
//	          [newJobs=disabled] [defaults.FIELD=value] [app=a] [reset=NAME,NAME]
//	          [file] [file.recurringDebug=on] [file.triggeredDebug=on] [file.newJobs=disabled] [file.FIELD=value]
//	lead TERM NODE     forget NAME|occasion/KEY     hand GATE     delete KEY [if=revision] [bundle=b]
//	grant ID NAME role [jobs=a.*+b] [apps=a] [tags=t] [app=a] [until=+1h] [secret=s]     revoke ID
//	invite NAME until=+15m [secret=s]     join NAME NODE address=a [secret=s]     members DID NODE
//	signin SESSION ID until=+1h [idle=10m]     touch SESSION     signout SESSION     trim before=+1h [all]
//	signin SESSION until=+1h subject=s [name=n] [email=e] rights=TENANT:role,TENANT:role [idle=10m]
//	drain WORKER [off]     mark KEY stopped|served     finalize VERSION
//	ledgerkey SEED
//	calendar NAME [rules="SAT,SUN;12-25"] [zone=] [description=] [if=revision] [bundle=b] [takeover]
//	tenant NAME [create] [title=...] [jobs=n] [waiting=n] [workers=n] [starts=10/s] [bytes=n]
//	suspend NAME [off]     dissolve NAME     drop NAME [last]                    drop takes all rows
//	nocalendar NAME [if=revision] [bundle=b]
//	target, notarget, rule, norule, raise, over, sent, purgealarms: see alarmCommand
//	checkin RUN KEY [failed] [error=] [result=] [took=]
//	openbatch NAME THEN [args=]     closebatch NAME     create ... batch=NAME
//	denied TARGET [who=actor] [from=address] [why=...] [times=2] [first=+1m] [last=+2m]
//	exported SINK ... [to=SINK:number] [gap=1-2] [failing=+1m] [error=...]
//
// All take tenant=, by= (the actor) and reason=. FIELDs are those of the settings, as in JSON;
// limits=a:2,b:1:10/s,c:2@args.c; retryRules=502+503:3:1s:2;*:1.

// words are a line of a story.
type words struct {
	verb  string
	names []string // words without a value
	value map[string]string
	order []string // the values' names, in their order
}

// split cuts a line at spaces that are not in quotes or braces.
func split(line string) words {
	var parts []string
	var part strings.Builder
	quoted, depth := false, 0
	for _, r := range line {
		switch {
		case r == '"' && depth == 0:
			quoted = !quoted
			continue
		case r == '{':
			depth++
		case r == '}':
			depth--
		case r == ' ' && !quoted && depth == 0:
			parts = append(parts, part.String())
			part.Reset()
			continue
		}
		part.WriteRune(r)
	}
	parts = append(parts, part.String())
	w := words{verb: parts[0], value: map[string]string{}}
	for _, p := range parts[1:] {
		if name, value, ok := strings.Cut(p, "="); ok {
			w.value[name] = value
			w.order = append(w.order, name)
		} else if p != "" {
			w.names = append(w.names, p)
		}
	}
	return w
}

func (w words) name(i int) string {
	if i < len(w.names) {
		return w.names[i]
	}
	return ""
}

// secrets are the digests of a cluster secret, if there is one.
func secrets(secret string) []jobs.ID {
	if secret == "" {
		return nil
	}
	return []jobs.ID{kernel.ClusterSecretID(secret)}
}

func (w words) has(name string) bool {
	for _, n := range w.names {
		if n == name {
			return true
		}
	}
	return false
}

// take is a value that is marked as read, so that misspelled ones are found.
func (w words) take(name string) string {
	v := w.value[name]
	delete(w.value, name)
	return v
}

func runID(name string) jobs.ID { return kernel.DerivedID("run", name) }

// run is the id of a run by its name in the story.
func (tl *telling) run(name string) jobs.ID {
	for id, n := range tl.names {
		if n == name {
			return id
		}
	}
	tl.names[runID(name)] = name
	return runID(name)
}

func (tl *telling) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		tl.t.Fatal(err)
	}
	return d
}

// at is a time of the story, written as +1h.
func (tl *telling) at(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	return Start.Add(tl.duration(strings.TrimPrefix(text, "+")))
}

func (tl *telling) number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tl.t.Fatal(err)
	}
	return n
}

func (tl *telling) envelope(w words) kernel.Envelope {
	tl.t.Helper()
	e := kernel.Envelope{ID: kernel.DerivedID("envelope", fmt.Sprint(tl.count)), Tenant: jobs.DefaultTenant, Actor: "client:shop", Reason: w.take("reason")}
	if t := w.take("tenant"); t != "" {
		e.Tenant = jobs.Tenant(t)
	}
	if by := w.take("by"); by != "" {
		e.Actor = by
	}
	e.Command = tl.command(e.Tenant, w)
	for name := range w.value {
		tl.t.Fatalf("%s has no %s=", w.verb, name)
	}
	return e
}

var outcomes = map[string]kernel.Outcome{"success": kernel.OutcomeSuccess, "error": kernel.OutcomeError, "fatal": kernel.OutcomeFatal,
	"timeout": kernel.OutcomeTimeout, "handback": kernel.OutcomeHandback, "snooze": kernel.OutcomeSnooze}

// feedbackKey is a key that signs the feedback about a run.
func feedbackKey(name string) []byte {
	return []byte((name + strings.Repeat(".", kernel.FeedbackKey))[:kernel.FeedbackKey])
}

func (tl *telling) command(tenant jobs.Tenant, w words) kernel.Command {
	key := jobs.Key(w.name(0))
	attempt := func(i int) uint32 { return uint32(tl.number(w.name(i))) }
	switch w.verb {
	case "register":
		k := kernel.Register{App: or(w.take("app"), "app"), Worker: or(w.take("worker"), "w1"), Start: !w.has("again"), Bundle: w.take("bundle"),
			Job: kernel.Declaration{Key: key, Kind: kernel.Triggered, Version: tl.number(w.take("version"))}}
		if w.has("recurring") {
			k.Job.Kind = kernel.Recurring
		}
		k.Job.Code = tl.settings(w, "")
		if c := &k.Job.Code; c.RetryDelay == nil && (c.Retries != nil || c.RetryRules != nil) { // stories tell their times in full
			k.Job.Code.RetryDelay = new(time.Duration(0))
		}
		return k
	case "edit":
		k := kernel.Edit{Key: key, IfRevision: uint64(tl.number(w.take("if"))), Restart: w.has("restart"),
			Bundle: w.take("bundle"), TakeOver: w.has("takeover"), Leave: w.has("leave")}
		if c := w.take("clear"); c != "" {
			k.Clear = strings.Split(c, ",")
		}
		k.Set = tl.settings(w, "")
		return k
	case "pause":
		return kernel.Pause{Key: key, Reason: w.take("because"), Until: tl.at(w.take("until"))}
	case "resume":
		return kernel.Resume{Key: key, Discard: w.has("discard"), From: tl.at(w.take("from"))}
	case "refresh":
		return kernel.Refresh{Key: key}
	case "create":
		return tl.create(w)
	case "fire":
		return tl.fire(tenant, w)
	case "backfill":
		return tl.backfill(tenant, w)
	case "release":
		return kernel.Release{ID: tl.run(w.name(0)), Force: w.has("force")}
	case "start":
		k := kernel.Start{ID: tl.run(w.name(0)), Worker: w.name(1), Attempt: attempt(2)}
		if app := w.take("app"); app != "" {
			k.Skills = &kernel.Skills{App: app, Handler: jobs.Key(w.take("handler")), Work: w.take("work")}
		}
		return k
	case "checkpoint":
		return kernel.Checkpoint{ID: tl.run(w.name(0)), Worker: w.name(1), Attempt: attempt(2), Data: raw(strconv.Quote(w.name(3)))}
	case "expect":
		return kernel.Expect{ID: tl.run(w.name(0)), Worker: w.name(1), Attempt: attempt(2), Key: feedbackKey(w.name(3)), Lasts: w.has("lasts")}
	case "notify":
		return kernel.Notify{Run: tl.run(w.name(0)), App: or(w.take("app"), "app"), Worker: w.name(1), Attempt: attempt(2), N: attempt(3), Body: raw(or(w.take("body"), `{"state":"200"}`))}
	case "report":
		k := kernel.Report{ID: tl.run(w.name(0)), Attempt: attempt(1), Nonce: 1, Report: []byte(w.name(3)), Final: w.has("final")}
		k.Signature = (&kernel.Feedback{Key: feedbackKey(w.name(2))}).Sign(k.ID, k.Attempt, k.Nonce)
		return k
	case "finish":
		return kernel.Finish{ID: tl.run(w.name(0)), Worker: w.name(1), Attempt: attempt(2), Outcome: outcomes[w.name(3)], Result: raw(w.take("result")),
			Error: w.take("error"), Code: w.take("code"), Delay: tl.duration(w.take("delay")), Running: w.has("running")}
	case "returned":
		return kernel.Returned{ID: tl.run(w.name(0)), Worker: w.name(1), Attempt: attempt(2)}
	case "unstart":
		return kernel.Unstart{ID: tl.run(w.name(0)), Attempt: attempt(1)}
	case "expire":
		return kernel.Expire{ID: tl.run(w.name(0)), Attempt: attempt(1), Cause: kernel.Cause(w.name(2)), Unbegun: w.has("unbegun")}
	case "cancel":
		return kernel.Cancel{ID: tl.run(w.name(0))}
	case "configure":
		return tl.configure(w)
	case "lead":
		return kernel.Lead{Term: uint64(tl.number(w.name(0))), Node: w.name(1)}
	case "forget":
		return kernel.Forget{Name: tl.timer(tenant, w.name(0))}
	case "hand":
		return kernel.Hand{Gate: tl.gate(w.name(0))}
	case "expand":
		return tl.expand(tenant, w)
	case "delete":
		return kernel.Delete{Key: key, IfRevision: uint64(tl.number(w.take("if"))), Bundle: w.take("bundle")}
	case "grant", "revoke", "signin", "touch", "signout":
		return tl.access(w)
	case "calendar":
		k := kernel.SetCalendar{Name: w.name(0), Zone: w.take("zone"), Description: w.take("description"), IfRevision: uint64(tl.number(w.take("if"))),
			Bundle: w.take("bundle"), TakeOver: w.has("takeover")}
		if rules := w.take("rules"); rules != "" {
			k.Rules = strings.Split(rules, ";")
		}
		return k
	case "nocalendar":
		return kernel.DropCalendar{Name: w.name(0), IfRevision: uint64(tl.number(w.take("if"))), Bundle: w.take("bundle")}
	case "purge":
		return kernel.Purge{Key: key, Before: tl.at(w.take("before"))}
	case "purgeaudit":
		return tl.trim(w)
	case "invite":
		return kernel.Invite{Name: w.name(0), Secret: kernel.SecretID(or(w.take("secret"), "secret")), Until: tl.at(w.take("until"))}
	case "join":
		return kernel.Join{Name: w.name(0), Secret: kernel.SecretID(or(w.take("secret"), "secret")), Node: kernel.DerivedID(w.name(1)), Called: w.name(1), Address: w.take("address")}
	case "ledgerkey":
		return kernel.LedgerKey{Seed: secretOf(w.name(0))}
	case "finalize":
		return kernel.FinalizeUpgrade{To: uint32(tl.number(w.name(0)))}
	case "drain":
		return kernel.Drain{Worker: w.name(0), On: !w.has("off")}
	case "mark":
		return kernel.Mark{Key: key, Stopped: w.name(1) == "stopped"}
	case "tenant":
		return tl.tenant(w)
	case "suspend":
		return kernel.SuspendTenant{Name: jobs.Tenant(w.name(0)), On: !w.has("off")}
	case "dissolve":
		return kernel.DeleteTenant{Name: jobs.Tenant(w.name(0))}
	case "drop":
		k := kernel.DropTenant{Name: jobs.Tenant(w.name(0)), Last: w.has("last")}
		var err error
		if k.Refs, err = tl.leader().TenantRows(tl.t.Context(), k.Name, kernel.MaxTrim); err != nil {
			tl.t.Fatal(err)
		}
		return k
	case "members":
		return kernel.Members{ID: kernel.DerivedID(w.name(0), w.name(1)), Did: w.name(0), Node: w.name(1), Secrets: secrets(w.take("secret"))}
	}
	switch w.verb {
	case "exported":
		return tl.exported(w)
	case "denied":
		return tl.denied(w)
	case "checkin":
		return kernel.CheckIn{ID: tl.run(w.name(0)), Key: jobs.Key(w.name(1)), Failed: w.has("failed"), Error: w.take("error"), Result: raw(w.take("result")), Took: tl.duration(w.take("took")), Idempotency: w.take("request")}
	case "openbatch", "closebatch":
		return tl.batch(w)
	}
	if k := tl.alarmCommand(w); k != nil {
		return k
	}
	tl.t.Fatalf("there is no command %q", w.verb)
	return nil
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func raw(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// gate is a gate's name, with the id of its job.
func (tl *telling) gate(name string) string {
	if key, ok := strings.CutPrefix(name, "job/"); ok {
		return kernel.JobGate(tl.run(key))
	}
	return name
}

func (tl *telling) create(w words) kernel.Command {
	k := kernel.Create{ID: tl.run(w.name(0)), Key: jobs.Key(w.name(1)), Args: raw(w.take("args")), Due: tl.at(w.take("due")),
		Delay: tl.duration(w.take("delay")), Unique: w.take("unique"), UniqueFor: tl.duration(w.take("for")),
		Idempotency: w.take("request"), Origin: kernel.Origin(w.take("origin"))}
	k.Trace = w.take("trace")
	if p := w.take("parent"); p != "" {
		k.Parent = tl.run(p)
	}
	if b := w.take("batch"); b != "" {
		k.Batch = kernel.DerivedID("batch of a story", b)
	}
	if o := w.take("occasion"); o != "" {
		k.Occasion = tl.run(o).String()
	}
	own := tl.settings(w, "")
	k.Priority, k.Retries, k.Timeout, k.StartWithin = own.Priority, own.Retries, own.Timeout, own.StartWithin
	return k
}

// timer is a name, or that of the timer of a job's latest open occasion.
func (tl *telling) timer(tenant jobs.Tenant, name string) string {
	if batch, ok := strings.CutPrefix(name, "batch/"); ok {
		return "batch/" + kernel.DerivedID("batch of a story", batch).String()
	}
	key, ok := strings.CutPrefix(name, "occasion/")
	if !ok {
		return name
	}
	d, err := tl.h.Store.Definition(tl.t.Context(), tenant, jobs.Key(key))
	if err != nil {
		return name
	}
	if list, err := tl.h.Store.Occasions(tl.t.Context(), tenant, d.UID, 1); err == nil && len(list) > 0 {
		return list[0].TimerName()
	}
	return name
}

// expand names the parts of a run.
func (tl *telling) expand(tenant jobs.Tenant, w words) kernel.Command {
	k := kernel.Expand{ID: tl.run(w.name(0)), Workers: w.names[1:]}
	if run, err := tl.h.Store.Run(tl.t.Context(), tenant, k.ID); err == nil {
		for n := 1; n < len(k.Workers); n++ {
			tl.names[kernel.PartID(run, uint32(n))] = fmt.Sprintf("%s/%d", w.name(0), n)
		}
	}
	return k
}

// fire is decided by the job's present state, unless the line has other values.
func (tl *telling) fire(tenant jobs.Tenant, w words) kernel.Command {
	ctx := tl.t.Context()
	k := kernel.Fire{Key: jobs.Key(w.name(0)), To: tl.at(w.take("to")), Term: tl.term}
	if d, err := tl.h.Store.Definition(ctx, tenant, k.Key); err == nil {
		k.Job, k.Revision, k.From = d.UID, d.Revision, d.Cursor
	}
	if g, err := tl.h.Store.Global(ctx, tenant); err == nil {
		k.Global, k.Calendars = g.Revision, g.Calendars
	}
	for _, n := range []struct {
		word string
		to   *uint64
	}{{"rev", &k.Revision}, {"global", &k.Global}, {"term", &k.Term}, {"calendars", &k.Calendars}} {
		if v := w.take(n.word); v != "" {
			*n.to = uint64(tl.number(v))
		}
	}
	if from := w.take("from"); from != "" {
		k.From = tl.at(from)
	}
	if due := w.take("due"); due != "" {
		for d := range strings.SplitSeq(due, ",") {
			k.Due = append(k.Due, tl.at(d))
		}
	}
	if late := w.take("late"); late != "" {
		k.Late = int(tl.number(late))
	}
	k.Missed = tl.ranges(w.take("missed"))
	return k
}

func (tl *telling) configure(w words) kernel.Command {
	k := kernel.Configure{Discard: w.has("discard")}
	var file kernel.File
	for word, to := range map[string]**bool{"recurringDebug": &k.RecurringDebug, "triggeredDebug": &k.TriggeredDebug,
		"file.recurringDebug": &file.RecurringDebug, "file.triggeredDebug": &file.TriggeredDebug} {
		if v := w.take(word); v != "" {
			*to = new(v == "on")
		}
	}
	for word, to := range map[string]**kernel.NewJobs{"newJobs": &k.NewJobs, "file.newJobs": &file.NewJobs} {
		if v := w.take(word); v != "" {
			*to = new(kernel.NewJobs(v))
		}
	}
	if v := w.take("maxJobs"); v != "" {
		k.MaxJobs = new(tl.number(v))
	}
	if v := w.take("misfireAfter"); v != "" {
		k.MisfireAfter = new(tl.duration(v))
	}
	if v := w.take("retryBudget"); v != "" {
		k.RetryBudget = new(tl.rate(v))
	}
	if v := w.take("apps"); v != "" {
		k.AppLimits = new([]jobs.Limit)
		for l := range strings.SplitSeq(v, ",") {
			*k.AppLimits = append(*k.AppLimits, tl.limit(l))
		}
	}
	if s := tl.settings(w, "defaults."); len(s.Given()) > 0 {
		k.Defaults = &s
	}
	if file.Defaults = tl.settings(w, "file."); !file.Empty() || slices.Contains(w.names, "file") {
		k.File = &file
	}
	k.App = w.take("app")
	if v := w.take("reset"); v != "" {
		k.Reset = strings.Split(v, ",")
	}
	return k
}

func (tl *telling) tenant(w words) kernel.Command {
	k := kernel.SetTenant{Name: jobs.Tenant(w.name(0)), Create: w.has("create"), Zone: w.take("zone")}
	if id := w.take("first"); id != "" {
		k.First = &kernel.Token{ID: id, Name: "first admin", Role: kernel.RoleAdmin, Hash: secretOf(id)}
	}
	if t, is := w.value["title"]; is {
		w.take("title")
		k.Title = &t
	}
	var l kernel.TenantLimits
	limited := false
	for name, set := range map[string]func(string){"jobs": func(v string) { l.Jobs = tl.number(v) }, "waiting": func(v string) { l.Waiting = tl.number(v) },
		"workers": func(v string) { l.Workers = tl.number(v) }, "starts": func(v string) { l.Starts = tl.rate(v) }, "bytes": func(v string) { l.Bytes = int64(tl.number(v)) }} {
		if v := w.take(name); v != "" {
			set(v)
			limited = true
		}
	}
	if limited {
		k.Limits = &l
	}
	return k
}

// limit reads name:max, name:max:10/s, name:max@args.c or name:max:10/s@args.c.
func (tl *telling) limit(text string) jobs.Limit {
	text, by, _ := strings.Cut(text, "@")
	name, rest, _ := strings.Cut(text, ":")
	most, rate, _ := strings.Cut(rest, ":")
	return jobs.Limit{Name: name, Max: tl.number(most), By: by, Rate: tl.rate(rate)}
}

func (tl *telling) rate(text string) jobs.Rate {
	r, err := kernel.ParseRate(text)
	if err != nil {
		tl.t.Fatal(err)
	}
	return r
}

// rule reads code+code:attempts:delay:factor, of which the last two may be missing.
func (tl *telling) rule(text string) jobs.RetryRule {
	part := append(strings.Split(text, ":"), "", "", "")
	r := jobs.RetryRule{Codes: strings.Split(part[0], "+"), Attempts: tl.number(part[1]), Delay: tl.duration(part[2])}
	r.Factor, _ = strconv.ParseFloat(part[3], 64)
	return r
}

// settings are the values whose names are fields of the settings, after a prefix.
func (tl *telling) settings(w words, prefix string) kernel.Settings {
	fields := map[string]any{}
	settings := reflect.TypeFor[kernel.Settings]()
	for i, f := range kernel.Fields() {
		if _, ok := w.value[prefix+f]; !ok {
			continue
		}
		v := w.take(prefix + f)
		switch settings.Field(i).Type.Elem() {
		case reflect.TypeFor[int]():
			fields[f] = tl.number(v)
		case reflect.TypeFor[time.Duration]():
			fields[f] = tl.duration(v)
		case reflect.TypeFor[time.Time]():
			fields[f] = tl.at(v)
		case reflect.TypeFor[bool]():
			fields[f] = v == "true"
		case reflect.TypeFor[[]string]():
			fields[f] = strings.Split(v, ",")
		case reflect.TypeFor[json.RawMessage]():
			fields[f] = json.RawMessage(v)
		case reflect.TypeFor[[]jobs.Limit]():
			var all []jobs.Limit
			for l := range strings.SplitSeq(v, ",") {
				all = append(all, tl.limit(l))
			}
			fields[f] = all
		case reflect.TypeFor[float64]():
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				tl.t.Fatal(err)
			}
			fields[f] = n
		case reflect.TypeFor[[]jobs.RetryRule]():
			var all []jobs.RetryRule
			for r := range strings.SplitSeq(v, ";") {
				all = append(all, tl.rule(r))
			}
			fields[f] = all
		default:
			fields[f] = v
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		tl.t.Fatal(err)
	}
	var s kernel.Settings
	if err := json.Unmarshal(b, &s); err != nil {
		tl.t.Fatal(err)
	}
	return s
}
