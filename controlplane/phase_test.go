package controlplane_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// An edit moves only what it names: of the phase of an interval, its number of due times, its lifetime, and the time of
// the edit. Each setting that shapes a schedule is changed between two due times, by an edit, by code or by a default.
func TestAnEditMovesOnlyWhatItNames(t *testing.T) {
	const hours = time.Hour
	begun, changes := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), 0
	far := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	type schedule struct {
		text string
		ttl  time.Duration
	}
	every, thrice, lives := schedule{"@every 6h", 0}, schedule{"R3/PT6H", 0}, schedule{"@every 6h", 20 * time.Hour}
	// All begin at 00:00 and are changed at 11:00: one due time has passed, the next ones are at 12:00 and 18:00.
	type due []int // hours
	kept, keptThrice, keptLives := due{6, 12, 18, 24, 30}, due{6, 12, 18}, due{6, 12, 18}
	type want struct{ every, thrice, lives due }
	for name, c := range map[string]struct {
		set  kernel.Settings
		want want
	}{
		"zone":      {kernel.Settings{Zone: new("Asia/Tokyo")}, want{kept, keptThrice, keptLives}},
		"end":       {kernel.Settings{End: &far}, want{kept, keptThrice, keptLives}},
		"gap":       {kernel.Settings{Gap: new(jobs.GapSkip)}, want{kept, keptThrice, keptLives}},
		"twice":     {kernel.Settings{Twice: new(jobs.TwiceBoth)}, want{kept, keptThrice, keptLives}},
		"calendars": {kernel.Settings{Calendars: &[]string{"none"}}, want{kept, keptThrice, keptLives}},
		"ttl":       {kernel.Settings{TTL: new(25 * hours)}, want{due{6, 12, 18, 24}, keptThrice, due{6, 12, 18, 24}}},
		"schedule":  {kernel.Settings{Schedule: new("@every 7h")}, want{due{6, 18, 25, 32}, due{6, 18, 25, 32}, due{6, 18}}},
		"start": {kernel.Settings{Start: new(time.Date(2000, 1, 1, 13, 0, 0, 0, time.UTC))},
			want{due{6, 19, 25, 31}, due{6, 19, 25, 31}, due{6, 19, 25, 31}}},
		"first": {kernel.Settings{First: new(time.Date(2000, 1, 1, 13, 0, 0, 0, time.UTC))},
			want{due{6, 13, 19, 25, 31}, due{6, 13, 19, 25}, due{6, 13, 19}}},
	} {
		for by, change := range map[string]func(*kernel.Definition) kernel.Command{
			"edit": func(*kernel.Definition) kernel.Command { return kernel.Edit{Key: "job", Set: c.set} },
			"code": func(d *kernel.Definition) kernel.Command {
				return kernel.Register{App: d.App, Worker: "w1", Start: true,
					Job: kernel.Declaration{Key: d.Key, Kind: d.Kind, Version: 2, Code: c.set.Over(d.Code)}}
			},
			"tenant's default": func(*kernel.Definition) kernel.Command { return kernel.Configure{Defaults: &c.set} },
			"server's default": func(*kernel.Definition) kernel.Command {
				return kernel.Configure{File: &kernel.File{Defaults: c.set}}
			},
		} {
			for of, w := range map[schedule]due{every: c.want.every, thrice: c.want.thrice, lives: c.want.lives} {
				now := begun
				store := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return now }}
				apply := func(k kernel.Command) metastore.Result {
					r := store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(now), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]
					if r.Err != nil {
						t.Fatalf("%s by %s: %v", name, by, r.Err)
					}
					return r
				}
				code := kernel.Settings{Schedule: &of.text}
				if of.ttl > 0 {
					code.TTL = &of.ttl
				}
				d := apply(kernel.Register{App: "app", Worker: "w1", Start: true,
					Job: kernel.Declaration{Key: "job", Kind: kernel.Recurring, Version: 1, Code: code}}).Definition()
				now = begun.Add(11 * hours)
				if k := change(d); k.Check() != nil {
					continue // no other setting can be a default
				} else if d = apply(k).Definition(); d == nil {
					if name == "ttl" && of.ttl > 0 || name == "schedule" {
						continue // of code, or none
					}
					d = apply(kernel.Refresh{Key: "job"}).Definition()
				}
				changes++
				if !d.SetAt.Equal(now) || !d.Edited.Equal(now) {
					t.Errorf("%s by %s: changed at %v, want %v", name, by, d.SetAt, now)
				}
				got := due{6}
				s, err := timetable.Schedule(d)
				if err != nil {
					t.Fatal(err)
				}
				for at, ok := s.Next(d.SetAt); ok && at.Sub(begun) < 33*hours; at, ok = s.Next(at) {
					got = append(got, int(at.Sub(begun)/hours))
				}
				if !equal(got, w) {
					t.Errorf("%s by %s: %s with ttl %v is due at hours %v, want %v", name, by, of.text, of.ttl, got, w)
				}
			}
		}
	}
	if changes < 72 {
		t.Errorf("%d changes were compared", changes)
	}
}
