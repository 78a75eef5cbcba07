package terraform

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/internal/tracing"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
)

const phasePlan = "terraform plan"

// phase runs a phase of a job, and records it in the job's trace.
func phase(ctx context.Context, name string, run func(context.Context) error) error {
	ctx, span := tracing.Start(ctx, name)
	err := run(ctx)
	tracing.End(span, err != nil)
	return err
}

// phases divides a build's one Terraform process into what it plans and what it changes.
type phases struct {
	change  string // the name of the second phase
	began   time.Time
	planned time.Time // zero while it plans; written by Terraform's output, read after it ends
}

// newPhases begins with planning, unless the plan was made before.
func newPhases(transition provisionerpb.Transition, planned bool) *phases {
	p := &phases{change: "terraform apply", began: time.Now()}
	if transition == provisionerpb.Transition_TRANSITION_DELETE {
		p.change = "terraform destroy"
	}
	if planned {
		p.planned = p.began
	}
	return p
}

// event notices that Terraform has planned. No template can forge the event: Terraform wraps the output of a template's
// programs in others.
func (p *phases) event(e result.Event) {
	if e.Kind == "change_summary" && strings.HasPrefix(e.Text, "Plan:") && p.planned.IsZero() {
		p.planned = time.Now()
	}
}

// record records the phases in the job's trace, after the process has ended.
func (p *phases) record(ctx context.Context, failed bool) {
	tracer, now := tracing.Tracer(trace.SpanFromContext(ctx).TracerProvider()), time.Now()
	if p.planned.IsZero() {
		tracing.Record(ctx, tracer, phasePlan, p.began, now, failed)
		return
	}
	if p.planned.After(p.began) {
		tracing.Record(ctx, tracer, phasePlan, p.began, p.planned, false)
	}
	tracing.Record(ctx, tracer, p.change, p.planned, now, failed)
}
