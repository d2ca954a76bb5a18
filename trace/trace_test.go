package trace

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

const asked = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// What comes in goes out, and nonsense is nothing.
func TestInjectAndExtract(t *testing.T) {
	if got := Inject(Extract(t.Context(), asked)); got != asked {
		t.Errorf("%s became %q", asked, got)
	}
	for _, bad := range []string{"", "x", strings.Replace(asked, "4", "g", 1), "00-00000000000000000000000000000000-00f067aa0ba902b7-01", strings.Repeat("0", 1000)} {
		if got := Inject(Extract(t.Context(), bad)); got != "" {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

// Without a provider there are no spans, and what a handler enqueues still belongs to who asked, if that was not long
// ago.
func TestWithoutAProvider(t *testing.T) {
	begun := time.Now()
	run := &kernel.Run{Trace: asked, Created: begun, Started: begun.Add(Near)}
	ctx, span := Attempt(t.Context(), run)
	if span != (Span{}) || Inject(ctx) != asked {
		t.Errorf("%v, %q", span, Inject(ctx))
	}
	run.Started = begun.Add(Near + 1)
	if ctx, _ := Attempt(t.Context(), run); Inject(ctx) != "" {
		t.Errorf("a minute later: %q", Inject(ctx))
	}
	ctx, span = Enqueue(Extract(t.Context(), asked), "default", []kernel.Create{{Key: "a"}})
	if span != (Span{}) || Inject(ctx) != asked {
		t.Errorf("%v, %q", span, Inject(ctx))
	}
	span.Close(context.Canceled)
	span.Over(kernel.OutcomeError, "no", begun)
}

func TestKeyOf(t *testing.T) {
	for want, requests := range map[jobs.Key][]kernel.Create{"a": {{Key: "a"}, {Key: "a"}}, "": {{Key: "a"}, {Key: "b"}}} {
		if got := keyOf(requests); got != want {
			t.Errorf("%v: %q", requests, got)
		}
	}
}

// What tracing costs those who do not trace.
func BenchmarkOff(b *testing.B) {
	run := &kernel.Run{Created: time.Now(), Started: time.Now()}
	requests := []kernel.Create{{Key: "a"}}
	b.ReportAllocs()
	for b.Loop() {
		ctx, span := Enqueue(context.Background(), "default", requests)
		requests[0].Trace = Inject(ctx)
		span.Close(nil)
		_, span = Attempt(ctx, run)
		span.Over(kernel.OutcomeSuccess, "", run.Started)
	}
}

// What it costs those who have a provider that does nothing.
func BenchmarkNoop(b *testing.B) {
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(noop.NewTracerProvider())
	defer otel.SetTracerProvider(before)
	BenchmarkOff(b)
}
