//go:build !linux

package connect

import (
	"context"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// refuse returns the error of coder connect on systems that it does not support.
func refuse() error {
	return exit.Try(fault.New(fault.Invalid, "coder connect works on Linux only").
		WithDetail("coder port-forward reaches single ports, coder config-ssh sets up ssh coder.dev, and a WireGuard app reaches all ports."), "coder devices add laptop")
}

func runConnectUp(context.Context, *global.Flags, connectOptions) error   { return refuse() }
func runConnectDown(context.Context, *global.Flags, connectOptions) error { return refuse() }
func explainDown(error) error                                             { return refuse() }
