package api_test

import (
	"strings"
	"testing"
)

// A schedule that ends on a day has the due times of that day, in the job's zone, and a preview reads the same times as
// an edit.
func TestTimesOfASchedule(t *testing.T) {
	d := newFixture(t)
	const job = "/api/v1/jobs/billing.close-day"
	for _, c := range []struct{ setting, text, want string }{
		{"end", "2199-03-31", "2199-03-31T21:59:59Z"}, {"end", "2199-01-31", "2199-01-31T22:59:59Z"}, {"end", "2199-01-31T00:00", "2199-01-30T23:00:00Z"},
		{"start", "2199-01-31", "2199-01-30T23:00:00Z"}, {"end", "2199-01-31T12:00:00Z", "2199-01-31T12:00:00Z"},
		{"start", "2199-03-31 02:30", "2199-03-31T01:00:00Z"}, // clocks skip it
	} {
		if a := d.send("PATCH", job, `{"zone":"Europe/Berlin","`+c.setting+`":"`+c.text+`"}`); a.StatusCode != 200 || !strings.Contains(string(a.body), `"`+c.setting+`":"`+c.want+`"`) {
			t.Errorf("%s %s: %d, want %s: %s", c.setting, c.text, a.StatusCode, c.want, a.body)
		}
		d.send("PATCH", job, `{"clear":["start","end"]}`)
		text := strings.ReplaceAll(c.text, " ", "%20")
		if a := d.send("GET", job+"/next?zone=Europe/Berlin&"+c.setting+"="+text, ""); a.StatusCode != 200 {
			t.Errorf("a preview of %s %s: %d %s", c.setting, c.text, a.StatusCode, a.body)
		}
	}
	day := "2199-01-31" // due at 02:30: the last due time of a preview is on that day
	if a := d.send("GET", job+"/next?n=2&zone=Europe/Berlin&start=2199-01-31&end="+day, ""); strings.Count(string(a.body), "2199-01-31T01:30:00Z") == 0 {
		t.Errorf("%s", a.body)
	}
	if a := d.send("GET", job+"/next?end=soon", ""); a.StatusCode != 422 || !strings.Contains(string(a.body), "query.end") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
