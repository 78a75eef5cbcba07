package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// traceOptions are the trace flag of daemons. OpenTelemetry's own variables, which its libraries read, say where traces
// go (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE), how many are kept
// (OTEL_TRACES_SAMPLER, such as parentbased_traceidratio, and OTEL_TRACES_SAMPLER_ARG), and how the process appears
// (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES).
type traceOptions struct {
	enabled bool
}

func (opts *traceOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&opts.enabled, "trace", false,
		"send traces of requests and jobs over OTLP to OTEL_EXPORTER_OTLP_ENDPOINT")
}

// flushTime bounds how long a process that stops takes to send its last spans.
const flushTime = 5 * time.Second

// tracers returns the provider of the process's traces, which is nil without --trace. The caller must call stop, which
// sends the last spans.
func (opts *traceOptions) tracers(
	ctx context.Context, log *slog.Logger, service string,
) (provider trace.TracerProvider, stop func(), err error) {
	if !opts.enabled {
		return nil, func() {}, nil
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil, fault.New(fault.Invalid, "--trace needs the address of a collector").
			WithDetail("Set OTEL_EXPORTER_OTLP_ENDPOINT, for example to http://127.0.0.1:4318.")
	}
	if protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); protocol != "http/protobuf" {
		return nil, nil, fault.New(fault.Invalid, "traces cannot be sent with the protocol %q", protocol).
			WithDetail("Unset OTEL_EXPORTER_OTLP_PROTOCOL, and use the collector's address for OTLP over HTTP, usually port 4318.")
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("create the exporter of traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.version", buildinfo.Version())),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "cannot describe this process for traces: %w", err).
			WithDetail("Check OTEL_RESOURCE_ATTRIBUTES.")
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("cannot send traces", "err", err) }))
	made := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	log.Info("sending traces", "url",
		cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")))
	return made, func() {
		soon, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := made.Shutdown(soon); err != nil {
			log.Warn("cannot send the last traces", "err", err)
		}
	}, nil
}
