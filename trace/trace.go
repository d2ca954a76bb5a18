// Package trace follows a run from who asked for it to its handler, by OpenTelemetry.
//
// Enqueuing opens a span, its W3C traceparent travels in the run's row, and each attempt opens a span that belongs to
// it, which the handler finds in its context: what it calls nests below. Spans go to the process's global provider
// (otel.SetTracerProvider), as is usual; whoever sets none pays for none.
//
// An attempt's span is a child of the one that asked for the run if it starts within [Near] of it. Later, it begins a
// trace of its own with a link back: a trace that is open for days is cut off by most backends, its sampling has been
// decided long ago, and a week-long bar tells nobody anything.
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

// Near is how long after its run was asked for an attempt may start and still be part of the same trace.
const Near = time.Minute

// scope names who makes the spans.
const scope = "github.com/carillon-scheduler/carillon"

// unset is the global provider of a program that has set none. It only hands on what comes after it.
var unset = otel.GetTracerProvider()

// tracer makes spans, or is nil if nobody wants any.
func tracer() trace.Tracer {
	p := otel.GetTracerProvider()
	if _, nothing := p.(noop.TracerProvider); nothing || p == unset {
		return nil
	}
	return p.Tracer(scope)
}

// Inject is the W3C traceparent of the span in ctx, or "".
func Inject(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Extract puts the span that a W3C traceparent names into ctx. One that is not valid is none.
func Extract(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// Span is a span under way. The zero value is none, and all its methods do nothing.
type Span struct{ span trace.Span }

// Enqueue opens the span of asking for runs.
func Enqueue(ctx context.Context, tenant jobs.Tenant, wishes []kernel.Create) (context.Context, Span) {
	t := tracer()
	if t == nil {
		return ctx, Span{}
	}
	name, facts := "enqueue", []attribute.KeyValue{attribute.String("carillon.tenant", string(tenant)), attribute.Int("carillon.runs", len(wishes))}
	if key := keyOf(wishes); key != "" {
		name += " " + string(key)
		facts = append(facts, attribute.String("carillon.job.key", string(key)))
	}
	ctx, span := t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(facts...))
	return ctx, Span{span}
}

// keyOf is the job that all wishes are for, or "".
func keyOf(wishes []kernel.Create) (key jobs.Key) {
	for i, wish := range wishes {
		if i > 0 && wish.Key != key {
			return ""
		}
		key = wish.Key
	}
	return key
}

// Close ends a span, with what went wrong or nil.
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

// Attempt opens the span of an attempt that a worker has claimed.
func Attempt(ctx context.Context, run *kernel.Run) (context.Context, Span) {
	t := tracer()
	if t == nil {
		if run.Trace == "" || far(run) {
			return ctx, Span{}
		}
		return Extract(ctx, run.Trace), Span{} // what the handler enqueues still belongs to who asked for this
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

// far says that an attempt starts too long after its run was asked for to be part of the same trace.
func far(run *kernel.Run) bool { return run.Started.Sub(run.Created) > Near }

// outcomes are the words for how an attempt ended; one that was cancelled has none of its own.
var outcomes = map[kernel.Outcome]string{kernel.OutcomeSuccess: "succeeded", kernel.OutcomeError: "error", kernel.OutcomeFatal: "error",
	kernel.OutcomeTimeout: "timeout", kernel.OutcomeHandback: "handback", kernel.OutcomeSnooze: "snooze", Cancelled: "cancelled"}

// Cancelled is the outcome of an attempt that the store ended while its handler ran.
const Cancelled kernel.Outcome = 0

// Over ends the span of an attempt: how it ended, the text of its error or "", and when.
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

// firstLine is the first line of a text, and no more of it than fits on a page.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "")
	}
	return line
}
