// Package tracing carries traces across the parts of the program: it names what is measured, and writes and reads the
// text that stands for a span in a database or a message (W3C traceparent). It knows neither what is traced nor where
// traces go. Without a provider nothing is recorded, and nothing is sent: only the processes that export traces link
// OpenTelemetry's SDK.
//
// Names and attributes are constant phrases, routes, ids, kinds and statuses. They never hold URLs, parameters, errors
// or Terraform's output, which may contain secrets.
package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope is the name under which the program's spans appear.
const scope = "github.com/codermesh/codermesh"

const header = "traceparent"

// Tracer returns the provider's tracer. A nil provider records nothing.
func Tracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = noop.NewTracerProvider()
	}
	return provider.Tracer(scope)
}

// Parent returns the text that stands for ctx's span, or "" without one. The text also says whether the span is
// recorded, so that what continues it is recorded with it or not at all.
func Parent(ctx context.Context) string {
	text := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, text)
	return text[header]
}

// Continue returns ctx with the span that parent stands for as the parent of new spans. A parent that Parent did not
// write changes nothing.
func Continue(ctx context.Context, parent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: parent})
}

// Start begins a span below ctx's span, with the same provider. Without one it records nothing.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return Tracer(trace.SpanFromContext(ctx).TracerProvider()).Start(ctx, name, trace.WithAttributes(attributes...))
}

// End ends a span.
func End(span trace.Span, failed bool) { endAt(span, failed, time.Now()) }

// Record records a span below ctx's span that has ended before.
func Record(
	ctx context.Context, tracer trace.Tracer, name string, began, ended time.Time, failed bool,
	attributes ...attribute.KeyValue,
) {
	_, span := tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	endAt(span, failed, ended)
}

func endAt(span trace.Span, failed bool, at time.Time) {
	if failed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(at))
}
