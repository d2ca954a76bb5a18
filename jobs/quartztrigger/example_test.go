package quartztrigger_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/reugn/go-quartz/quartz"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/quartztrigger"
)

// A trigger of go-quartz becomes the schedule of a job.
func ExampleOptions() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	trigger, err := quartz.NewCronTriggerWithLoc("0 30 9 * * MON-FRI", berlin)
	if err != nil {
		log.Fatal(err)
	}
	o, err := quartztrigger.Options(trigger, jobs.Options{Key: "billing.remind", Retries: 3})
	if err != nil {
		log.Fatal(err)
	}
	job := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), o)
	fmt.Println(job.Options().Cron, job.Options().TimeZone)
	// Output: 0 30 9 ? * MON-FRI Europe/Berlin
}
