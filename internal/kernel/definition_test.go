package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// refused checks that err refuses bad input in a sentence of bearable length that holds all of says.
func refused(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	if !errors.Is(err, jobs.BadInput) {
		t.Errorf("%s: got %v, want a refusal", what, err)
		return
	}
	if len(err.Error()) > 1000 {
		t.Errorf("%s: the refusal has %d bytes", what, len(err.Error()))
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

func TestSettingsAtTheirLimits(t *testing.T) {
	texts := func(n int) *[]string { v := slices.Repeat([]string{"x"}, n); return &v }
	limits := func(l ...jobs.Limit) *[]jobs.Limit { return &l }
	at := func(y int) *time.Time { return new(time.Date(y, 6, 1, 0, 0, 0, 0, time.UTC)) }
	for _, good := range []Settings{
		{},
		{Name: new(""), Description: new(strings.Repeat("\u0301", 2<<10)), Tags: texts(32)},
		{MaxConcurrency: new(0)}, {MaxConcurrency: new(1_000_000)},
		{Retries: new(0)}, {Retries: new(1000)},
		{Timeout: new(time.Duration(0))}, {Timeout: new(366 * 24 * time.Hour)},
		{RetryDelay: new(time.Hour), RetryDelayMax: new(time.Minute)},
		{Priority: new(-100)}, {Priority: new(100)},
		{Limits: limits(slices.Repeat([]jobs.Limit{{Name: "l", Max: 1}}, 8)...)},
		{Start: at(1970), End: at(2199)}, {Start: at(2030), End: at(2030)}, {End: at(1999)}, {Start: &time.Time{}},
		{Overlap: new(jobs.OverlapSkip), OnLost: new(jobs.LostFail), LeaseLost: new(jobs.LeaseCancel), Misfire: new(jobs.MisfireAll)},
		{Gap: new(jobs.GapSkip), Twice: new(jobs.TwiceBoth)},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%v: %v", good.Given(), err)
		}
	}
	for _, bad := range []struct {
		what string
		s    Settings
		says []string
	}{
		{"long name", Settings{Name: new(strings.Repeat("n", 201))}, []string{"name", "201", "200"}},
		{"64 KiB of combining marks", Settings{Description: new(strings.Repeat("\u0301", 32<<10))}, []string{"description", "65536", "4096"}},
		{"33 tags", Settings{Tags: texts(33)}, []string{"tags", "33", "32"}},
		{"empty tag", Settings{Tags: new([]string{""})}, []string{"tag", "1 to 100"}},
		{"long tag", Settings{Tags: new([]string{strings.Repeat("t", 1<<20)})}, []string{"tag", "1 to 100"}},
		{"long schedule", Settings{Schedule: new(strings.Repeat("*", 1025))}, []string{"schedule", "1025", "1024"}},
		{"long zone", Settings{Zone: new(strings.Repeat("Z", 101))}, []string{"zone", "101", "100"}},
		{"concurrency -1", Settings{MaxConcurrency: new(-1)}, []string{"max concurrency", "-1", "0", "1000000"}},
		{"concurrency 2^31", Settings{MaxConcurrency: new(1 << 31)}, []string{"max concurrency", "2147483648", "1000000"}},
		{"retries -1", Settings{Retries: new(-1)}, []string{"retries", "-1", "0", "1000"}},
		{"retries 10^6", Settings{Retries: new(1_000_000)}, []string{"retries", "1000000", "1000"}},
		{"timeout -1 s", Settings{Timeout: new(-time.Second)}, []string{"timeout", "-1s", "0s", "8784h"}},
		{"timeout of 292 years", Settings{Timeout: new(time.Duration(1<<63 - 1))}, []string{"timeout", "8784h"}},
		{"retry delay", Settings{RetryDelay: new(-time.Nanosecond)}, []string{"retry delay", "-1ns"}},
		{"longest retry delay", Settings{RetryDelayMax: new(MaxDuration + 1)}, []string{"longest retry delay"}},
		{"start deadline", Settings{StartWithin: new(-time.Second)}, []string{"start deadline"}},
		{"priority", Settings{Priority: new(101)}, []string{"priority", "101", "-100", "100"}},
		{"priority", Settings{Priority: new(-101)}, []string{"priority", "-101"}},
		{"nine limits", Settings{Limits: limits(slices.Repeat([]jobs.Limit{{Name: "l", Max: 1}}, 9)...)}, []string{"limits", "9", "8"}},
		{"limit of 0", Settings{Limits: limits(jobs.Limit{Name: "l", Max: 0})}, []string{"limit l", "0", "want 1"}},
		{"limit with a bad name", Settings{Limits: limits(jobs.Limit{Name: "a b", Max: 1})}, []string{"limit name"}},
		{"overlap", Settings{Overlap: new(jobs.Overlap("maybe"))}, []string{"overlap", "maybe", "skip", "queue"}},
		{"overlap, empty", Settings{Overlap: new(jobs.Overlap(""))}, []string{"overlap"}},
		{"on lost", Settings{OnLost: new(jobs.OnLost(strings.Repeat("x", 1<<20)))}, []string{"onLost", "retry", "fail"}},
		{"lease lost", Settings{LeaseLost: new(jobs.LeaseLost("x"))}, []string{"leaseLost", "continue", "cancel"}},
		{"gap", Settings{Gap: new(jobs.Gap("x"))}, []string{"gap", "after", "before", "skip"}},
		{"twice", Settings{Twice: new(jobs.Twice(""))}, []string{"twice", "first", "second", "both"}},
		{"misfire", Settings{Misfire: new(jobs.Misfire("x"))}, []string{"misfire", "fire_once", "fire_all", "skip"}},
		{"start in year 1", Settings{Start: new(time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC))}, []string{"start", "1970", "2199"}},
		{"end in year 9999", Settings{End: at(9999)}, []string{"end", "9999", "2199"}},
		{"start after end", Settings{Start: at(2031), End: at(2030)}, []string{"start", "2031", "after end", "2030"}},
		{"arguments", Settings{Args: new(json.RawMessage("[]"))}, []string{"object"}},
	} {
		refused(t, bad.what, bad.s.Check(), bad.says...)
	}
}

// Check refuses an extreme value of each setting.
func TestEverySettingHasBounds(t *testing.T) {
	const file = "internal/kernel/settings_check.go"
	extreme := func(v reflect.Value) {
		switch v.Interface().(type) {
		case time.Time:
			v.Set(reflect.ValueOf(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
			return
		case json.RawMessage:
			v.SetBytes([]byte(`[]`))
			return
		case jobs.Rate:
			v.Set(reflect.ValueOf(jobs.Rate{Max: -1, Per: -1}))
			return
		}
		switch v.Kind() {
		case reflect.Int, reflect.Int64:
			v.SetInt(1 << 62)
		case reflect.Float64:
			v.SetFloat(math.Inf(1))
		case reflect.String:
			v.SetString(strings.Repeat("x", 1<<20))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1<<20, 1<<20))
		}
	}
	for i, name := range Fields() {
		if slices.Contains([]string{"disabled"}, name) {
			continue
		}
		var s Settings
		f := reflect.ValueOf(&s).Elem().Field(i)
		f.Set(reflect.New(f.Type().Elem()))
		extreme(f.Elem())
		if s.Check() == nil {
			t.Errorf("setting %s has no bounds: add them to %s", name, file)
		}
		if f.Elem().Kind() == reflect.Int || f.Elem().Kind() == reflect.Int64 {
			if f.Elem().SetInt(-1 << 62); s.Check() == nil {
				t.Errorf("setting %s has no lower bound: add it to %s", name, file)
			}
		}
		// A type of its own is a list of values.
		if t0 := f.Type().Elem(); t0.Kind() == reflect.String && t0.Name() != "string" && Choices(name) == nil {
			t.Errorf("setting %s has no values: add them to choices in %s", name, file)
		}
	}
}

// A change of a setting of the schedule changes the due times, and an earlier schedule restores it.
func TestScheduleFields(t *testing.T) {
	const file = "internal/kernel/definition.go"
	for i, name := range Fields() {
		var was, is Definition
		filler{1}.fill(is.Policy.At(name), name)
		shapes := slices.Contains(ScheduleFields(), name)
		if is.Policy.SameTimes(&was.Policy) == shapes {
			t.Errorf("setting %s: SameTimes and Earlier in %s must both have it, or none of them", name, file)
		}
		if field := settingsType.Field(i).Name; shapes && !reflect.DeepEqual(was.With(is.Earlier(noon)).Policy.Field(name), is.Policy.Field(name)) {
			t.Errorf("Earlier() and With() in %s do not carry field %s", file, field)
		}
	}
}

func TestArguments(t *testing.T) {
	pad := func(n int) string { return `{"x":"` + strings.Repeat("x", n-8) + `"}` }
	nest := func(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }
	for _, good := range []string{
		"", "{}", " \t\r\n{} ", `{"customer":"c7"}`, pad(MaxArgs), nest(64),
		`{"__proto__":{"admin":true},"constructor":{"prototype":1},"$ref":"#/x"}`,
		`{"brackets in a text":"` + strings.Repeat("[", 1000) + `"}`,
		`{"escaped \" quote":"` + strings.Repeat(`\"[`, 100) + `"}`,
	} {
		if err := CheckArgs([]byte(good)); err != nil {
			t.Errorf("%.40s: %v", good, err)
		}
	}
	for _, bad := range []struct{ args, says string }{
		{pad(MaxArgs + 1), "262145"},
		{nest(65), "65 levels deep"},
		{nest(5000), "5000 levels deep"},
		{strings.Repeat("[", 100_000), "100000 levels deep"},
		{strings.Repeat(`{"a":`, 50_000), "50000 levels deep"},
		{"null", "object"}, {"[]", "object"}, {`"text"`, "object"}, {"7", "object"}, {" [1] ", "object"},
		{"{", "valid JSON"}, {"}", "valid JSON"}, {`{"a":1,}`, "valid JSON"}, {`{"a":1}{"b":2}`, "valid JSON"},
		{`{'a':1}`, "valid JSON"}, {"{\"a\":\"\x00\"}", "valid JSON"}, {`{"a":"\`, "valid JSON"}, {`{"a`, "valid JSON"},
		{"   ", "valid JSON"}, {`{"a":NaN}`, "valid JSON"},
	} {
		refused(t, bad.args[:min(40, len(bad.args))], CheckArgs([]byte(bad.args)), bad.says)
	}
}

// Deep nesting costs neither stack nor memory: it is counted before anything parses it.
func TestDeepArgumentsCostNothing(t *testing.T) {
	deep := []byte(strings.Repeat(`{"a":`, MaxArgs/5))
	if n := testing.AllocsPerRun(10, func() { _ = CheckArgs(deep) }); n > 10 {
		t.Errorf("refusing deep arguments takes %v allocations", n)
	}
}

// What looks dangerous to other languages is plain data here, kept to the byte.
func TestArgumentsAreKeptAsTheyAre(t *testing.T) {
	raw := []byte(`{"__proto__":{"x":1},"constructor":null,"$ref":"file:///etc/passwd","b":1,"a":2,"B":3}`)
	c := Create{ID: jobs.ID{1}, Key: "k", Args: raw}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	back, err := DecodeEnvelopes(AppendEnvelopes(nil, []Envelope{{Tenant: "t", Actor: "a", Command: c}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := back[0].Command.(Create).Args; string(got) != string(raw) {
		t.Errorf("%s came back as %s", raw, got)
	}
}

// Settings and Policy name the same things, which settings.go relies on.
func TestSettingsAndPolicyHaveTheSameFields(t *testing.T) {
	policy := reflect.TypeFor[Policy]()
	for f := range settingsType.Fields() {
		if f.Type.Kind() != reflect.Pointer {
			t.Errorf("Settings.%s is no pointer: it cannot say nothing", f.Name)
			continue
		}
		if p, ok := policy.FieldByName(f.Name); !ok || p.Type != f.Type.Elem() {
			t.Errorf("Settings.%s is a %s, Policy has %v", f.Name, f.Type, p.Type)
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if want := strings.ToLower(f.Name[:1]) + f.Name[1:]; name != "ttl" && name != "http" && name != want || rest != "omitempty" {
			t.Errorf("Settings.%s is %q in JSON, want %q", f.Name, f.Tag.Get("json"), want+",omitempty")
		}
	}
	if policy.NumField() != settingsType.NumField() {
		t.Errorf("Policy has %d fields, Settings %d", policy.NumField(), settingsType.NumField())
	}
}

// Each owner overrides those before it, field by field: built in, configuration file, tenant, app, code, edits.
func TestResolveOrder(t *testing.T) {
	for i, name := range Fields() {
		layers := make([]Settings, 5) // file, tenant, app, code, edits
		values := make([]any, 5)
		for n := range layers {
			f := reflect.ValueOf(&layers[n]).Elem().Field(i)
			filler{seed: uint64(n + 1)}.fill(f, name)
			values[n] = f.Elem().Interface()
		}
		for _, kind := range []Kind{Recurring, Triggered} {
			for top := range 6 { // how many of the owners set it
				set := make([]Settings, 5)
				copy(set, layers[:top])
				d := &Definition{Key: "k", Kind: kind, App: "a", Code: set[3], Edits: set[4]}
				g := &Global{File: File{Defaults: set[0]}, Defaults: set[1], Apps: []AppDefaults{{App: "other", Set: layers[4]}, {App: "a", Set: set[2]}}}
				want := reflect.ValueOf(builtin(kind)).FieldByName(settingsType.Field(i).Name).Interface()
				if name == "name" {
					want = "k"
				}
				if top > 0 {
					want = values[top-1]
				}
				got := reflect.ValueOf(d.Resolve(g)).FieldByName(settingsType.Field(i).Name).Interface()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s of a %s job with %d owners: %v, want %v", name, kind, top, got, want)
				}
			}
		}
	}
}

// An empty zone of the code or of an edit is the default zone.
func TestDefaultZone(t *testing.T) {
	g := &Global{File: File{Defaults: Settings{Zone: new("Europe/Berlin")}}}
	for _, c := range []struct {
		code, edit *string
		want       string
	}{{nil, nil, "Europe/Berlin"}, {new(""), nil, "Europe/Berlin"}, {new("Asia/Tokyo"), nil, "Asia/Tokyo"}, {new("Asia/Tokyo"), new(""), "Europe/Berlin"}, {nil, new("UTC"), "UTC"}} {
		d := &Definition{Kind: Recurring, Code: Settings{Zone: c.code}, Edits: Settings{Zone: c.edit}}
		if got := d.Resolve(g).Zone; got != c.want {
			t.Errorf("code %v, edit %v: zone %q, want %q", c.code, c.edit, got, c.want)
		}
	}
}

// Each setting with a default has a text that reads back.
func TestDefaultsHaveTexts(t *testing.T) {
	for name, text := range map[string]string{"zone": "UTC", "gap": "skip", "twice": "both", "misfire": "fire_all", "maxConcurrency": "3", "overlap": "queue",
		"priority": "-1", "timeout": "1m30s", "startWithin": "1m0s", "retries": "3", "retryDelay": "5s", "retryDelayMax": "1m0s", "retryFactor": "1.5",
		"retryJitter": "full", "retryRules": "502:3:10s:2:1m0s", "retryBudget": "5/s", "pauseAfter": "4", "onLost": "fail", "leaseLost": "cancel",
		"codeVersion": "current", "keepFor": "24h0m0s", "keepSucceeded": "7", "keepOthers": "8"} {
		var s Settings
		if err := s.Read(name, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := (Configure{Defaults: &s}).Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := fmt.Sprint(s.Value(name)); got != text && name != "retryRules" {
			t.Errorf("%s: %q became %q", name, text, got)
		}
		if !slices.Contains(DefaultFields(), name) {
			t.Errorf("%s has no default", name)
		}
	}
	if n := len(DefaultFields()); n != 23 {
		t.Errorf("%d settings have a default: add the new ones above", n)
	}
	for name, text := range map[string]string{"retries": "many", "timeout": "long", "retryFactor": "big", "retryBudget": "often", "retryRules": "?:x", "no": ""} {
		if err := new(Settings).Read(name, text); err == nil {
			t.Errorf("%s reads %q", name, text)
		}
	}
}

func TestBuiltinDefaults(t *testing.T) {
	if p := builtin(Recurring); p.MaxConcurrency != 1 || p.Overlap != jobs.OverlapSkip || p.Timeout != time.Hour || p.Retries != 0 {
		t.Errorf("recurring: %+v", p)
	}
	if p := builtin(Triggered); p.MaxConcurrency != 0 || p.Overlap != jobs.OverlapQueue || p.Timeout != time.Hour || p.Retries != 0 {
		t.Errorf("triggered: %+v", p)
	}
}

func TestOverAndWithout(t *testing.T) {
	code := Settings{Retries: new(1), Priority: new(1), Name: new("code")}
	edit := Settings{Retries: new(2), Timeout: new(time.Second)}
	both := edit.Over(code)
	if *both.Retries != 2 || *both.Priority != 1 || *both.Timeout != time.Second || *both.Name != "code" {
		t.Errorf("laid over: %v", both.Given())
	}
	if *code.Retries != 1 || code.Timeout != nil {
		t.Error("laying over changed what was below")
	}
	less := both.Without([]string{"retries", "name", "no such field"})
	if got := less.Given(); !slices.Equal(got, []string{"timeout", "priority"}) {
		t.Errorf("without retries and name: %v", got)
	}
	if both.Retries == nil {
		t.Error("Without changed its receiver")
	}
	if !both.Equal(&both) || both.Equal(&less) || !(&Settings{}).Equal(&Settings{}) {
		t.Error("Equal is wrong")
	}
	Fields()[0] = "changed"
	if Fields()[0] != "name" {
		t.Error("the names can be changed from outside")
	}
}

// A due time is silent for one reason at a time: disabled, then paused, then debug.
func TestSilent(t *testing.T) {
	disabled, debug := Policy{Disabled: true}, &Global{RecurringDebug: Debug{On: true}}
	for _, c := range []struct {
		d    Definition
		g    *Global
		want Reason
	}{
		{Definition{}, &Global{}, ""},
		{Definition{Policy: disabled, Paused: &Held{}}, debug, MissedDisabled},
		{Definition{Paused: &Held{}}, debug, MissedPaused},
		{Definition{Paused: &Held{Until: noon.Add(1)}}, debug, MissedPaused},
		{Definition{Paused: &Held{Until: noon}}, debug, MissedDebug},
		{Definition{Paused: &Held{Until: noon}}, &Global{}, ""},
		{Definition{}, &Global{TriggeredDebug: Debug{On: true}}, ""},
		// What was due before the pause or the debug mode began still fires.
		{Definition{Paused: &Held{At: noon}}, &Global{}, ""},
		{Definition{}, &Global{RecurringDebug: Debug{On: true, At: noon}}, ""},
	} {
		if got := c.d.Silent(c.g, noon); got != c.want {
			t.Errorf("%+v: %q, want %q", c.d.Paused, got, c.want)
		}
	}
}
