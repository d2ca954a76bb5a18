package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-scheduler/carillon/internal/episode"
)

// flushTraces is how long the last spans of a process may take to be sent.
const flushTraces = time.Second

// traces exports spans to the collector that the environment names, if any. stop sends the rest.
func (p *process) traces(ctx context.Context) (stop func(), err error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return func() {}, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol == "grpc" {
			return nil, usage("invalid %s %s: want http/protobuf, usually port 4318 of a collector", name, protocol)
		}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", "carillon"),
		attribute.String("service.version", version()), attribute.String("service.instance.id", p.cfg.Node)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	episodes := episode.New(p.log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { episodes.Failed(slog.LevelWarn, "", "traces are not exported", "err", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	otel.SetTracerProvider(provider)
	return func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTraces)
		defer cancel()
		if err := provider.Shutdown(last); err != nil {
			p.log.Warn("the last traces were not exported", "err", err)
		}
	}, nil
}
