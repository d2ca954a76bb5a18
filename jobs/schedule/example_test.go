package schedule_test

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

func ExampleParse() {
	s, err := schedule.Parse(schedule.Spec{Expr: "30 2 * * MON-FRI", Zone: "Europe/Berlin"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Words())
	after := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 2 {
		after, _ = s.Next(after)
		fmt.Println(after)
	}
	// Output:
	// at 02:30, on Monday to Friday, Europe/Berlin time
	// 2026-11-23 01:30:00 +0000 UTC
	// 2026-11-24 01:30:00 +0000 UTC
}

func ExampleParse_refused() {
	_, err := schedule.Parse(schedule.Spec{Expr: "0 0 32 * *"})
	fmt.Println(err)
	// Output: day-of-month at 4: 32 is not within 1-31
}

func ExampleSchedule_WordsIn() {
	s, _ := schedule.Parse(schedule.Spec{Expr: "0 9 1,L * *", Zone: "Asia/Shanghai"})
	fmt.Println(s.WordsIn("en"))
	fmt.Println(s.WordsIn("zh"))
	// Output:
	// at 09:00, on day 1 and the last day of the month, Asia/Shanghai time
	// 每月 1 日和最后一天，09:00（Asia/Shanghai）
}

func ExampleAgenda() {
	var agenda schedule.Agenda[string]
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	agenda.Push(noon, "lunch")
	agenda.Push(noon.Add(-3*time.Hour), "breakfast")
	for due, what, ok := agenda.Pop(); ok; due, what, ok = agenda.Pop() {
		fmt.Println(due.Format("15:04"), what)
	}
	// Output:
	// 09:00 breakfast
	// 12:00 lunch
}
