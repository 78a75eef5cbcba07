//go:build !unix

package script

import (
	"context"
	"errors"
	"time"
)

type run struct{}

// Run needs a Unix system; workspaces run on Linux.
func (r *Runner) Run(_ context.Context, s Script, _ Environment) Result {
	now := time.Now()
	return Result{Script: s.ID, Started: now, Ended: now, ExitCode: 127, Err: errors.New("scripts need a Unix system")}
}

// Output needs a Unix system too.
func (r *Runner) Output(context.Context, Script, Environment, int) (string, error) {
	return "", errors.New("scripts need a Unix system")
}

// Close does nothing here.
func (r *Runner) Close() error { return nil }
