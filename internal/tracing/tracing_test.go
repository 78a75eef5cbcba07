package tracing_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/internal/tracing"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestParent checks that a span survives its way through a database or a message, whether it is recorded or not.
func TestParent(t *testing.T) {
	t.Parallel()
	for _, want := range []string{parent, parent[:len(parent)-1] + "0"} {
		if got := tracing.Parent(tracing.Continue(t.Context(), want)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := tracing.Parent(t.Context()); got != "" {
		t.Errorf("without a span: got %q", got)
	}
	for _, bad := range []string{"", "00", parent[1:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff" + parent[2:], parent + "-x"} {
		if trace.SpanContextFromContext(tracing.Continue(t.Context(), bad)).IsValid() {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestWithoutProvider checks that nothing is recorded, and nothing fails, without a provider.
func TestWithoutProvider(t *testing.T) {
	t.Parallel()
	ctx, span := tracing.Start(t.Context(), "nothing")
	tracing.End(span, true)
	if span.IsRecording() || tracing.Parent(ctx) != "" || tracing.Tracer(nil) == nil {
		t.Error("a span was recorded")
	}
}

func FuzzContinue(f *testing.F) {
	f.Add(parent)
	f.Add("")
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra")
	f.Fuzz(func(t *testing.T, text string) {
		ctx := tracing.Continue(context.Background(), text)
		if written := tracing.Parent(ctx); written != "" && tracing.Parent(tracing.Continue(context.Background(), written)) != written {
			t.Errorf("%q became %q, which is not read again", text, written)
		}
	})
}
