package carillon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// runServer runs a server in this process, as "carillon dev" does, and returns the address for workers and clients.
func runServer(ctx context.Context) string {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := embed.Start(ctx, embed.Config{Bus: func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		return natsbus.Connect(ctx, server.URL(), natsbus.Config{As: as})
	}})
	if err != nil {
		log.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = errors.Join(s.Stop(), server.Stop()) })
	return server.URL()
}

type Charge struct{}

type ChargeArgs struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

type Charged struct {
	Cents int `json:"cents"`
}

func (Charge) Run(ctx context.Context, a ChargeArgs) error {
	return jobs.Result(ctx, Charged{a.Cents})
}

// A worker that serves one job, and a program that waits for its result, each with nothing but the server's address.
func ExampleNewWorker() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	address := runServer(ctx) // nats://127.0.0.1:4222 of "carillon dev"

	chargeJob := jobs.Call[ChargeArgs, Charged]("billing.charge")
	w, err := carillon.NewWorker(address, worker.Config{App: "billing"},
		jobs.NewTriggered(Charge{}, jobs.Options{Key: jobs.Key(chargeJob), Retries: 3}))
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = w.Run(ctx) }()

	c, err := carillon.Dial(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	charged, err := chargeJob.Do(ctx, c, ChargeArgs{Customer: "c7", Cents: 990})
	for errors.Is(err, jobs.NotFound) { // the worker is still registering the job
		time.Sleep(10 * time.Millisecond)
		charged, err = chargeJob.Do(ctx, c, ChargeArgs{Customer: "c7", Cents: 990})
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(charged.Cents, "cents are charged")
	// Output: 990 cents are charged
}

// The page of a worker in the program's own HTTP server, and its readiness probe at /worker/health.
func ExampleHandler() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	w, err := carillon.NewWorker(runServer(ctx), worker.Config{App: "billing"},
		jobs.NewTriggered(Charge{}, jobs.Options{Key: "billing.charge"}))
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = w.Run(ctx) }()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "the shop") })
	mux.Handle("/worker/", carillon.Handler(w, carillon.HandlerConfig{Dashboard: "https://jobs.example.com"}))
	server := httptest.NewServer(mux) // or http.ListenAndServe("127.0.0.1:8081", mux)
	defer server.Close()

	for { // until the worker is ready
		answer, err := http.Get(server.URL + "/worker/health")
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	answer, err := http.Get(server.URL + "/worker/")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the page has the job:", strings.Contains(string(page), "billing.charge"))
	// Output: the page has the job: true
}

// A handler enqueues a run of another job: it becomes a child of the handler's own run.
func ExampleClientFrom() {
	mail := jobs.Trigger[ChargeArgs]("billing.mail")
	_ = jobs.NewTriggered(jobs.TriggeredFunc[ChargeArgs](func(ctx context.Context, a ChargeArgs) error {
		_, err := mail.Enqueue(ctx, carillon.ClientFrom(ctx), a, jobs.After(time.Hour))
		return err
	}), jobs.Options{Key: "billing.charge"})
}
