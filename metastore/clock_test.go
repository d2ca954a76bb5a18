package metastore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

func TestClockFollowsLastingSteps(t *testing.T) {
	const year = 365 * 24 * time.Hour
	type set struct {
		at, to time.Duration // after so long, the wall clock is so much ahead of the truth
	}
	for _, c := range []struct {
		name  string
		sets  []set
		after time.Duration
		want  time.Duration // by how much the clock is ahead of the truth then
		step  time.Duration
	}{
		{"unchanged", nil, time.Hour, 0, 0},
		{"a time server corrects it", []set{{time.Second, 400 * time.Millisecond}}, time.Second, 400 * time.Millisecond, 0},
		{"a time server corrects it backwards", []set{{time.Second, -400 * time.Millisecond}}, time.Second, -400 * time.Millisecond, 0},
		{"a year ahead", []set{{time.Minute, year}}, time.Minute + 10*time.Second, 0, year},
		{"a year ahead for ten seconds", []set{{time.Minute, year}, {70 * time.Second, 0}}, 71 * time.Second, 0, 0},
		{"a year behind for ten seconds", []set{{time.Minute, -year}, {70 * time.Second, 0}}, 71 * time.Second, 0, 0},
		{"back, nearly", []set{{time.Minute, year}, {70 * time.Second, 300 * time.Millisecond}}, 71 * time.Second, 300 * time.Millisecond, 0},
		{"ahead for good", []set{{time.Minute, time.Hour}}, 76 * time.Second, time.Hour, 0},
		{"behind for good", []set{{time.Minute, -time.Hour}}, 76 * time.Second, -time.Hour, 0},
		{"set again", []set{{time.Minute, time.Hour}, {70 * time.Second, 2 * time.Hour}}, 80 * time.Second, 0, 2 * time.Hour},
		{"set to and fro", []set{{time.Minute, time.Hour}, {70 * time.Second, 0}, {72 * time.Second, time.Hour}}, 80 * time.Second, 0, time.Hour},
		{"three hundred years", []set{{time.Minute, 1<<63 - 1}}, 61 * time.Second, 0, 1<<63 - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ahead time.Duration
				clock := metastore.Clock{Wall: func() time.Time { return time.Now().Add(ahead) }}
				begin := time.Now()
				for sets := c.sets; time.Since(begin) < c.after; {
					clock.Now()
					time.Sleep(250 * time.Millisecond)
					if len(sets) > 0 && time.Since(begin) >= sets[0].at {
						ahead, sets = sets[0].to, sets[1:]
					}
				}
				now, step := clock.Now(), clock.Step()
				if got := now.Sub(time.Now().Round(0)); got != c.want || step != c.step {
					t.Errorf("the clock is %v ahead, want %v; the step that is not believed is %v, want %v", got, c.want, step, c.step)
				}
			})
		})
	}
}
