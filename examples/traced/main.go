// Traced is a program with a job whose traces go to a collector: from who asks, over the scheduler, to what the handler
// does. Six lines make it so (see setUp); the rest is as without.
//
//	go run ./cmd/carillon dev
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 OTEL_SERVICE_NAME=billing go run ./examples/traced
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// setUp exports the process's spans to OTEL_EXPORTER_OTLP_ENDPOINT. The returned function sends the last ones.
func setUp(ctx context.Context) (flush func(context.Context) error, err error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}

var tracer = otel.Tracer("example.com/billing")

// Invoice is what the job wants to know.
type Invoice struct{ Customer string }

// send sends an invoice. Its span nests below the attempt's, because ctx is the handler's.
func send(ctx context.Context, in Invoice) error {
	ctx, span := tracer.Start(ctx, "write the letter")
	defer span.End()
	return jobs.Result(ctx, "sent to "+in.Customer)
}

// SendJob starts runs of send.
var SendJob = jobs.Trigger[Invoice]("billing.send")

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "where the bus is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url); err != nil {
		slog.Error("traced ended", "err", err)
		os.Exit(1)
	}
}

// run sends one invoice, traced, and ends.
func run(ctx context.Context, url string) (err error) {
	flush, err := setUp(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flush(context.WithoutCancel(ctx))) }()
	w, err := carillon.NewWorker(url, worker.Config{App: "billing"}, jobs.NewTriggered(jobs.TriggeredFunc[Invoice](send), jobs.Options{Key: "billing.send"}))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	c, err := carillon.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()

	ctx, span := tracer.Start(ctx, "close the order")
	defer span.End()
	sent, err := SendJob.Enqueue(ctx, c, Invoice{Customer: "c7"})
	for errors.Is(err, jobs.NotFound) && ctx.Err() == nil { // on the very first start the worker may not have made the job known yet
		time.Sleep(100 * time.Millisecond)
		sent, err = SendJob.Enqueue(ctx, c, Invoice{Customer: "c7"})
	}
	if err != nil {
		return err
	}
	done, err := c.Wait(ctx, sent.ID)
	if err == nil {
		slog.Info("the invoice is out", "run", done.ID, "state", done.State.String(), "trace", span.SpanContext().TraceID().String())
	}
	return err
}
