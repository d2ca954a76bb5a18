package kernel

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

func TestCreateCheck(t *testing.T) {
	ok := Create{ID: jobs.ID{1}, Key: "billing.charge"}
	with := func(change func(*Create)) Create { c := ok; change(&c); return c }
	for _, good := range []Create{
		ok,
		with(func(c *Create) { c.Due = time.Unix(0, 0) }), // long past: now
		with(func(c *Create) { c.Delay = MaxDelay }),
		with(func(c *Create) { c.Unique, c.UniqueFor = strings.Repeat("u", 200), MaxDuration }),
		with(func(c *Create) { c.Unique = "any text: /*>$ \n 🔔" }), // never part of a subject
		with(func(c *Create) { c.Idempotency = strings.Repeat("i", 200) }),
		with(func(c *Create) { c.Origin = FromPerson }),
		with(func(c *Create) { c.Timeout, c.Retries = new(time.Duration(0)), new(0) }),
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []struct {
		what   string
		change func(*Create)
		says   []string
	}{
		{"no id", func(c *Create) { c.ID = jobs.ID{} }, []string{"ID"}},
		{"no key", func(c *Create) { c.Key = "" }, []string{"job key"}},
		{"bad key", func(c *Create) { c.Key = "../x" }, []string{"job key"}},
		{"arguments of a list", func(c *Create) { c.Args = []byte("[]") }, []string{"object"}},
		{"due in 300 years", func(c *Create) { c.Due = noon.AddDate(300, 0, 0) }, []string{"due time", "2326", "2199"}},
		{"due in year 9999", func(c *Create) { c.Due = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, []string{"due time", "2199"}},
		{"due in year 2", func(c *Create) { c.Due = time.Date(2, 1, 1, 0, 0, 0, 0, time.UTC) }, []string{"due time", "1970"}},
		{"delay -1", func(c *Create) { c.Delay = -1 }, []string{"delay", "-1ns"}},
		{"delay of 6 years", func(c *Create) { c.Delay = 6 * 366 * 24 * time.Hour }, []string{"delay", "43920h"}},
		{"unique for -1", func(c *Create) { c.Unique, c.UniqueFor = "u", -1 }, []string{"unique duration"}},
		{"unique for too long", func(c *Create) { c.Unique, c.UniqueFor = "u", MaxDuration+1 }, []string{"unique duration"}},
		{"unique for, without a key", func(c *Create) { c.UniqueFor = 1 }, []string{"without a unique key"}},
		{"long unique key", func(c *Create) { c.Unique = strings.Repeat("u", 1024) }, []string{"unique key", "1024", "200"}},
		{"long idempotency key", func(c *Create) { c.Idempotency = strings.Repeat("i", 1024) }, []string{"idempotency key", "1024", "200"}},
		{"unique key of bytes", func(c *Create) { c.Unique = "\xff\xfe" }, []string{"unique key", "UTF-8"}},
		{"unique key with a NUL", func(c *Create) { c.Unique = "a\x00b" }, []string{"unique key", "NUL"}},
		{"idempotency key of bytes", func(c *Create) { c.Idempotency = "a\xc3" }, []string{"idempotency key", "UTF-8"}},
		{"idempotency key with a NUL", func(c *Create) { c.Idempotency = "\x00" }, []string{"idempotency key", "NUL"}},
		{"origin cron", func(c *Create) { c.Origin = FromCron }, []string{"origin", "cron"}},
		{"long origin", func(c *Create) { c.Origin = Origin(strings.Repeat("o", 1<<20)) }, []string{"origin"}},
		{"retries -1", func(c *Create) { c.Retries = new(-1) }, []string{"retries", "-1"}},
		{"timeout", func(c *Create) { c.Timeout = new(MaxDuration + 1) }, []string{"timeout"}},
		{"priority", func(c *Create) { c.Priority = new(101) }, []string{"priority"}},
		{"start deadline", func(c *Create) { c.StartWithin = new(time.Duration(-1)) }, []string{"start deadline"}},
	} {
		refused(t, bad.what, with(bad.change).Check(), bad.says...)
	}
}

// One idempotency key, one body: the digest distinguishes bodies, and ignores the run's id.
func TestDigest(t *testing.T) {
	c := Create{ID: jobs.ID{1}, Key: "k", Args: []byte(`{"a":1}`), Idempotency: "i"}
	same := c
	same.ID = jobs.ID{2}
	if c.Digest() != same.Digest() {
		t.Error("the id of the run is part of the digest")
	}
	for what, change := range map[string]func(*Create){
		"key":      func(c *Create) { c.Key = "other" },
		"args":     func(c *Create) { c.Args = []byte(`{"a":2}`) },
		"due":      func(c *Create) { c.Due = noon },
		"delay":    func(c *Create) { c.Delay = 1 },
		"unique":   func(c *Create) { c.Unique = "u" },
		"priority": func(c *Create) { c.Priority = new(0) },
		"timeout":  func(c *Create) { c.Timeout = new(time.Second) },
		"parent":   func(c *Create) { c.Parent = jobs.ID{9} },
	} {
		other := c
		change(&other)
		if other.Digest() == c.Digest() {
			t.Errorf("another %s has the same digest", what)
		}
	}
}

// What workers and others send is judged by itself before any row is looked at.
func TestCommandsCheckThemselves(t *testing.T) {
	id := jobs.ID{1}
	done := Finish{ID: id, Worker: "w", Attempt: 1, Outcome: OutcomeSuccess}
	finish := func(change func(*Finish)) Finish { f := done; change(&f); return f }
	for _, good := range []Command{
		done,
		finish(func(f *Finish) { f.Result = []byte(`"` + strings.Repeat("r", MaxResult-2) + `"`) }),
		finish(func(f *Finish) { f.Outcome, f.Error = OutcomeError, strings.Repeat("e", MaxError) }),
		Start{ID: id, Worker: "w", Attempt: 1},
		Unstart{ID: id, Attempt: 1},
		Checkpoint{ID: id, Worker: "w", Attempt: 1, Data: []byte(`"` + strings.Repeat("x", MaxCheckpoint-2) + `"`)},
		Returned{ID: id, Worker: "w", Attempt: 1}, Expire{ID: id, Attempt: 1, Cause: ByLoss}, Release{ID: id}, Cancel{ID: id},
		Pause{Key: "k", Until: noon}, Resume{Key: "k"}, Refresh{Key: "k"}, Lead{Term: 1}, Forget{Name: "n"}, Hand{Gate: "g"},
		Edit{Key: "k", Clear: Fields()}, Configure{}, Configure{MisfireAfter: new(time.Second)},
		Register{App: "a", Worker: "w", Job: Declaration{Key: "k", Kind: Triggered}},
		Fire{Key: "k", From: noon, To: noon.Add(2), Due: []time.Time{noon.Add(1), noon.Add(2)}},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%s: %v", good.Verb(), err)
		}
	}
	fire := Fire{Key: "k", From: noon, To: noon.Add(9)}
	fires := func(change func(*Fire)) Fire { f := fire; change(&f); return f }
	for _, bad := range []struct {
		what string
		c    Command
		says string
	}{
		{"state for an outcome", finish(func(f *Finish) { f.Outcome = 7 }), "outcome 7"},
		{"no outcome", finish(func(f *Finish) { f.Outcome = 0 }), "outcome 0"},
		{"huge result", finish(func(f *Finish) { f.Result = make([]byte, MaxResult+1) }), "result has 65537"},
		{"result that is no JSON", finish(func(f *Finish) { f.Result = []byte("done!") }), "JSON"},
		{"huge error", finish(func(f *Finish) { f.Error = strings.Repeat("e", MaxError+1) }), "error text has"},
		{"negative delay", finish(func(f *Finish) { f.Delay = -1 }), "delay"},
		{"long delay", finish(func(f *Finish) { f.Delay = MaxDelay + 1 }), "delay"},
		{"finish without a run", Finish{Worker: "w", Attempt: 1, Outcome: OutcomeSuccess}, "run ID missing"},
		{"finish without a worker", Finish{ID: id, Attempt: 1, Outcome: OutcomeSuccess}, "worker"},
		{"start of attempt 0", Start{ID: id, Worker: "w"}, "at least 1"},
		{"start by a long name", Start{ID: id, Worker: strings.Repeat("w", 301), Attempt: 1}, "300"},
		{"start by bytes", Start{ID: id, Worker: "w-\xff", Attempt: 1}, "text"},
		{"start by a NUL", Start{ID: id, Worker: "w-\x00", Attempt: 1}, "text"},
		{"returned, attempt 0", Returned{ID: id, Worker: "w"}, "at least 1"},
		{"big checkpoint", Checkpoint{ID: id, Worker: "w", Attempt: 1, Data: make([]byte, MaxCheckpoint+1)}, "checkpoint has"},
		{"a short key", Expect{ID: id, Worker: "w", Attempt: 1, Key: make([]byte, FeedbackKey-1)}, "key must have 32 bytes"},
		{"a key without a worker", Expect{ID: id, Attempt: 1, Key: make([]byte, FeedbackKey)}, "worker"},
		{"big report", Report{ID: id, Attempt: 1, Report: make([]byte, MaxReport+1)}, "at most"},
		{"a report of nothing", Report{Attempt: 1}, "run ID missing"},
		{"expire on request", Expire{ID: id, Attempt: 1, Cause: ByPerson}, "loss"},
		{"cancel of nothing", Cancel{}, "run ID missing"},
		{"release of nothing", Release{}, "run ID missing"},
		{"pause with a novel", Pause{Key: "k", Reason: strings.Repeat("r", 1025)}, "1025"},
		{"pause until 9999", Pause{Key: "k", Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, "2199"},
		{"resume of nothing", Resume{}, "job key"},
		{"refresh of nothing", Refresh{}, "job key"},
		{"term 0", Lead{}, "at least 1"},
		{"forget nothing", Forget{}, "needs a name"},
		{"hand nothing", Hand{}, "needs a gate"},
		{"clear an unknown field", Edit{Key: "k", Clear: []string{"key"}}, "no field"},
		{"edit to nonsense", Edit{Key: "k", Set: Settings{Retries: new(-1)}}, "retries"},
		{"defaults of nonsense", Configure{Defaults: &Settings{Retries: new(-1)}}, "retries"},
		{"misfire after 0", Configure{MisfireAfter: new(time.Duration(0))}, "misfire"},
		{"register a kind of its own", Register{App: "a", Worker: "w", Job: Declaration{Key: "k", Kind: 3}}, "want recurring or triggered"},
		{"register version -1", Register{App: "a", Worker: "w", Job: Declaration{Key: "k", Kind: 1, Version: -1}}, "-1"},
		{"register a huge schema", Register{App: "a", Worker: "w", Job: Declaration{Key: "k", Kind: 1, Schema: make([]byte, 256<<10+1)}}, "schema"},
		{"register without an app", Register{Worker: "w", Job: Declaration{Key: "k", Kind: 1}}, "app"},
		{"register a bad app", Register{App: "a.>", Worker: "w", Job: Declaration{Key: "k", Kind: 1}}, "app"},
		{"a number that no float64 holds", Create{ID: id, Key: "k", Args: []byte(`{"a":[1e400]}`)}, "number 1e400"},
		{"register a bad worker", Register{App: "a", Worker: "w 1", Job: Declaration{Key: "k", Kind: 1}}, "worker"},
		{"fire of more late due times than due times", fires(func(f *Fire) { f.Late = 1 }), "late"},
		{"fire of a due time in a range", fires(func(f *Fire) {
			f.Due, f.Missed = []time.Time{noon.Add(3)}, []Missed{{From: noon.Add(2), To: noon.Add(4), Count: 2}}
		}), "range"},
		{"fire of ranges out of order", fires(func(f *Fire) {
			f.Missed = []Missed{{From: noon.Add(4), To: noon.Add(5), Count: 2}, {From: noon.Add(2), To: noon.Add(3), Count: 2}}
		}), "range"},
		{"fire to nowhere", fires(func(f *Fire) { f.To = noon }), "cursor"},
		{"fire at the old cursor", fires(func(f *Fire) { f.Due = []time.Time{noon} }), "due time"},
		{"fire beyond the new cursor", fires(func(f *Fire) { f.Due = []time.Time{noon.Add(10)} }), "due time"},
		{"fire twice", fires(func(f *Fire) { f.Due = []time.Time{noon.Add(1), noon.Add(1)} }), "due time"},
		{"empty range", fires(func(f *Fire) { f.Missed = []Missed{{From: noon.Add(1), To: noon.Add(1)}} }), "missed"},
		{"range backwards", fires(func(f *Fire) { f.Missed = []Missed{{From: noon.Add(2), To: noon.Add(1), Count: 1}} }), "missed"},
		{"range too early", fires(func(f *Fire) { f.Missed = []Missed{{From: noon, To: noon.Add(1), Count: 1}} }), "missed"},
		{"range too late", fires(func(f *Fire) { f.Missed = []Missed{{From: noon.Add(1), To: noon.Add(10), Count: 1}} }), "missed"},
	} {
		refused(t, bad.what, bad.c.Check(), bad.says)
	}
}

func TestEnvelopeCheck(t *testing.T) {
	ok := Envelope{ID: jobs.ID{1}, Tenant: "t", Actor: "person:ann", Command: Cancel{ID: jobs.ID{1}}}
	if err := ok.Check(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Envelope){
		"command": func(e *Envelope) { e.Command = nil },
		"tenant":  func(e *Envelope) { e.Tenant = "" },
		"wild":    func(e *Envelope) { e.Tenant = "*" },
		"actor":   func(e *Envelope) { e.Actor = "" },
		"reason":  func(e *Envelope) { e.Reason = strings.Repeat("r", 1025) },
		"no run":  func(e *Envelope) { e.Command = Cancel{} },
	} {
		e := ok
		change(&e)
		refused(t, what, e.Check())
	}
	long := ok
	long.Actor = strings.Repeat("a", 301)
	refused(t, "long actor", long.Check(), "300")
}

// Each verb has a number and a name of its own.
func TestVerbs(t *testing.T) {
	seen := map[Verb]bool{}
	for _, c := range commands(1) {
		v := c.Verb()
		if seen[v] || v.String() == "?" || v.String() == "" {
			t.Errorf("%T has verb %d %q", c, v, v)
		}
		if want := strings.ToLower(strings.TrimPrefix(typeName(c), "kernel.")); v.String() != want {
			t.Errorf("%s is called %q", want, v)
		}
		seen[v] = true
	}
	for v := Verb(1); int(v) < len(verbNames); v++ {
		if !seen[v] && v.String() != "?" { // a number that is kept free has no name
			t.Errorf("command %s has no value: add it to commands in internal/kernel/wire_test.go", v)
		}
	}
	if Verb(200).String() != "?" {
		t.Error("an unknown verb has a name")
	}
}
