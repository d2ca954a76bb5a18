package ui_test

import (
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/ops"
)

// A form that arrives slowly is authenticated again: its session may have ended meanwhile.
func TestSlowFormsAreAuthenticatedAgain(t *testing.T) {
	s, d, tokens := guarded(t)
	cookie := s.signIn(tokens["admin"])
	before := s.snapshot()
	form, sends := io.Pipe()
	r := httptest.NewRequest("POST", "/calendars", form)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Cookie", cookie)
	w, answered := httptest.NewRecorder(), make(chan bool)
	go func() { s.ServeHTTP(w, r); close(answered) }()
	if _, err := io.WriteString(sends, "name=late&"); err != nil {
		t.Fatal(err)
	}
	slow := time.After(600 * time.Millisecond) // it is the slowness that is tested
	if err := d.ops.SignOut(t.Context(), cookie[len("session="):]); err != nil {
		t.Fatal(err)
	}
	<-slow
	if _, err := io.WriteString(sends, "rules=SAT"); err != nil {
		t.Fatal(err)
	}
	sends.Close()
	<-answered
	if w.Code != 401 || s.snapshot() != before {
		t.Errorf("%d %s, %s became %s", w.Code, w.Header().Get("Location"), before, s.snapshot())
	}
	list, err := d.ops.Calendars(t.Context(), ops.Who{})
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
