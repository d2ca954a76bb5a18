package dblog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The database's clock is known as well as the quickest statement of the last seconds tells, however long the others
// waited, before they began or for their answers; a clock that was set is followed.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		off := time.Hour
		statement := func(begins, answers time.Duration) {
			sent := time.Now()
			time.Sleep(begins)
			theirs := time.Now().Add(off)
			time.Sleep(answers)
			c.learn(theirs.Round(0), sent)
		}
		is := func(what string, least, most time.Duration) {
			t.Helper()
			if d := c.Now().Sub(time.Now().Add(off)); d < least || d > most {
				t.Errorf("%s: it is taken to be %v later than it is", what, d)
			}
		}
		if d := time.Until(c.Now()); d != 0 {
			t.Errorf("at first it differs by %v from this node's", d)
		}
		statement(time.Millisecond, 20*time.Millisecond)
		is("once", time.Millisecond, time.Millisecond)
		statement(time.Second, time.Second)
		is("after a slow one", time.Millisecond, time.Millisecond)
		off -= time.Minute
		statement(time.Millisecond, 0)
		is("set back", 0, time.Millisecond)
		off += 2 * time.Minute
		for range 120 {
			statement(time.Millisecond, 100*time.Millisecond)
		}
		is("set forward", time.Millisecond, time.Millisecond)
		time.Sleep(time.Minute)
		is("a minute later", time.Millisecond, time.Millisecond)
		statement(2*time.Millisecond, 0)
		is("and learned again", 2*time.Millisecond, 2*time.Millisecond)
	})
}
