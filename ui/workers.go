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
	After string // the page begins after this place
	Next  string // the After of the next page, or ""
}

// appWorkers is the workers of an app.
type appWorkers struct {
	App     string
	N       int // workers; the sums are of all of them
	Running int
	Drained int
	Slots   int          // 0 = one of them has no limit
	Workers []workerCard // those on this page
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
	mostCards  = 100 // workers on a page
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
	p.After = r.URL.Query().Get("after")
	shown := 0
	for i, w := range list { // by app and name
		app := apps[w.App]
		if app == nil {
			app = &appWorkers{App: w.App}
			apps[w.App] = app
		}
		if app.N++; w.Slots == 0 || app.N > 1 && app.Slots == 0 {
			app.Slots = 0
		} else {
			app.Slots += w.Slots
		}
		app.Running += w.Running
		if w.Drained {
			app.Drained++
		}
		if shown == mostCards {
			p.Next = cmp.Or(p.Next, placeOf(list[i-1]))
		}
		if shown == mostCards || placeOf(w) <= p.After {
			continue
		}
		shown++
		card := workerCard{Worker: w}
		for _, key := range slices.Sorted(maps.Keys(w.Keys)) {
			card.Serves = append(card.Serves, served{key, w.Keys[key], w.Keys[key] < newest[key]})
		}
		if w.Running > 0 {
			page, err := u.ops.Runs(ctx, v.Who, metastore.RunQuery{Worker: w.Name, State: jobs.Processing, Limit: workerRuns})
			if err != nil {
				return answer{}, err
			}
			card.Runs = u.runRows(page.Runs)
		}
		card.More = max(0, w.Running-len(card.Runs))
		app.Workers = append(app.Workers, card)
	}
	for _, app := range apps {
		if len(app.Workers) > 0 {
			p.Apps = append(p.Apps, *app)
		}
	}
	slices.SortFunc(p.Apps, func(a, b appWorkers) int { return cmp.Compare(a.App, b.App) })
	return answer{page: "workers", title: "Workers", data: p}, nil
}

// placeOf is a worker's place in the list, which a page begins after: by app and name, as such texts compare.
func placeOf(w ops.Worker) string { return w.App + "\n" + w.Name }

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
