package httpjob

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/httpspec"
)

// Whoever is asked may say what it was asked with, as it writes texts. What is kept of an answer has no secret in it.
func TestAnswersAreMaskedHoweverTheyAreWritten(t *testing.T) {
	for _, c := range []struct{ secret, answer, want string }{
		{"ab/cd==", `{"key":"ab/cd=="}`, `{"key":"***"}`},
		{"ab/cd==", `{"key":"ab\/cd=="}`, `{"key":"***"}`},
		{"ab/cd==", `{"key":"\u0061b/cd==","n":12345678901234567890}`, `{"key":"***","n":12345678901234567890}`},
		{"a<b&c", `["a\u003cb\u0026c"]`, `["***"]`},
		{`say "x"`, `{"say \"x\"":1}`, `{"***":1}`},
		{`say "x"`, `"say \"x\""`, `"***"`},
		{"ab/cd==", `Bearer ab/cd== and ab%2Fcd%3D%3D`, `Bearer *** and ***`},
		{"ab/cd==", `{"key":"other"} `, `{"key":"other"} `},
		{"ab/cd==", ``, ``},
	} {
		if got := string(masked(&httpspec.Filled{Secrets: []string{c.secret}}, []byte(c.answer))); got != c.want || strings.Contains(got, c.secret) {
			t.Errorf("%s became %s, want %s", c.answer, got, c.want)
		}
	}
}
