package httpjob

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
)

// Five failures in a row and a target is paused for two minutes; then one call at a time tries it.
func TestS2_57CircuitsOpenHalfOpenAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(Breaker{})
		r := &Runner{breakers: b}
		made := 0
		ask := func(to string, a *Answer, err error) error {
			_, got := b.pass(t.Context(), to, func() (*Answer, error) { made++; return a, err })
			return got
		}
		fine, gone, dead := &Answer{Status: 200}, &Answer{Status: http.StatusBadGateway}, errors.New("connection refused")
		const to, beside, other = "http://a.example/x", "http://a.example:8080/", "http://b.example/"
		for range 4 {
			_ = ask(to, nil, dead)
		}
		_ = ask(to, fine, nil) // it answers after all: the count begins anew
		for range 4 {
			_ = ask(to, gone, nil)
		}
		for range 100 { // none of these is a fault of the target
			_ = ask(to, nil, ErrBlocked)
			_ = ask(to, nil, kernel.Invalid("no URL"))
		}
		for range 10 { // it answers, with any status
			_ = ask(other, &Answer{Status: 500}, nil)
			_ = ask(other, &Answer{Status: 404}, nil)
		}
		if open, _ := r.Circuits(); len(open) != 0 {
			t.Fatalf("left alone too early: %+v", open)
		}
		begun := time.Now()
		_ = ask(to, nil, dead)

		made = 0
		for range 50 {
			err := ask(to, fine, nil)
			var put *circuitOpen
			wait, snoozed := outcome.Snoozed(err)
			if !errors.As(err, &put) || !snoozed || put.target != "a.example:80" || !put.until.Equal(begun.Add(2*time.Minute)) ||
				wait < 2*time.Minute || wait > 3*time.Minute {
				t.Fatalf("%v, put off for %v", err, wait)
			}
		}
		if open, refused := r.Circuits(); made != 0 || refused != 50 || fmt.Sprint(open) != fmt.Sprint([]Circuit{{"a.example:80", "open", begun, begun.Add(2 * time.Minute)}}) {
			t.Errorf("%d calls made, %d refused, %+v", made, refused, open)
		}
		if ask(beside, fine, nil) != nil || ask(other, fine, nil) != nil {
			t.Error("other targets are left alone, too")
		}

		time.Sleep(2*time.Minute + time.Second)
		// The probe fails: two minutes more.
		if err := ask(to, nil, dead); !errors.Is(err, dead) {
			t.Errorf("the probe: %v", err)
		}
		if _, put := outcome.Snoozed(ask(to, fine, nil)); !put {
			t.Error("it is called again after a probe that failed")
		}
		time.Sleep(2*time.Minute + time.Second)
		// While one call tries it, others wait a little.
		_, err := b.pass(t.Context(), to, func() (*Answer, error) {
			wait, put := outcome.Snoozed(ask(to, fine, nil))
			if !put || wait > 3*time.Second {
				t.Errorf("a second probe at once, put off %v for %v", put, wait)
			}
			return fine, nil
		})
		if err != nil || ask(to, fine, nil) != nil {
			t.Errorf("it answers, and is called: %v", err)
		}
		if open, _ := r.Circuits(); len(open) != 0 {
			t.Errorf("still left alone: %+v", open)
		}
	})
}

// A handler that panics does not keep the one probe for ever.
func TestBreakerSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(Breaker{After: 1, Pause: time.Second})
		_, _ = b.pass(t.Context(), "http://a.example/", func() (*Answer, error) { return nil, errors.New("refused") })
		time.Sleep(2 * time.Second)
		func() {
			defer func() { _ = recover() }()
			_, _ = b.pass(t.Context(), "http://a.example/", func() (*Answer, error) { panic("x") })
		}()
		if _, err := b.pass(t.Context(), "http://a.example/", func() (*Answer, error) { return &Answer{Status: 200}, nil }); err != nil {
			t.Errorf("no call may try it any more: %v", err)
		}
	})
}

// The number of remembered targets is bounded.
func TestBreakerForgets(t *testing.T) {
	b := newBreakers(Breaker{})
	for i := range 2 * maxTargets {
		_, _ = b.pass(t.Context(), fmt.Sprintf("http://h%d.example/", i), func() (*Answer, error) { return &Answer{Status: 200}, nil })
	}
	if n := len(b.targets); n > maxTargets {
		t.Errorf("%d targets are remembered", n)
	}
	off := newBreakers(Breaker{Off: true})
	for range 20 {
		if _, err := off.pass(t.Context(), "http://a/", func() (*Answer, error) { return nil, errors.New("refused") }); outcome.CodeOf(err) != "" {
			t.Errorf("switched off, and %v", err)
		}
	}
}
