// Package trace traces a run from its request to its handler, with OpenTelemetry.
//
// It is not promised to programs outside this module.
//
// Where to start: [Enqueue] and [Attempt]. Enqueuing starts a span, its W3C traceparent is stored in the run's row, and
// each attempt starts a span that is linked to it and is in the handler's context. Spans go to the process's global
// provider (otel.SetTracerProvider); without one, tracing costs nothing.
//
// Sharp edges: an attempt's span is a child of the request's span if it starts within [Near] of it. Later, it starts a
// trace of its own with a link back: most backends cut off a trace that is open for days, its sampling was decided long
// ago, and a week-long bar shows nothing.
package trace

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Near is how long after its run was requested an attempt may start and still be part of the same trace.
const Near = time.Minute

// scope is the instrumentation scope of the spans.
const scope = "github.com/carillon-scheduler/carillon"

// unset is the global provider of a program that has set none. It delegates to one that is set later.
var unset = otel.GetTracerProvider()

// tracer returns a tracer, or nil if the program has set no provider.
func tracer() trace.Tracer {
	p := otel.GetTracerProvider()
	if _, nothing := p.(noop.TracerProvider); nothing || p == unset {
		return nil
	}
	return p.Tracer(scope)
}

// Inject returns the W3C traceparent of the span in ctx, or "".
func Inject(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Extract adds the span of a W3C traceparent to ctx. An invalid one is ignored.
func Extract(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// Span is an open span. The zero value is none, and all its methods do nothing.
type Span struct{ span trace.Span }

// Enqueue starts the span of a request for runs.
func Enqueue(ctx context.Context, tenant jobs.Tenant, requests []kernel.Create) (context.Context, Span) {
	t := tracer()
	if t == nil {
		return ctx, Span{}
	}
	name, facts := "enqueue", []attribute.KeyValue{attribute.String("carillon.tenant", string(tenant)), attribute.Int("carillon.runs", len(requests))}
	if key := keyOf(requests); key != "" {
		name += " " + string(key)
		facts = append(facts, attribute.String("carillon.job.key", string(key)))
	}
	ctx, span := t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(facts...))
	return ctx, Span{span}
}

// keyOf returns the job that all requests are for, or "".
func keyOf(requests []kernel.Create) (key jobs.Key) {
	for i, request := range requests {
		if i > 0 && request.Key != key {
			return ""
		}
		key = request.Key
	}
	return key
}

// Close ends a span, with an error or nil.
func (s Span) Close(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.RecordError(err)
		s.span.SetStatus(codes.Error, firstLine(err.Error()))
	}
	s.span.End()
}

// Attempt starts the span of an attempt that a worker has.
func Attempt(ctx context.Context, run *kernel.Run) (context.Context, Span) {
	t := tracer()
	if t == nil {
		if run.Trace == "" || far(run) {
			return ctx, Span{}
		}
		return Extract(ctx, run.Trace), Span{} // runs that the handler enqueues still belong to the request's trace
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("carillon.tenant", string(run.Tenant)),
		attribute.String("carillon.job.key", string(run.Key)),
		attribute.String("carillon.run.id", run.ID.String()),
		attribute.Int("carillon.run.attempt", int(run.Attempt)),
		attribute.String("carillon.run.origin", string(run.Origin)),
		attribute.Float64("carillon.run.late_seconds", max(0, run.Started.Sub(run.Wanted())).Seconds()),
		attribute.String("carillon.worker", run.Worker),
	)}
	if asked := Extract(context.Background(), run.Trace); run.Trace == "" {
		options = append(options, trace.WithNewRoot())
	} else if far(run) {
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(asked)))
	} else {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.SpanContextFromContext(asked))
	}
	ctx, span := t.Start(ctx, "run "+string(run.Key), options...)
	return ctx, Span{span}
}

// far reports whether an attempt starts too long after its run was requested to be part of the same trace.
func far(run *kernel.Run) bool { return run.Started.Sub(run.Created) > Near }

// outcomes are the names of how an attempt ended; a cancelled one has none in package kernel.
var outcomes = map[kernel.Outcome]string{kernel.OutcomeSuccess: "succeeded", kernel.OutcomeError: "error", kernel.OutcomeFatal: "error",
	kernel.OutcomeTimeout: "timeout", kernel.OutcomeHandback: "handback", kernel.OutcomeSnooze: "snooze", Cancelled: "cancelled"}

// Cancelled is the outcome of an attempt that the store ended while its handler ran.
const Cancelled kernel.Outcome = 0

// Over ends the span of an attempt, with its outcome, the text of its error or "", and the time.
func (s Span) Over(outcome kernel.Outcome, text string, at time.Time) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String("carillon.run.outcome", outcomes[outcome]))
	switch outcome {
	case kernel.OutcomeError, kernel.OutcomeFatal, kernel.OutcomeTimeout:
		s.span.AddEvent("exception", trace.WithTimestamp(at), trace.WithAttributes(attribute.String("exception.message", text)))
		s.span.SetStatus(codes.Error, firstLine(text))
	}
	s.span.End(trace.WithTimestamp(at))
}

// firstLine returns the first line of a text, shortened to fit on a page.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "")
	}
	return line
}
