package api_test

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The forecast lists what is planned, and jobs that could move.
func TestForecast(t *testing.T) {
	d := newDated(t) // at three o'clock of a real day, the next crowd is a minute too far away
	for i := range 9 {
		j := jobs.NewRecurring(jobs.RecurringFunc(nil), jobs.Options{Key: jobs.Key(fmt.Sprintf("report-%d", i)), Cron: "0 3 * * *"})
		declared, err := kernel.Declare(j)
		if err != nil {
			t.Fatal(err)
		}
		d.apply(kernel.Register{App: "billing", Worker: "w1", Start: true, Job: declared})
	}
	f := read[api.Forecast](t, d.send("GET", "/api/v1/forecast", ""))
	if len(f.Fires) != 1440 || len(f.Crowded) != 1 || f.Crowded[0].At.Format("15:04") != "03:00" || f.Crowded[0].Fires < 9 {
		t.Fatalf("%d minutes, crowded %+v", len(f.Fires), f.Crowded)
	}
	if one := f.Crowded[0].Jobs[0]; one.Spread != "H 3 * * *" || one.Instead == "" || one.Schedule != "0 3 * * *" || one.Then == 0 {
		t.Errorf("%+v", one)
	}
	if p := d.send("GET", "/api/v1/forecast?day=2", "").problem(t); p.Status != 422 && p.Status != 400 {
		t.Errorf("a parameter that there is not: %+v", p)
	}
}
