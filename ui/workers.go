package ui

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// workersPage is the workers and their runs.
type workersPage struct {
	visitor
	Apps  []appWorkers
	N     int
	First string // a worker to begin with
}

// appWorkers is the workers of an app.
type appWorkers struct {
	App     string
	Running int
	Drained int
	Slots   int // of all of them; 0 = one of them has no limit
	Workers []workerCard
}

// workerCard is a worker with its runs.
type workerCard struct {
	ops.Worker
	Serves []served
	Runs   []runRow
	More   int // number of further runs
}

// served is a job of a worker, with its code version.
type served struct {
	Key     jobs.Key
	Version int
	Older   bool // than that of another worker of the app
}

const (
	workerRuns = 10
	mostCards  = 200 // workers with their runs; only the others' numbers are shown
)

func (u *UI) workers(r *http.Request, v visitor) (answer, error) {
	ctx := r.Context()
	p := workersPage{visitor: v, First: strings.ReplaceAll(firstWorker, defaultBus, u.busAddress(r, "worker.token"))}
	list := u.ops.Workers(ctx, v.Who)
	p.N = len(list)
	newest := map[jobs.Key]int{}
	for _, w := range list {
		for key, version := range w.Keys {
			newest[key] = max(newest[key], version)
		}
	}
	apps := map[string]*appWorkers{}
	for i, w := range list {
		app := apps[w.App]
		if app == nil {
			app = &appWorkers{App: w.App}
			apps[w.App] = app
		}
		card := workerCard{Worker: w}
		for _, key := range slices.Sorted(maps.Keys(w.Keys)) {
			card.Serves = append(card.Serves, served{key, w.Keys[key], w.Keys[key] < newest[key]})
		}
		if w.Running > 0 && i < mostCards {
			page, err := u.ops.Runs(ctx, v.Who, metastore.RunQuery{Worker: w.Name, State: jobs.Processing, Limit: workerRuns})
			if err != nil {
				return answer{}, err
			}
			card.Runs = u.runRows(page.Runs)
		}
		card.More = max(0, w.Running-len(card.Runs))
		app.Running += w.Running
		if w.Drained {
			app.Drained++
		}
		app.Workers = append(app.Workers, card)
	}
	for _, app := range apps {
		for _, w := range app.Workers {
			if w.Slots == 0 {
				app.Slots = 0
				break
			}
			app.Slots += w.Slots
		}
		p.Apps = append(p.Apps, *app)
	}
	slices.SortFunc(p.Apps, func(a, b appWorkers) int { return cmp.Compare(a.App, b.App) })
	return answer{page: "workers", title: "Workers", data: p}, nil
}

// drain drains a worker, or the workers of an app.
func (u *UI) drain(verb func(context.Context, ops.Who, string, bool) ([]ops.Worker, error), on bool) handler {
	return func(r *http.Request, v visitor) (answer, error) {
		_, err := verb(r.Context(), v.Who, r.PathValue("name"), on)
		if on {
			return goTo("/workers", "drained"), err
		}
		return goTo("/workers", "resumed"), err
	}
}

// firstWorker is a minimal worker.
const firstWorker = `func main() {
	w, err := carillon.NewWorker("nats://127.0.0.1:4222", worker.Config{App: "shop", Slots: 8},
		jobs.NewRecurring(jobs.RecurringFunc(hello), jobs.Options{Key: "shop.hello", Cron: "*/10 * * * * *"}))
	if err == nil {
		err = w.Run(context.Background())
	}
	log.Fatal(err)
}

func hello(ctx context.Context) error {
	jobs.Log(ctx).Info("hello")
	return nil
}`
