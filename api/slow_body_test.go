package api_test

import (
	"io"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/ops"
)

// A request whose body arrives slowly is checked again: its token may have been revoked since, or its tenant deleted and
// another one created under the name.
func TestSlowBodiesAreCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		root := ops.Who{Actor: "person:root", Role: ops.Admin}
		o := ops.New(ops.Config{Store: g.store})
		tokens, err := o.Tokens(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		for _, revoked := range []bool{false, true} {
			body, sends := io.Pipe()
			r := httptest.NewRequest("PUT", "/api/v1/alarm-targets/late", body)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+g.tokens["admin"])
			w, answered := httptest.NewRecorder(), make(chan bool)
			go func() { g.ServeHTTP(w, r); close(answered) }()
			if _, err := io.WriteString(sends, `{"kind":"slack",`); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			for _, token := range tokens {
				if revoked && token.Name == "admin" {
					if err := o.Revoke(t.Context(), root, token.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			before := g.snapshot()
			if _, err := io.WriteString(sends, `"url":"https://hooks.example/9"}`); err != nil {
				t.Fatal(err)
			}
			sends.Close()
			<-answered
			if want := map[bool]int{false: 204, true: 401}[revoked]; w.Code != want || revoked && g.snapshot() != before {
				t.Errorf("revoked meanwhile (%v): %d, want %d: %s", revoked, w.Code, want, w.Body)
			}
		}
	})
}
