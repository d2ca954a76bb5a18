package main

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
)

// The program's spans arrive at the collector, in one trace.
func TestTraced(t *testing.T) {
	var mu sync.Mutex
	traces := map[string]string{} // by the span's name
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, from := range sent.ResourceSpans {
			for _, scope := range from.ScopeSpans {
				for _, span := range scope.Spans {
					traces[span.Name] = hex.EncodeToString(span.TraceId)
				}
			}
		}
	}))
	defer there.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.URL)

	nats, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := embed.Start(t.Context(), embed.Config{Bus: func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		return natsbus.Connect(ctx, nats.URL(), natsbus.Config{As: as})
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if err := run(ctx, nats.URL()); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if err := nats.Stop(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"close the order", "enqueue billing.send", "run billing.send", "write the letter"} {
		if traces[name] == "" || traces[name] != traces["close the order"] {
			t.Errorf("the span %q is in the trace %q; there are %v", name, traces[name], traces)
		}
	}
}
