//go:build linux

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/chaos/judge"
)

func when(d time.Duration) judge.Moment {
	return judge.Moment{Wall: int64(time.Hour + d), Mono: int64(time.Minute + d)}
}

func TestFigures(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	begins := func(run, key string, due, at time.Duration, attempt uint32, pid int) judge.Line {
		return judge.Line{What: judge.Start, Run: run, Key: key, Due: when(due).Wall, At: when(at), Attempt: attempt, PID: pid}
	}
	ends := func(run, key string, at time.Duration, pid int) judge.Line {
		return judge.Line{What: judge.End, Run: run, Key: key, At: when(at), PID: pid}
	}
	c := &judge.Case{
		History: []judge.Op{{What: judge.Define, Key: "tick", Spec: &judge.Spec{Key: "tick", Schedule: "* * * * * *"}}, {What: judge.Define, Key: "asked", Spec: &judge.Spec{Key: "asked"}}},
		Faults: []judge.Fault{
			{Kind: judge.Kill, Role: judge.Control, Note: "leader", Begin: when(10 * s), End: when(11 * s)},
			{Kind: judge.Kill, Role: judge.Control, Note: "follower", Begin: when(15 * s), End: when(16 * s)},
			{Kind: judge.Term, Role: judge.Control, Note: "leader", Begin: when(20 * s), End: when(21 * s)},
			{Kind: judge.Freeze, Role: judge.Worker, PID: 4, Begin: when(22 * s), End: when(40 * s)},
			{Kind: judge.Kill, Role: judge.Worker, PID: 2, Begin: when(50 * s), End: when(51 * s)},
		},
		Journal: []judge.Line{
			begins("1", "tick", 9*s, 10200*ms, 1, 1), ends("1", "tick", 10210*ms, 1), // due before the leader died
			begins("2", "asked", 10100*ms, 10300*ms, 1, 1), ends("2", "asked", 10310*ms, 1), // not by itself
			begins("3", "tick", 11*s, 11500*ms, 1, 1), ends("3", "tick", 11510*ms, 1),
			begins("4", "tick", 21*s, 21300*ms, 1, 1), begins("5", "tick", 21*s, 21900*ms, 1, 1), // the first one counts
			ends("4", "tick", 21310*ms, 1), ends("5", "tick", 21910*ms, 1),
			begins("6", "tick", 22*s, 22100*ms, 1, 1), ends("6", "tick", 22110*ms, 1), // beside a worker's fault: not counted
			begins("7", "asked", 49*s, 49*s, 1, 2), ends("7", "asked", 49500*ms, 2), // had returned
			begins("8", "asked", 49*s, 49*s, 1, 2),
			begins("8", "asked", 49*s, 66*s, 2, 3),
		},
	}
	fires := func(due, at time.Duration) judge.Run {
		return judge.Run{Origin: "cron", Due: time.Unix(0, when(due).Wall), Created: time.Unix(0, when(at).Wall)}
	}
	c.Stores = []judge.Store{{Runs: []judge.Run{fires(9*s, 10100*ms), fires(11*s, 11400*ms), fires(12*s, 12001*ms), fires(21*s, 21200*ms), fires(22*s, 22010*ms), fires(25*s, 26*s)}}}
	want := [][]time.Duration{{1400 * ms}, {1500 * ms}, {200 * ms}, {300 * ms}, nil, {16 * s}, nil}
	for i, f := range figures(c) {
		if !slices.Equal(f.took, want[i]) {
			t.Errorf("%s: %v, want %v", f.what, f.took, want[i])
		}
	}
	c.Faults = append(c.Faults, judge.Fault{Kind: judge.Cut, Role: judge.Control, Begin: when(60 * s), End: when(61 * s)})
	if both := figures(c)[6]; !slices.Equal(both.took, []time.Duration{16 * s}) {
		t.Errorf("%s: %v", both.what, both.took)
	}
}
