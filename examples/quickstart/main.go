// Quickstart is a program that runs jobs and starts them: a recurring job, a triggered one with typed arguments, and
// a run of it five seconds from now. It needs a scheduler at the other end of the URL:
//
//	go run ./cmd/carillon dev
//	go run ./examples/quickstart -page 127.0.0.1:8081
//
// Then look at the server's pages, http://127.0.0.1:8080, and at the worker's own: http://127.0.0.1:8081/worker/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// CountTill is done by a schedule. What a job needs is in its fields.
type CountTill struct{ Shop string }

// Run counts the till.
func (j *CountTill) Run(ctx context.Context) error {
	jobs.Log(ctx).Info("counting the till", "shop", j.Shop)
	return nil
}

// Charge is done when asked, with arguments.
type Charge struct{}

// ChargeArgs is what Charge wants to know. JSON carries it.
type ChargeArgs struct {
	Customer string `json:"customer" carillon:"search"` // its runs are found by args.customer = c7
	Cents    int    `json:"cents"`
}

// Run charges a customer. An error fails the attempt, and another follows; one that is wrapped in NoRetry is the last.
func (j *Charge) Run(ctx context.Context, a ChargeArgs) error {
	if a.Cents <= 0 {
		return jobs.NoRetry(fmt.Errorf("cannot charge %d cents", a.Cents))
	}
	jobs.Log(ctx).Info("charging", "customer", a.Customer, "cents", a.Cents)
	return jobs.Result(ctx, map[string]int{"charged": a.Cents})
}

// ChargeJob starts runs of Charge, from this program or any other: the compiler knows their arguments.
var ChargeJob = jobs.Trigger[ChargeArgs]("billing.charge")

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "where the bus is")
	page := flag.String("page", "", "where to serve the worker's own page; default nowhere")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *page, 5*time.Second); err != nil {
		slog.Error("quickstart ended", "err", err)
		os.Exit(1)
	}
}

// run works until ctx ends.
func run(ctx context.Context, url, page string, delay time.Duration) error {
	w, err := carillon.NewWorker(url, worker.Config{App: "billing", Slots: 8, Logger: slog.Default(), Echo: slog.Default()},
		jobs.NewRecurring(&CountTill{Shop: "Main Street"}, jobs.Options{Key: "billing.count-till", Cron: "*/5 * * * * *"}),
		jobs.NewTriggered(&Charge{}, jobs.Options{Key: "billing.charge", Retries: 3, RetryDelay: time.Second, Timeout: time.Minute}))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if page != "" {
		mux := http.NewServeMux()
		mux.Handle("/worker/", carillon.Handler(w, carillon.HandlerConfig{Dashboard: "http://127.0.0.1:8080"}))
		server := &http.Server{Addr: page, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
		go func() { slog.Warn("the worker's page ended", "err", server.ListenAndServe()) }()
		defer server.Close() // after the drain, so that probes see it
	}

	// Any program that reaches the bus may ask for a run, not only one that has a worker.
	c, err := carillon.Dial(url)
	if err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	defer c.Close()
	if err := chargeLater(ctx, c, delay); err != nil && ctx.Err() == nil {
		slog.Error("charge later", "err", err)
	}
	return <-ended
}

// chargeLater asks for a run after a delay, and waits for its result.
func chargeLater(ctx context.Context, c *client.Client, delay time.Duration) error {
	later, err := enqueue(ctx, c, ChargeArgs{Customer: "c7", Cents: 990}, delay)
	if err != nil {
		return err
	}
	slog.Info("a charge is due", "run", later.ID, "due", later.Due)
	run, err := c.Wait(ctx, later.ID)
	if err != nil {
		return err
	}
	slog.Info("the charge is final", "run", run.ID, "state", run.State, "result", string(run.Result))
	return nil
}

// enqueue asks for a charge. On the very first start the worker may not have made the job known yet.
func enqueue(ctx context.Context, c *client.Client, a ChargeArgs, delay time.Duration) (jobs.Receipt, error) {
	for {
		r, err := ChargeJob.Enqueue(ctx, c, a, jobs.After(delay))
		if !errors.Is(err, jobs.NotFound) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
