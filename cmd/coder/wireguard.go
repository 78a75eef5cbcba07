package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// wireGuardOptions are the flags of the WireGuard gateway and its devices.
type wireGuardOptions struct {
	daemon.WireGuard
	maxLifetime flags.Days
}

func (o *wireGuardOptions) flags(f *pflag.FlagSet) {
	o.Flags(f)
	f.Var(&o.maxLifetime, "max-device-lifetime",
		"how long a device may connect after it was added, such as 30d; users can choose less")
}

func (o *wireGuardOptions) checkLifetime() error {
	if lifetime := time.Duration(o.maxLifetime); lifetime < devices.MinLifetime {
		return fault.New(fault.Invalid, "--max-device-lifetime must be at least %s", devices.MinLifetime).
			WithDetail("Every device expires. Leave the flag out for 90 days.")
	}
	return nil
}
