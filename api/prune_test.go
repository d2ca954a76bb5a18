package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
)

// A request names its bundle and what that prunes; jobs and calendars show their bundle.
func TestPrune(t *testing.T) {
	type applied struct {
		Items     []api.Planned
		Calendars []api.PlannedCalendar
	}
	d := newFixture(t)
	const declared = `"bundle":"old","jobs":[{"key":"old.one","kind":"triggered","app":"old"},{"key":"old.two","kind":"recurring","app":"old","calendars":["closed"]}]`
	for range 2 {
		d.send("POST", "/api/v1/apply", `{"calendars":[{"name":"closed","rules":["SAT"]}],`+declared+`}`)
	}
	if list := read[struct{ Items []api.Job }](t, d.send("GET", "/api/v1/jobs?bundle=old&limit=1", "")); len(list.Items) != 1 || list.Items[0].Bundle != "old" {
		t.Errorf("jobs of the bundle: %+v", list)
	}
	if list := read[struct{ Items []api.Job }](t, d.send("GET", "/api/v1/jobs?bundle=new", "")); len(list.Items) != 0 {
		t.Errorf("jobs of another bundle: %+v", list)
	}
	if c := read[api.Calendar](t, d.send("GET", "/api/v1/calendars/closed", "")); c.Bundle != "old" {
		t.Errorf("calendar: %+v", c)
	}
	d.send("POST", "/api/v1/jobs/old.one/trigger", "")
	const prune = `{"bundle":"old","jobs":[],"prune":{"jobs":["old.one"],"calendars":["closed"]`
	for _, c := range []struct{ body, want string }{
		{prune + `},"dryRun":true}`, "delete 1, keep [old.two]"},
		{prune + `,"runs":"finish"}}`, "delete 1, keep [old.two]"},
		{prune + `}}`, "nothing 0, keep [old.two]"},
	} {
		got := read[applied](t, d.send("POST", "/api/v1/apply", c.body))
		if len(got.Items) != 1 || len(got.Calendars) != 1 || got.Items[0].Does+" "+strings.Repeat("1", got.Items[0].Runs)+strings.Repeat("0", 1-got.Items[0].Runs)+", "+got.Calendars[0].Does+" ["+string(got.Calendars[0].Jobs[0])+"]" != c.want {
			t.Errorf("%s: %+v, want %s", c.body, got, c.want)
		}
	}
	for body, want := range map[string]int{
		`{"jobs":[],"prune":{"jobs":["old.two"]}}`:                           http.StatusUnprocessableEntity,
		`{"jobs":[],"bundle":"old","prune":{"runs":"maybe"}}`:                http.StatusUnprocessableEntity,
		`{"jobs":[{"key":"old.two","retries":1}],"bundle":"new"}`:            http.StatusConflict,
		`{"jobs":[],"bundle":"old","prune":{"jobs":["old.two"],"all":true}}`: http.StatusUnprocessableEntity,
	} {
		if answer := d.send("POST", "/api/v1/apply", body); answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", body, answer.Status, want)
		}
	}
	d.send("POST", "/api/v1/apply", `{"bundle":"new","takeOver":true,"jobs":[{"key":"old.two"}]}`)
	if j := read[api.Job](t, d.send("GET", "/api/v1/jobs/old.two", "")); j.Bundle != "new" {
		t.Errorf("taken over: %+v", j)
	}
}
