package telemetry

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	nometric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	notrace "go.opentelemetry.io/otel/trace/noop"
)

// wanted tells whether a signal is to be sent, and whether by gRPC. The exporters
// read the other variables (endpoint, headers, certificates, …) themselves.
func wanted(signal string, getenv func(string) string) (yes, grpc bool, err error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, false, nil
	}
	name := "OTEL_" + signal + "_EXPORTER"
	switch getenv(name) {
	case "", "otlp":
	case "none":
		return false, false, nil
	default:
		return false, false, fmt.Errorf("%s: must be otlp or none", name)
	}
	name = "OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL"
	protocol := getenv(name)
	if protocol == "" {
		name = "OTEL_EXPORTER_OTLP_PROTOCOL"
		protocol = getenv(name)
	}
	switch protocol {
	case "", "http/protobuf":
		return true, false, nil
	case "grpc":
		return true, true, nil
	}
	return false, false, fmt.Errorf("%s: must be http/protobuf or grpc", name)
}

// tracing makes the provider of spans.
func (t *Telemetry) tracing(ctx context.Context, res *resource.Resource, getenv func(string) string) (trace.TracerProvider, error) {
	yes, grpc, err := wanted("TRACES", getenv)
	if err != nil || !yes {
		return notrace.NewTracerProvider(), err
	}
	var exporter sdktrace.SpanExporter
	if grpc {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT and the like: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter))
	t.stop = append(t.stop, provider.Shutdown)
	return provider, nil
}

// metering makes the provider of metrics.
func (t *Telemetry) metering(ctx context.Context, res *resource.Resource, getenv func(string) string) (metric.MeterProvider, error) {
	yes, grpc, err := wanted("METRICS", getenv)
	if err != nil || !yes {
		return nometric.NewMeterProvider(), err
	}
	var exporter sdkmetric.Exporter
	if grpc {
		exporter, err = otlpmetricgrpc.New(ctx)
	} else {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT and the like: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	t.stop = append(t.stop, provider.Shutdown)
	return provider, nil
}
