package kernel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

func TestHTTPOfAJob(t *testing.T) {
	for _, good := range []string{``, `{}`, ` { } `, `{"request":[{"url":"https://example.com/"}]}`} {
		if err := (&Settings{HTTP: new(json.RawMessage(good))}).Check(); err != nil {
			t.Errorf("%q is refused: %v", good, err)
		}
		if none := NoHTTP([]byte(good)); none != (len(good) < 6) {
			t.Errorf("%q is none: %v", good, none)
		}
	}
	for bad, says := range map[string]string{
		`[]`: "must be a JSON object", `{`: "must be a JSON object", `"x"`: "must be a JSON object",
		`{"a":"` + strings.Repeat("x", MaxHTTP) + `"}`: "at most 65536 are allowed",
	} {
		err := (&Settings{HTTP: new(json.RawMessage(bad))}).Check()
		if jobs.CodeOf(err) != jobs.BadInput || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want one that says %q", bad, err, says)
		}
	}
}
