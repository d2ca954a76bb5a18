package carillon_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/trace"
	"github.com/carillon-scheduler/carillon/worker"
)

// record collects spans of this process until the test ends.
func record(t *testing.T) *tracetest.InMemoryExporter {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	t.Cleanup(func() {
		otel.SetTracerProvider(before)
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return spans
}

// ended waits for spans of a name to end.
func ended(t *testing.T, spans *tracetest.InMemoryExporter, name string, n int) (found []tracetest.SpanStub) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		found = nil
		for _, s := range spans.GetSpans() {
			if s.Name == name {
				found = append(found, s)
			}
		}
		if len(found) >= n {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are %d spans %q, want %d; there are %+v", len(found), name, n, spans.GetSpans())
		}
	}
}

func attributes(s tracetest.SpanStub) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

// One trace goes from a program that asks, over NATS and the row, to what the handler does, and to what that asks for.
func TestOneTrace(t *testing.T) {
	spans := record(t)
	_, address := serve(t)
	tracer := otel.Tracer("test")
	c, err := carillon.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w, err := carillon.NewWorker(address, worker.Config{App: "billing"},
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, a charge) error {
			ctx, span := tracer.Start(ctx, "call the bank")
			defer span.End()
			if jobs.Attempt(ctx).Number == 1 {
				return errors.New("the bank is closed\nuntil tomorrow")
			}
			_, err := sleepJob.Enqueue(ctx, c, a)
			return err
		}), jobs.Options{Key: jobs.Key(chargeJob), Retries: 1}),
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error { return nil }), jobs.Options{Key: jobs.Key(sleepJob)}))
	if err != nil {
		t.Fatal(err)
	}
	background(t, w.Run)

	ctx, asking := tracer.Start(t.Context(), "a page is asked for")
	var run jobs.Receipt
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if run, err = chargeJob.Enqueue(ctx, c, charge{"c7"}); err == nil {
			break
		}
		if !errors.Is(err, jobs.NotFound) || time.Now().After(deadline) { // the worker has just been started
			t.Fatal(err)
		}
	}
	asking.End()
	if _, err := c.Wait(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}

	enqueues := ended(t, spans, "enqueue billing.charge", 1)
	enqueue := enqueues[len(enqueues)-1] // those before found no such job
	runs := ended(t, spans, "run billing.charge", 2)
	inner := ended(t, spans, "call the bank", 2)
	further := ended(t, spans, "enqueue billing.sleep", 1)[0]
	last := ended(t, spans, "run billing.sleep", 1)[0]
	if enqueue.Parent.SpanID() != asking.SpanContext().SpanID() {
		t.Errorf("the span %q belongs to %v", enqueue.Name, enqueue.Parent)
	}
	for i, r := range runs {
		if r.Parent.SpanID() != enqueue.SpanContext.SpanID() || inner[i].Parent.SpanID() != r.SpanContext.SpanID() {
			t.Errorf("the spans of attempt %d belong to %v and %v", i+1, r.Parent, inner[i].Parent)
		}
		facts := attributes(r)
		if facts["carillon.run.id"] != run.ID.String() || facts["carillon.run.attempt"] != int64(i+1) || facts["carillon.tenant"] != "default" ||
			facts["carillon.run.origin"] != "code" || facts["carillon.job.key"] != "billing.charge" {
			t.Errorf("the span of attempt %d has %v", i+1, facts)
		}
	}
	if runs[0].Status.Code != codes.Error || runs[0].Status.Description != "the bank is closed" || attributes(runs[0])["carillon.run.outcome"] != "error" {
		t.Errorf("the first attempt ended with %v, %v", runs[0].Status, attributes(runs[0]))
	}
	if runs[1].Status.Code != codes.Unset || attributes(runs[1])["carillon.run.outcome"] != "succeeded" || runs[1].EndTime.Before(runs[1].StartTime) {
		t.Errorf("the second attempt ended with %v, %v", runs[1].Status, attributes(runs[1]))
	}
	if further.Parent.SpanID() != inner[1].SpanContext.SpanID() || last.Parent.SpanID() != further.SpanContext.SpanID() {
		t.Errorf("what the handler asked for belongs to %v, and its run to %v", further.Parent, last.Parent)
	}
	for _, s := range append(append(runs, inner...), enqueue, further, last) {
		if s.SpanContext.TraceID() != asking.SpanContext().TraceID() {
			t.Errorf("the span %q is in another trace", s.Name)
		}
	}
}

// A run that starts long after it was asked for begins a trace of its own, with a link back.
func TestALateRunIsLinked(t *testing.T) {
	spans := record(t)
	ctx, asking := otel.Tracer("test").Start(t.Context(), "asking")
	asking.End()
	created := time.Now()
	for _, late := range []bool{false, true} {
		run := &kernel.Run{Tenant: "default", Key: "a.b", Attempt: 1, Trace: trace.Inject(ctx), Created: created, Started: created.Add(trace.Near)}
		if late {
			run.Started = run.Started.Add(time.Millisecond)
		}
		_, span := trace.Attempt(t.Context(), run)
		span.Over(trace.Cancelled, "", time.Now())
	}
	got := ended(t, spans, "run a.b", 2)
	if got[0].SpanContext.TraceID() != asking.SpanContext().TraceID() || len(got[0].Links) != 0 {
		t.Errorf("soon: %+v", got[0])
	}
	if late := got[1]; late.SpanContext.TraceID() == asking.SpanContext().TraceID() || late.Parent.IsValid() || len(late.Links) != 1 ||
		late.Links[0].SpanContext.SpanID() != asking.SpanContext().SpanID() || attributes(late)["carillon.run.outcome"] != "cancelled" {
		t.Errorf("late: %+v", late)
	}
}
