//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/chaos/judge"
)

// crowd is how many jobs there are of the kinds that there are many of.
const crowd = 14

// specs are the jobs. All missed due times are fired late: otherwise lost ones would look like skipped ones.
func specs(began time.Time) (recurring, bothered, triggered []judge.Spec) {
	all := func(key, schedule string, most int, takes time.Duration) judge.Spec {
		return judge.Spec{Key: key, Schedule: schedule, Misfire: "fire_all", MaxConcurrency: most, Overlap: "queue", Timeout: time.Hour, OnLost: "retry", Typical: takes}
	}
	for i := range crowd {
		recurring = append(recurring, all(fmt.Sprintf("chaos.second.%02d", i), "* * * * * *", 0, 5*time.Millisecond))
	}
	for i := range 5 {
		s := all(fmt.Sprintf("chaos.phase.%d", i), "@every 1s", 0, 5*time.Millisecond)
		s.Start = began.Truncate(time.Second).Add(time.Duration(i) * 200 * time.Millisecond)
		recurring = append(recurring, s)
	}
	for i := range 4 { // one at a time: of what finds no slot, some is skipped and some waits
		s := all(fmt.Sprintf("chaos.single.%d", i), "* * * * * *", 1, 300*time.Millisecond)
		if i%2 == 0 {
			s.Overlap, s.Typical = "skip", 900*time.Millisecond
		}
		recurring = append(recurring, s)
	}
	for i := range 2 {
		s := all(fmt.Sprintf("chaos.crane.%d", i), "*/2 * * * * *", 0, 200*time.Millisecond)
		s.Limits = []judge.Limit{{Name: "crane", Max: 2}}
		recurring = append(recurring, s)
	}
	recurring = append(recurring, all("chaos.minute", "0 * * * * *", 1, 3*time.Second), all("chaos.five", "*/5 * * * * *", 2, time.Second))
	for i := range 4 {
		bothered = append(bothered, all(fmt.Sprintf("chaos.bothered.%d", i), "* * * * * *", 0, 5*time.Millisecond))
	}
	asked := func(key string, most int, takes time.Duration) judge.Spec {
		return judge.Spec{Key: key, MaxConcurrency: most, Overlap: "queue", Timeout: time.Hour, OnLost: "retry", Typical: takes}
	}
	retried, lifted := asked("chaos.retried", 0, 20*time.Millisecond), asked("chaos.lifted", 0, 150*time.Millisecond)
	retried.Retries, lifted.Limits = 3, []judge.Limit{{Name: "crane", Max: 2}}
	// There are several quick jobs, so that they are requested more often.
	triggered = []judge.Spec{asked("chaos.plain.a", 0, 10*time.Millisecond), asked("chaos.plain.b", 0, 10*time.Millisecond), asked("chaos.plain.c", 0, 30*time.Millisecond),
		retried, asked("chaos.three", 3, 150*time.Millisecond), lifted, asked("chaos.one", 1, 100*time.Millisecond), asked("chaos.long", 0, 4*time.Second)}
	return recurring, bothered, triggered
}
