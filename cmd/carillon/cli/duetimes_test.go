package cli_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
)

// A long ledger is read page by page, and the output names the option that lists the rest.
func TestMissedIsReadInPages(t *testing.T) {
	const ranges = 2500
	newest := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	var asked []string
	env := answering(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("limit"))
		limit, err := strconv.Atoi(q.Get("limit"))
		if err != nil || limit > 1000 {
			t.Errorf("%s: %v", r.URL, err)
		}
		before := newest.Add(time.Second)
		if text := q.Get("before"); text != "" {
			if before, err = time.Parse(time.RFC3339, text); err != nil {
				t.Error(err)
			}
		}
		var out struct {
			Items []api.Missed `json:"items"`
			Next  *time.Time   `json:"next,omitempty"`
		}
		for i := range ranges {
			from := newest.Add(-time.Duration(i) * time.Hour)
			if !from.Before(before) {
				continue
			}
			if len(out.Items) == limit {
				out.Next = &out.Items[limit-1].From
				break
			}
			out.Items = append(out.Items, api.Missed{From: from, To: from.Add(time.Minute), Count: 1, Reason: "missed"})
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	})
	list := func(want []string, args ...string) string {
		t.Helper()
		asked = nil
		out, errs, code := call{env: env}.run(append([]string{"jobs", "missed", "shop.close-day"}, args...)...)
		if code != 0 || !slices.Equal(asked, want) {
			t.Fatalf("exit code %d after requests for %q, want %q: %s", code, asked, want, errs)
		}
		return out
	}
	first := list([]string{"1000", "1000", "100"}, "-n", "2100")
	rest := regexp.MustCompile(`use a larger -n, or --before (\S+)`).FindStringSubmatch(first)
	if n := strings.Count(first, " missed"); n != 2100 || rest == nil {
		t.Fatalf("%d ranges, and no word of the rest: %s", n, first[len(first)-200:])
	}
	last := list([]string{"1000"}, "-n", "1000", "--before", rest[1])
	if n := strings.Count(last, " missed"); n != 400 || strings.Contains(last, "there are more") {
		t.Errorf("%d further ranges: %s", n, last[len(last)-200:])
	}
	if all := list([]string{"1000", "1000", "1000"}, "-n", "5000", "-o", "name"); strings.Count(all, "\n") != ranges {
		t.Errorf("%d names", strings.Count(all, "\n"))
	}
}
