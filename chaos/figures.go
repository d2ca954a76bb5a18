//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/chaos/judge"
)

// figure has the durations of one kind of event. It is reported, not judged: machines differ, and this one runs all
// processes of a cluster.
type figure struct {
	what string
	goal string
	took []time.Duration
}

func (f figure) String() string {
	if len(f.took) == 0 {
		return fmt.Sprintf("%-48s %5d %10s %10s %10s", f.what, 0, "-", "-", f.goal)
	}
	slices.Sort(f.took)
	return fmt.Sprintf("%-48s %5d %10v %10v %10s", f.what, len(f.took), f.took[len(f.took)/2].Round(time.Millisecond), f.took[len(f.took)-1].Round(time.Millisecond), f.goal)
}

// window is how long after a fault due times are looked at.
const window = 3 * time.Second

// figures are those of chaos/README.md.
func figures(c *judge.Case) []figure {
	m := measure{Case: c, schedules: map[string]bool{}}
	for i := range c.History {
		if o := &c.History[i]; o.What == judge.Define && o.Spec != nil && o.Spec.Schedule != "" {
			m.schedules[o.Key] = true
		}
	}
	fired := figure{what: "leader killed -> a due time after that fires", goal: "1.5s, 5s"}
	begun := figure{what: "  and its handler begins"}
	transferred := figure{what: "leader stopped -> due times fire late by", goal: "500ms"}
	late := figure{what: "  and handlers begin late by"}
	away := figure{what: "leader cut off, frozen, full -> late by"}
	taken := figure{what: "worker killed -> its runs are taken up again", goal: "20s"}
	both := figure{what: "  the same, while control planes suffer as well"}
	for i := range c.Faults {
		f := &c.Faults[i]
		switch {
		case f.Role != judge.Worker && (f.Role != judge.Control || f.Note != "leader" || m.crowded(f)): // overlapping faults are in no figure
		case f.Kind == judge.Kill && f.Role == judge.Control:
			fired.add(m.nextFire(f))
			begun.add(m.nextBegin(f))
		case f.Kind == judge.Term && f.Role == judge.Control:
			transferred.add(m.latestFire(f))
			late.add(m.latestBegin(f))
		case f.Role == judge.Control && f.Kind != judge.Clock:
			away.add(m.latestFire(f))
		case f.Kind == judge.Kill && f.Role == judge.Worker:
			alone, not := m.takenUp(f)
			taken.took, both.took = append(taken.took, alone...), append(both.took, not...)
		}
	}
	return []figure{fired, begun, transferred, late, away, taken, both}
}

func (f *figure) add(d time.Duration, ok bool) {
	if ok {
		f.took = append(f.took, d)
	}
}

// measure looks at a case.
type measure struct {
	*judge.Case
	schedules map[string]bool // jobs that are due by themselves
}

// crowded reports whether another fault struck a process other than a worker during a fault, or soon after it.
func (m *measure) crowded(f *judge.Fault) bool {
	near := window
	if f.Kind == judge.Kill {
		near = time.Second // by then the nodes know the leader
	}
	for i := range m.Faults {
		g := &m.Faults[i]
		if g != f && g.Role != judge.Worker && g.Begin.Wall <= f.End.Wall+int64(near) && g.End.Wall >= f.Begin.Wall {
			return true
		}
	}
	return false
}

// fires are the runs that the schedule has made.
func (m *measure) fires() (all []*judge.Run) {
	if len(m.Stores) == 0 {
		return nil
	}
	end := &m.Stores[len(m.Stores)-1]
	for i := range end.Runs {
		if r := &end.Runs[i]; r.Origin == "cron" || r.Origin == "misfire" {
			all = append(all, r)
		}
	}
	return all
}

// nextFire is how long after a fault the first due time after it has its run.
func (m *measure) nextFire(f *judge.Fault) (took time.Duration, ok bool) {
	for _, r := range m.fires() {
		if d := time.Duration(r.Created.UnixNano() - f.Begin.Wall); r.Due.UnixNano() >= f.Begin.Wall && (!ok || d < took) {
			took, ok = d, true
		}
	}
	return took, ok
}

// latestFire is by how much the latest of the due times after a fault was fired late.
func (m *measure) latestFire(f *judge.Fault) (worst time.Duration, ok bool) {
	for _, r := range m.fires() {
		if due := r.Due.UnixNano(); due >= f.Begin.Wall && due <= f.End.Wall+int64(window) {
			worst, ok = max(worst, r.Created.Sub(r.Due)), true
		}
	}
	return worst, ok
}

// nextBegin is how long after a fault the first handler begins of a due time after it.
func (m *measure) nextBegin(f *judge.Fault) (time.Duration, bool) {
	for i := range m.Journal {
		l := &m.Journal[i]
		if l.What == judge.Start && l.At.Mono > f.Begin.Mono && l.Due >= f.Begin.Wall && m.schedules[l.Key] {
			return time.Duration(l.At.Mono - f.Begin.Mono), true
		}
	}
	return 0, false
}

// latestBegin returns the largest delay of a first attempt after a fault. Of due times at the same time the first
// counts: runs that wait for a slot or a faulty worker do not measure control planes.
func (m *measure) latestBegin(f *judge.Fault) (worst time.Duration, ok bool) {
	firsts := map[int64]int64{} // by due time, when the first of it began
	for i := range m.Journal {
		l := &m.Journal[i]
		if l.What != judge.Start || !m.schedules[l.Key] || l.Due < f.Begin.Wall || l.Due > f.End.Wall+int64(window) {
			continue
		}
		if was, seen := firsts[l.Due]; !seen || l.At.Wall < was {
			firsts[l.Due] = l.At.Wall
		}
	}
	for due, began := range firsts {
		if !m.struck(due, began, judge.Worker) {
			worst, ok = max(worst, time.Duration(began-due)), true
		}
	}
	return worst, ok
}

// struck reports whether a process with a role had a fault within a time.
func (m *measure) struck(from, to int64, role string) bool {
	for i := range m.Faults {
		if f := &m.Faults[i]; f.Role == role && f.Begin.Wall <= to && f.End.Wall >= from {
			return true
		}
	}
	return false
}

// takenUp returns how long after a worker's death its runs started again, without and with other faults.
func (m *measure) takenUp(f *judge.Fault) (alone, not []time.Duration) {
	open := map[string]uint32{} // its runs, and their attempts
	for i := range m.Journal {
		l := &m.Journal[i]
		switch attempt, had := open[l.Run]; {
		case l.PID == f.PID && l.What == judge.Start:
			open[l.Run] = l.Attempt
		case l.PID == f.PID:
			delete(open, l.Run)
		case had && l.What == judge.Start && l.Attempt > attempt && l.At.Mono > f.Begin.Mono:
			delete(open, l.Run)
			took := time.Duration(l.At.Mono - f.Begin.Mono)
			if m.struck(f.Begin.Wall, l.At.Wall, judge.Control) || m.struck(f.Begin.Wall, l.At.Wall, judge.Bus) || m.struck(f.Begin.Wall, l.At.Wall, judge.Rows) {
				not = append(not, took)
			} else {
				alone = append(alone, took)
			}
		}
	}
	return alone, not
}
