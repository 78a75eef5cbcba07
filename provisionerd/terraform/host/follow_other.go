//go:build !linux

package host

import "context"

// followNames does nothing: workspaces run on Linux.
func followNames(context.Context, string, func()) error { return nil }
