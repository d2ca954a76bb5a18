// Command reports is an example of many jobs on one handler: each customer schedules a report of their own, and one
// piece of code makes them all. docs/handlers.md walks through it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// reportArgs are the arguments of a report.
type reportArgs struct {
	Customer string `json:"customer"`
}

// report is the handler of all reports.
func report(ctx context.Context, a reportArgs) error {
	jobs.Log(ctx).Info("report is made", "customer", a.Customer, "job", jobs.Attempt(ctx).Key)
	return jobs.Result(ctx, a.Customer+".pdf")
}

func main() {
	address := flag.String("addr", "127.0.0.1:8080", "the address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		err = run(ctx, listener)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves customers until ctx ends: the dashboard at /, and POST /schedule with customer, cron and zone.
func run(ctx context.Context, listener net.Listener) error {
	s, err := embed.Start(ctx, embed.Config{}, jobs.NewTriggered(jobs.TriggeredFunc[reportArgs](report), jobs.Options{Key: "report.customer"}))
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler())
	mux.HandleFunc("POST /schedule", func(w http.ResponseWriter, r *http.Request) {
		customer := r.FormValue("customer")
		status, answer := create(r.Context(), base, customer, r.FormValue("cron"), r.FormValue("zone"))
		w.WriteHeader(status)
		fmt.Fprintln(w, answer)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	log.Printf("schedule a report: curl %s/schedule -d customer=c7 -d 'cron=0 7 * * *' -d zone=Europe/Berlin", base)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	<-ctx.Done()
	return errors.Join(server.Close(), s.Close(), ignoreClosed(<-ended))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// create makes the job of a customer: a schedule and arguments for the handler. It returns the status and body of the
// response.
func create(ctx context.Context, base, customer, cron, zone string) (int, string) {
	job, err := json.Marshal(map[string]any{"key": "report." + customer, "kind": "recurring", "app": "default", "handler": "report.customer",
		"schedule": cron, "zone": zone, "args": reportArgs{customer}})
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/jobs", bytes.NewReader(job))
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return http.StatusBadGateway, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return http.StatusBadGateway, err.Error()
	}
	return answer.StatusCode, string(body)
}
