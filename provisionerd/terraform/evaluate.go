package terraform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// maxRounds is how often an evaluation is retried without the refused values: values that depend on them may be refused
// next.
const maxRounds = 4

// Question asks for a template's form with some values.
type Question struct {
	SourceSHA256 string // hex
	// Source opens the template's source archive, a tar. It is called only if no cache has it.
	Source     func(context.Context) (io.ReadCloser, error)
	Variables  []*provisionerpb.VariableValue
	Parameters []*provisionerpb.ParameterValue // what the user has given so far
	Metadata   *provisionerpb.Metadata
}

// Answer is the form of the root module. It covers only what depends on nothing but parameters, variables and facts of
// the coder provider.
type Answer struct {
	Parameters []*provisionerpb.Parameter // in order of display
	Values     map[string]string          // the value of each, by name
	Refused    map[string]string          // why a given value was refused and replaced by the default, by name
	Dropped    []string                   // data sources that depend on more
}

// Evaluate evaluates a form from the projection of the template. It takes as long as a Terraform process does, and
// waits while maxEvaluations others run; ctx bounds both. An Invalid fault describes what is wrong with the template
// for these values. An executor that evaluates must not run jobs, because their slots have the same numbers.
func (e *Executor) Evaluate(ctx context.Context, q Question) (Answer, error) {
	var n int
	select {
	case n = <-e.evaluations:
		defer func() { e.evaluations <- n }()
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("wait for another evaluation: %w", ctx.Err())
	}
	s, err := e.takeSlot(n)
	if err != nil {
		return Answer{}, err
	}
	defer e.giveBack(s)
	offer := &provisionerpb.Offer{SourceSha256: q.SourceSHA256}
	r := &runner{
		host: e.host, cache: e.cache, slot: s, offer: offer,
		run: job.Run{Offer: offer, Source: q.Source, Sink: discardSink{}}, log: result.NewLog(discardSink{}),
		stop: make(chan struct{}), bare: true,
	}
	if err := e.mayRun(ctx); err != nil {
		return Answer{}, err
	}
	if err := s.Begin(offer); err != nil {
		return Answer{}, err
	}
	answer, err := r.answer(ctx, q)
	if err != nil && ctx.Err() != nil {
		return Answer{}, fmt.Errorf("evaluate parameters: %w", ctx.Err())
	}
	return answer, err
}

func (r *runner) answer(ctx context.Context, q Question) (Answer, error) {
	t, err := r.open(ctx)
	if err != nil {
		return Answer{}, err
	}
	files, err := t.Files()
	if errors.Is(err, template.ErrNoProjection) {
		return Answer{}, fault.New(fault.Invalid,
			"The template is written in JSON: its form shows the values found at import.")
	}
	if err != nil {
		return Answer{}, err
	}
	in := planInput{t: t, variables: q.Variables, facts: host.Facts{Transition: "start", Metadata: q.Metadata,
		Parameters: slices.Clone(q.Parameters)}}
	out := Answer{Values: map[string]string{}, Refused: map[string]string{}}
	in.lifted, out.Dropped = template.Project(files)
	for round := 1; ; round++ {
		data, outputs, said, err := r.readProjection(ctx, in)
		if err == nil {
			return out, out.read(t, data, outputs)
		}
		if ctx.Err() != nil {
			return Answer{}, ctx.Err()
		}
		refused := result.Refused(said.Diagnostics(), t, in.facts.Parameters)
		if len(refused) == 0 || round == maxRounds {
			return Answer{}, r.commandError("evaluate parameters", err, said, t)
		}
		for name, reason := range refused {
			out.Refused[name] = reason
		}
		in.facts.Parameters = slices.DeleteFunc(in.facts.Parameters, func(v *provisionerpb.ParameterValue) bool {
			_, gone := refused[v.GetName()]
			return gone
		})
	}
}

// read reads the answer from the projection's state.
func (a *Answer) read(t *template.Source, data []result.Node, outputs map[string]result.StateOutput) error {
	found, err := result.ReadDeclared(t, data)
	if err != nil {
		return err
	}
	if err := found.AddLifted(outputs); err != nil {
		return err
	}
	a.Parameters = found.Parameters()
	a.Values, err = result.ParameterValues(data)
	return err
}
