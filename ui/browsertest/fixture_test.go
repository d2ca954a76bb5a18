package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// fixture is a scheduler with a worker and pages, on a port of the loopback.
type fixture struct {
	t *testing.T
	*embed.Scheduler
	url string
}

// ann is who acts beside the browser.
var ann = ops.Who{Actor: "person:ann", Role: ops.Admin}

// payment is what shop.charge wants to know.
type payment struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// open starts a cluster with the jobs of a small shop, and those given.
func open(t *testing.T, more ...jobs.Job) *fixture {
	t.Helper()
	return build(t, embed.Config{}, append(shop(), more...)...)
}

// build starts a cluster.
func build(t *testing.T, c embed.Config, js ...jobs.Job) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.Node, c.Worker = "node-1", worker.Config{App: "shop", Name: "till-1", Slots: 16, Grace: time.Second}
	c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	server := httptest.NewUnstartedServer(nil)
	if c.SignIn != nil { // the provider sends browsers back there
		c.Address = "http://" + server.Listener.Addr().String()
	}
	s, err := embed.Start(ctx, c, js...)
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = s.Handler()
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := s.Stop(); err != nil {
			t.Errorf("the house does not stop: %v", err)
		}
	})
	return &fixture{t: t, Scheduler: s, url: server.URL}
}

func shop() []jobs.Job {
	return []jobs.Job{
		jobs.NewRecurring(jobs.RecurringFunc(count), jobs.Options{Key: "shop.count", Cron: "* * * * * *", Tags: []string{"till"},
			Description: "Counts what is in the till, every second."}),
		jobs.NewRecurring(jobs.RecurringFunc(count), jobs.Options{Key: "shop.close-day", Cron: "0 30 2 * * *", TimeZone: "Europe/Berlin",
			Description: "Closes the books of the day."}),
		jobs.NewRecurring(jobs.RecurringFunc(count), jobs.Options{Key: "shop.newsletter", Cron: "0 0 9 ? * MON", TimeZone: "Asia/Shanghai", Tags: []string{"mail"}}),
		jobs.NewTriggered(jobs.TriggeredFunc[payment](charge), jobs.Options{Key: "shop.charge", Args: payment{Customer: "c7", Cents: 1250},
			Retries: 1, RetryDelay: time.Millisecond, Description: "Takes the money for an order.", Tags: []string{"money"}}),
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](pack), jobs.Options{Key: "shop.pack", Timeout: time.Hour,
			Description: "Packs until it is asked to stop."}),
	}
}

func count(ctx context.Context) error {
	jobs.Log(ctx).Info("counted", "cents", 125_000)
	return nil
}

// charge refuses what is not an amount.
func charge(ctx context.Context, p payment) error {
	log := jobs.Log(ctx)
	log.Info("asking the bank", "customer", p.Customer)
	if p.Cents <= 0 {
		log.Error("the bank says no", "cents", p.Cents)
		return fmt.Errorf("the bank refused %d cents: an amount must be positive", p.Cents)
	}
	return jobs.Result(ctx, map[string]any{"receipt": "R-" + p.Customer, "cents": p.Cents})
}

// pack goes on until its context ends.
func pack(ctx context.Context, _ struct{}) error {
	jobs.Log(ctx).Info("packing")
	for i := int64(1); ; i++ {
		jobs.Progress(ctx, min(i, 90), 100, fmt.Sprintf("box %d", i))
		jobs.Log(ctx).Info("closed", "box", i)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// start starts a run.
func (h *fixture) start(key jobs.Key, args string) *kernel.Run {
	h.t.Helper()
	request := kernel.Create{Key: key, Origin: kernel.FromPerson}
	if args != "" {
		request.Args = []byte(args)
	}
	made, err := h.Ops().Trigger(h.t.Context(), ann, request)
	if err != nil {
		h.t.Fatal(err)
	}
	return made.Run
}

// becomes waits until a run is in a state.
func (h *fixture) becomes(id jobs.ID, state jobs.State) *kernel.Run {
	h.t.Helper()
	var in *kernel.Run
	h.until(fmt.Sprintf("run %s is %s", id, state), func() bool {
		var err error
		in, err = h.Ops().Run(h.t.Context(), ann, id)
		return err == nil && in.State == state
	})
	return in
}

// runs lists the latest runs of a job.
func (h *fixture) runs(key jobs.Key) []*kernel.Run {
	h.t.Helper()
	page, err := h.Ops().Runs(h.t.Context(), ann, metastore.RunQuery{Job: key, Limit: metastore.MaxPage})
	if err != nil {
		h.t.Fatal(err)
	}
	return page.Runs
}

// patience is how long anything may take before a test gives up. Nothing is measured by it.
const patience = time.Minute

// until waits for what must come.
func (h *fixture) until(what string, ok func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			h.t.Fatalf("in vain for %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var errHostile = errors.New(hostile + "\nsecond line " + hostile)

// hostile is text that wants to be markup, in every way that has worked somewhere.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'"--><svg/onload=alert(3)>{{.}}</textarea></pre></title></style>javascript:alert(4){{7*7}}${7*7}`
