package kernel

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What lets people and programs in, and what clears away, is judged by itself before any row is looked at.
func TestAccessChecksItself(t *testing.T) {
	token := Token{ID: "a1b2c3d4", Name: "Ann's laptop", Role: RoleAdmin, Hash: make([]byte, 32)}
	tokens := func(change func(*Token)) Grant { k := token; change(&k); return Grant{k} }
	session := Session{ID: strings.Repeat("0a", 32), Token: token.ID, Until: noon}
	sessions := func(change func(*Session)) SignIn { s := session; change(&s); return SignIn{s} }
	for _, good := range []Command{
		Grant{token}, tokens(func(k *Token) { k.Role, k.App, k.Until = RoleWorker, "billing", noon }),
		tokens(func(k *Token) { k.Role = RoleClient }), Revoke{token.ID}, SignIn{session}, SignOut{session.ID},
		Delete{Key: "k"}, PurgeAudit{Before: noon, Refs: []Ref{{Kind: RowTally}, {Kind: RowMissed}, {Kind: RowSession}, {Kind: RowToken}, {Kind: RowDefinition}}},
		Invite{"ABCD2345", SecretID("s"), noon}, Join{"ABCD2345", SecretID("s"), jobs.ID{1}, "n2", "10.0.0.2:7946"}, Members{jobs.ID{1}, NodeRemoved, "n2", []jobs.ID{{2}}}, Members{jobs.ID{1}, NodeTransferred, "", nil},
		Configure{MaxJobs: new(0)}, Configure{MaxJobs: new(5)},
		Create{ID: jobs.ID{1}, Key: "k", Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		Create{ID: jobs.ID{1}, Key: "k", Trace: "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later"},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%s %+v: %v", good.Verb(), good, err)
		}
	}
	trace := func(s string) Create { return Create{ID: jobs.ID{1}, Key: "k", Trace: s} }
	for _, bad := range []struct {
		what string
		c    Command
		says string
	}{
		{"token of no id", tokens(func(k *Token) { k.ID = "" }), "token id"},
		{"token of a loud id", tokens(func(k *Token) { k.ID = "A1B2C3D4" }), "token id"},
		{"token of a long id", tokens(func(k *Token) { k.ID = "a1b2c3d4e" }), "token id"},
		{"token of no name", tokens(func(k *Token) { k.Name = "" }), "name"},
		{"token of a long name", tokens(func(k *Token) { k.Name = strings.Repeat("n", 101) }), "name"},
		{"token whose name clears the screen", tokens(func(k *Token) { k.Name = "a\x1b[2J" }), "name"},
		{"token of a god", tokens(func(k *Token) { k.Role = "root" }), "viewer"},
		{"admin of an app", tokens(func(k *Token) { k.App = "billing" }), "app"},
		{"worker of a bad app", tokens(func(k *Token) { k.Role, k.App = RoleWorker, "a.>" }), "app"},
		{"token that keeps its secret", tokens(func(k *Token) { k.Hash = []byte("secret") }), "hash"},
		{"token until 9999", tokens(func(k *Token) { k.Until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }), "2199"},
		{"revoke nothing", Revoke{}, "token id"},
		{"session that is a secret", sessions(func(s *Session) { s.ID = "secret" }), "session id"},
		{"session in capitals", sessions(func(s *Session) { s.ID = strings.ToUpper(s.ID) }), "session id"},
		{"session without an end", sessions(func(s *Session) { s.Until = time.Time{} }), "end"},
		{"session by nothing", sessions(func(s *Session) { s.Token = "" }), "subject"},
		{"sign out without a session", SignOut{}, "session id"},
		{"delete nothing", Delete{}, "job key"},
		{"trim runs", PurgeAudit{Refs: []Ref{{Kind: RowRun}}}, "runs are not purged"},
		{"trim the record", PurgeAudit{Refs: []Ref{{Kind: RowAudit}}}, "audits are not purged"},
		{"trim everything", PurgeAudit{Refs: make([]Ref, MaxTrim+1)}, "1001"},
		{"invitation of a short name", Invite{"ABC", SecretID("s"), noon}, "8 to 40"},
		{"invitation of a name with a slash", Invite{"ABCD/EFGH", SecretID("s"), noon}, "A-Z"},
		{"invitation without a secret", Invite{"ABCD2345", jobs.ID{}, noon}, "secret"},
		{"invitation without an end", Invite{"ABCD2345", SecretID("s"), time.Time{}}, "end"},
		{"join without a node", Join{"ABCD2345", SecretID("s"), jobs.ID{}, "n2", "a:1"}, "id"},
		{"a node without a name", Join{"ABCD2345", SecretID("s"), jobs.ID{1}, "", "a:1"}, "name of a node"},
		{"a node that clears the screen", Join{"ABCD2345", SecretID("s"), jobs.ID{1}, "\x1b[2J", "a:1"}, "name of a node"},
		{"a node of no address", Join{"ABCD2345", SecretID("s"), jobs.ID{1}, "n2", ""}, "address"},
		{"a node that is painted", Members{jobs.ID{1}, "paint", "n2", nil}, "want one of"},
		{"a node of a long name", Members{jobs.ID{1}, NodeRemoved, strings.Repeat("n", 301), nil}, "name of a node"},
		{"a removal of no id", Members{jobs.ID{}, NodeRemoved, "n2", nil}, "id"},
		{"fewer than no jobs", Configure{MaxJobs: new(-1)}, "max jobs"},
		{"trace of words", trace("see the log"), "traceparent"},
		{"trace in capitals", trace("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"), "traceparent"},
		{"trace of nothing", trace("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), "traceparent"},
		{"trace of no span", trace("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"), "traceparent"},
		{"trace with more than its version has", trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"), "traceparent"},
		{"trace of the forbidden version", trace("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), "traceparent"},
		{"long trace", trace("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-" + strings.Repeat("x", 9)), "traceparent"},
	} {
		refused(t, bad.what, bad.c.Check(), bad.says)
	}
}

// A repeated request has a trace of its own and is the same request. Digests from before Create had a trace still
// match.
func TestDigestLeavesTheTraceOut(t *testing.T) {
	c := filled[Create](3)
	other := c
	other.Trace = ""
	if c.Digest() != other.Digest() {
		t.Error("the trace is part of the digest")
	}
	other.Pin = "another"
	if c.Digest() == other.Digest() {
		t.Error("which worker is meant is no part of the digest")
	}
	c.ID, c.Trace, c.Pin, c.Index, c.Total, c.Occasion, c.Batch = jobs.ID{}, "", "", 0, 0, "", jobs.ID{}
	c.nextCreate = nextCreate{}
	bytes := AppendCommand(nil, c)
	if before := bytes[:len(bytes)-len("\x00\x00\x00\x00\x00\x00")]; DerivedID(string(before)) != c.Digest() {
		t.Error("the digest is not what it was before Create had a trace")
	}
}

func TestTokens(t *testing.T) {
	k := Token{Role: RoleAdmin}
	if !k.Live(noon) || !k.Master() {
		t.Error("a token without an end is over")
	}
	k.Until = noon
	if k.Live(noon) || !k.Live(noon.Add(-1)) || k.Master() {
		t.Error("a token lives beyond its end")
	}
	for _, change := range []func(*Token){func(k *Token) { k.ID = "x" }, func(k *Token) { k.Name = "x" }, func(k *Token) { k.Role = "x" },
		func(k *Token) { k.App = "x" }, func(k *Token) { k.Hash = []byte("x") }, func(k *Token) { k.Until = noon.Add(1) }} {
		other := k
		if change(&other); k.Same(&other) {
			t.Errorf("%+v is taken for %+v", other, k)
		}
	}
	if other := (Token{Role: RoleAdmin, Until: noon, By: "x", Created: noon, Tenant: "x"}); !k.Same(&other) {
		t.Error("who granted a token, and when, makes another of it")
	}
	if IsPerson("worker:person:") || IsPerson("person") || !IsPerson("person:ann") {
		t.Error("who is a person?")
	}
}

// A granted token is in its answer, and answers of other commands are as short as before.
func TestAnEffectCarriesItsToken(t *testing.T) {
	e := Effect{Token: &Token{ID: "a1b2c3d4", Name: "ann"}}
	back, refusal, rest, err := DecodeAnswer(AppendAnswer(nil, &e, nil))
	if err != nil || refusal != nil || len(rest) > 0 || back.Token == nil || back.Token.Name != "ann" || back.Existing {
		t.Errorf("%+v, %v, %v", back, refusal, err)
	}
	// Answers without one are what they were before there were tokens.
	plain := AppendAnswer(nil, &Effect{Existing: true}, nil)
	if !bytes.Equal(plain, []byte{0, 0, 0, 0, 0, 1}) {
		t.Errorf("an effect of nothing is % x", plain)
	}
}

func TestSettingsSayWhatChanged(t *testing.T) {
	a := Settings{Retries: new(1), Timeout: new(time.Minute), Tags: new([]string{"x"})}
	b := Settings{Retries: new(2), Tags: new([]string{"x"}), Start: new(noon)}
	if got := strings.Join(a.Changed(&b), " "); got != "start retries timeout" {
		t.Errorf("changed are %q", got)
	}
	if len(a.Changed(&a)) != 0 {
		t.Errorf("nothing has changed: %v", a.Changed(&a))
	}
	p := Policy{Timeout: time.Minute, Limits: []jobs.Limit{{Name: "printer", Max: 2}}}
	for name, want := range map[string]any{"timeout": "1m0s", "tags": nil, "start": nil, "retries": 0, "nothing": nil} {
		if got := p.Field(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if a.Value("timeout") != "1m0s" || a.Value("retries") != 1 || a.Value("name") != nil || a.Value("nothing") != nil {
		t.Errorf("it says %v, %v, %v", a.Value("timeout"), a.Value("retries"), a.Value("name"))
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		d    Definition
		want bool
	}{
		{Definition{Kind: Triggered}, false},
		{Definition{Kind: Triggered, Paused: &Held{}}, true},
		{Definition{Kind: Triggered, Paused: &Held{Until: noon.Add(1)}}, true},
		{Definition{Kind: Triggered, Paused: &Held{Until: noon}}, false},
		{Definition{Kind: Recurring, Paused: &Held{}}, true},
	} {
		if got := c.d.Holds(noon); got != c.want {
			t.Errorf("%+v holds: %v", c.d, got)
		}
	}
}
