//go:build !linux

package terraform

import "context"

// followNames does nothing: workspaces run on Linux.
func followNames(context.Context, string, func()) error { return nil }
