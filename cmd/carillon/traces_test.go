package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// spans is a collector for traces, as small as can be.
type spans struct {
	mu   sync.Mutex
	all  map[string]string // by name, their trace
	from map[string]string // about who sent them
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range sent.ResourceSpans {
		for _, a := range from.Resource.Attributes {
			s.from[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range from.ScopeSpans {
			for _, one := range scope.Spans {
				s.all[one.Name] = hex.EncodeToString(one.TraceId)
			}
		}
	}
}

// A server exports its traces to the collector of the environment, the last ones when it ends.
func TestServerExportsTraces(t *testing.T) {
	tests.Long(t)
	seen := &spans{all: map[string]string{}, from: map[string]string{}}
	there := httptest.NewServer(seen)
	defer there.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there.URL)
	before := otel.GetTracerProvider()
	defer otel.SetTracerProvider(before)

	p := start(t, "dev", "--memory", "--node", "n7", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	p.get("/readyz", ok)
	const asked = "4bf92f3577b34da6a3ce929d0e0e4736"
	p.get("/api/v1/jobs/demo.greet", ok)
	request, err := http.NewRequestWithContext(t.Context(), "POST", p.page+"/api/v1/jobs/demo.greet/trigger", strings.NewReader(`{"args":{"name":"Ann"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+asked+"-00f067aa0ba902b7-01")
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode >= 300 {
		t.Fatalf("%v, %+v", err, answer)
	}
	answer.Body.Close()
	p.get("/api/v1/runs?job=demo.greet&state=Succeeded", succeeded(1))
	p.end()

	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, name := range []string{"enqueue demo.greet", "run demo.greet"} {
		if trace, there := seen.all[name]; !there {
			t.Errorf("there is no span %q; there are %v", name, seen.all)
		} else if trace != asked {
			t.Errorf("the span %q is in the trace %s", name, trace)
		}
	}
	if seen.from["service.name"] != "carillon" || seen.from["service.instance.id"] != "n7" {
		t.Errorf("they come from %v", seen.from)
	}
}

// An unsupported exporter is refused before anything starts.
func TestTracesByGRPC(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	out := newOutput()
	if code := execute(t.Context(), []string{"server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, out, out); code != 2 || !strings.Contains(out.String(), "http/protobuf") {
		t.Errorf("code %d: %s", code, out)
	}
}
