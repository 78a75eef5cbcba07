package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// evaluateLimits bound the processes that evaluate a form. A template's parameters need a tenth of this.
var evaluateLimits = sandbox.Limits{Memory: 1 << 30, File: 16 << 20}

// newEvaluator returns the evaluator of templates' forms, for users who fill them in. A server without provisioners
// runs no template code: it has no evaluator, and forms stay as they were at the import.
func newEvaluator(
	ctx context.Context, log *slog.Logger, opts terraformOptions, runDir string, like *terraform.Executor,
) (evaluate func(context.Context, templates.Question) (templates.Answer, error), stop func() error, err error) {
	if like == nil {
		return nil, func() error { return nil }, nil
	}
	executorOpts, err := opts.executor(log, filepath.Join(runDir, "forms"))
	if err != nil {
		return nil, nil, err
	}
	executorOpts.Slots, executorOpts.Limits, executorOpts.ExtraEnv, executorOpts.Files, executorOpts.Metrics = -1, evaluateLimits, nil, nil, nil // nothing is kept warm before the first form
	executorOpts.Like = like
	executor, err := terraform.New(ctx, executorOpts)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare forms of templates: %w", err)
	}
	return func(ctx context.Context, q templates.Question) (templates.Answer, error) {
		found, err := executor.Evaluate(ctx, terraform.Question{
			SourceSHA256: q.SourceSHA256, Variables: q.Variables, Parameters: q.Parameters, Metadata: q.Metadata,
			Source: func(ctx context.Context) (io.ReadCloser, error) {
				data, err := q.Source(ctx)
				return io.NopCloser(bytes.NewReader(data)), err
			},
		})
		return templates.Answer{
			Parameters: found.Parameters, Values: found.Values, Refused: found.Refused, Unknown: len(found.Dropped) > 0,
		}, err
	}, executor.Close, nil
}
