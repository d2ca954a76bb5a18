package assign

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A run's way over the board: it is ready, is chosen, starts, is answered and ends.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name          string
		jobs, workers int
		slots         int
		apart         bool // each worker has only some of the jobs
	}{
		{"1 job, 2 workers", 1, 2, 2000, false},
		{"1 job, 2 workers without a limit", 1, 2, 0, false},
		{"1 job, 500 workers", 1, 500, 16, false},
		{"1000 jobs, 4 workers", 1000, 4, 500, false},
		{"1000 jobs apart, 20 workers", 1000, 20, 100, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b)
			for i := range c.workers {
				s.worker(fmt.Sprint("w", i), c.slots, func(info *bus.WorkerInfo) {
					info.Keys = map[jobs.Key]int{}
					for k := range c.jobs {
						if !c.apart || k%c.workers == i || (k+1)%c.workers == i {
							info.Keys[jobs.Key(fmt.Sprint("job", k))] = 1
						}
					}
				})
			}
			s.fill()
			const batch = 1000
			rows := make([]kernel.Run, batch)
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch {
				for i := range rows {
					s.turn++
					s.last++
					rows[i] = kernel.Run{Version: s.last, Tenant: app1.Tenant, App: app1.Name, Key: jobs.Key(fmt.Sprint("job", i%c.jobs)), State: jobs.Enqueued, Turn: s.turn,
						ID: jobs.ID{byte(s.turn >> 32), byte(s.turn >> 24), byte(s.turn >> 16), byte(s.turn >> 8), byte(s.turn)}}
					s.note(&rows[i])
				}
				for done := 0; done < batch; {
					s.acts = dispatch.Acts{}
					list := s.b.Starts(batch, s.now)
					if len(list) == 0 {
						b.Fatal("nothing starts")
					}
					for _, x := range list {
						s.last++
						s.note(&kernel.Run{Version: s.last, Tenant: x.Tenant, ID: x.ID, App: app1.Name, Key: x.key, State: jobs.Processing, Attempt: x.N, Worker: x.Worker})
					}
					for _, x := range list {
						s.answer(x.Attempt, dispatch.Worker{Tenant: x.Tenant, Name: x.Worker})
					}
					for _, x := range list {
						s.note(&kernel.Run{Tenant: x.Tenant, ID: x.ID, App: app1.Name, Key: x.key, State: jobs.Succeeded, Attempt: x.N, Worker: x.Worker})
					}
					done += len(list)
				}
			}
		})
	}
}
