package api

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &rates{rate: 10, burst: 100}
		for i := range 100 {
			if wait := l.take("a"); wait != 0 {
				t.Fatalf("%d: %v", i, wait)
			}
		}
		if a, b := l.take("a"), l.take("b"); a != 100*time.Millisecond || b != 0 {
			t.Errorf("the hundred and first waits %v, another %v", a, b)
		}
		if again := l.take("a"); again != 100*time.Millisecond {
			t.Errorf("who was refused pays for it: %v", again)
		}
		time.Sleep(time.Second)
		for range 10 {
			if l.take("a") != 0 {
				t.Fatal("ten a second are too many")
			}
		}
		if l.take("a") == 0 {
			t.Error("eleven a second are let through")
		}
		// However many names there are, few are remembered: those that are quiet go first.
		for range 100 {
			l.take("busy")
		}
		for i := range 3 * maxRates {
			l.take(fmt.Sprint(i))
			if i%(maxRates/2) == 0 {
				time.Sleep(1100 * time.Millisecond)
				for range 11 {
					l.take("busy")
				}
			}
		}
		if _, known := l.of["busy"]; !known || len(l.of) > maxRates {
			t.Errorf("%d names are remembered, the busy one: %v", len(l.of), known)
		}
	})
}
