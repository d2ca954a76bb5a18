package api_test

import (
	"strings"
	"testing"
)

// A filter that cannot be read, or that a list does not have, selects nothing: the list is refused, and names it.
func TestWrongFilterIsRefused(t *testing.T) {
	d := newFixture(t)
	for _, query := range []string{
		"state=Broken", "state=terminated", "origin=heaven", "parent=17", "batch=17", "arg=customer", "arg=absent=1",
		"match=[", "job=a+b", "from=yesterday", "to=tomorrow", "limit=0", "limit=x", "cursor=x", "worker=%FF",
		"stat=Failed", "State=Failed", "since=1h",
	} {
		name, _, _ := strings.Cut(query, "=")
		a := d.send("GET", "/api/v1/runs?"+query, "")
		if a.StatusCode != 422 && a.StatusCode != 400 || !strings.Contains(string(a.body), name) {
			t.Errorf("runs?%s: %d %.300s", query, a.StatusCode, a.body)
		}
	}
	for _, path := range []string{
		"/jobs?paused=perhaps", "/jobs?kind=daily", "/jobs?match=[", "/jobs?pause=true", "/audit?targets=x",
		"/alarms?state=odd", "/runs?job=billing.charge&jobs=x",
	} {
		if a := d.send("GET", "/api/v1"+path, ""); a.StatusCode != 422 {
			t.Errorf("%s: %d %.300s", path, a.StatusCode, a.body)
		}
	}
	for _, body := range []string{
		`{"filter":{"stat":"Failed"}}`, `{"filter":{"state":"Broken"}}`, `{"filter":{"state":"failed"}}`,
		`{"filter":{"args":["customer"]}}`, `{"filter":{"match":"["}}`, `{"filter":{}}`, `{}`,
	} {
		if a := d.send("POST", "/api/v1/bulk/runs/cancel", body); a.StatusCode != 422 {
			t.Errorf("cancel %s: %d %.300s", body, a.StatusCode, a.body)
		}
	}
}
