package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

func TestRules(t *testing.T) {
	cfg := Config{Groups: "groups", Name: "name", Rules: []Rule{
		{Group: "readers", Role: "viewer"}, {Group: "runners", Role: "operator"}, {Group: "readers", Tenant: "lab", Role: "admin"},
		{Claim: "email", Value: "root@example.com", Role: "admin"}, {Claim: "realm.roles", Value: "boss", Role: "admin"}, {Claim: "staff", Value: "true", Role: "viewer"},
	}}
	for _, c := range []struct{ claims, want string }{
		{`{"sub":"1","groups":["readers"]}`, "1: default viewer, lab admin"},
		{`{"sub":"1","groups":["runners","readers"]}`, "1: default operator, lab admin"},
		{`{"sub":"1","groups":"runners"}`, "1: default operator"},
		{`{"sub":"1","name":"Ann","email":"root@example.com"}`, "Ann: default admin"},
		{`{"sub":"1","email":"root@example.com","email_verified":true}`, "root@example.com: default admin"},
		{`{"sub":"1","email":"root@example.com","email_verified":false}`, "none of []"},
		{`{"sub":"1","email":"root@example.com","email_verified":"false"}`, "none of []"},
		{`{"sub":"1","realm":{"roles":["boss","x"]}}`, "1: default admin"},
		{`{"sub":"1","realm.roles":["boss"]}`, "1: default admin"},
		{`{"sub":"1","staff":true,"name":"Ann\nLee"}`, "1: default viewer"},
		{`{"sub":"1","groups":["Readers","READERS"," readers","readers2"]}`, `none of ["Readers" "READERS" " readers" "readers2"]`},
		{`{"sub":"1","groups":[1,null,{"readers":1}]}`, "none of []"},
		{`{"sub":"1","groups":{"readers":true}}`, "none of []"},
		{`{"sub":"1"}`, "none of []"},
	} {
		var all claims
		if err := json.Unmarshal([]byte(c.claims), &all); err != nil {
			t.Fatal(err)
		}
		id, err := cfg.identify(all)
		got := strings.TrimPrefix(id.Person.Actor(), "person:") + ":"
		for i, r := range id.Rights {
			got += fmt.Sprintf("%s %s %s", []string{"", ","}[min(i, 1)], r.Tenant, r.Role)
		}
		if none, ok := errors.AsType[*ops.NoRights](err); ok {
			got = fmt.Sprintf("none of %q", none.Groups)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.claims, got, c.want)
		}
		if err == nil {
			s := kernel.Session{ID: strings.Repeat("0", 64), Person: id.Person, Rights: id.Rights, Until: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
			if err := (kernel.SignIn{Session: s}).Check(); err != nil {
				t.Errorf("%s: %v", c.claims, err)
			}
		}
	}
}

func TestConfigRefused(t *testing.T) {
	rules := []Rule{{Group: "a", Role: "admin"}}
	for _, c := range []struct {
		cfg  Config
		text string
	}{
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: rules}, ""},
		{Config{Issuer: "http://127.0.0.1:9", ClientID: "c", Rules: rules}, ""},
		{Config{Issuer: "http://login.example.com", ClientID: "c", Rules: rules}, "has no TLS"},
		{Config{Issuer: "login.example.com", ClientID: "c", Rules: rules}, "invalid issuer"},
		{Config{Issuer: "https://u:p@login.example.com", ClientID: "c", Rules: rules}, "invalid issuer"},
		{Config{Issuer: "https://login.example.com?x", ClientID: "c", Rules: rules}, "invalid issuer"},
		{Config{Issuer: "https://login.example.com", Rules: rules}, "client ID"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Audience: "c", Rules: rules}, "is the client ID"},
		{Config{Issuer: "https://login.example.com", ClientID: "c"}, "needs rules"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: rules, Scopes: []string{"email"}}, "openid must be"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: []Rule{{Group: "a", Role: "worker"}}}, "rule 1: invalid role"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: []Rule{{Role: "admin"}}}, "want a group"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: []Rule{{Group: "a", Claim: "b", Value: "c", Role: "admin"}}}, "want a group"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: []Rule{{Claim: "b", Role: "admin"}}}, "want a group"},
		{Config{Issuer: "https://login.example.com", ClientID: "c", Rules: []Rule{{Group: "a", Tenant: "a b", Role: "admin"}}}, "tenant"},
	} {
		_, err := New(c.cfg)
		if (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.text)
		}
	}
}
