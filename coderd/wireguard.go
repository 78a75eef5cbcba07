package coderd

import (
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

// newDevices makes the service for devices with a WireGuard app. Without an address for them it only says that there is no gateway.
func (s *Server) newDevices(keys *hostkeys.Keys, told *notifications.Recorder) *devices.Service {
	return devices.New(devices.Options{
		DB: s.opts.DB, Logger: s.log, Accounts: s.Users, Notifications: told, MaxLifetime: s.opts.MaxDeviceLifetime,
		Gateway: sdk.WireGuardGateway{
			Enabled: s.opts.WireGuardAccess != "", Address: s.opts.WireGuardAccess, PublicKey: wgquick.Public(keys.WireGuard()).String(),
		},
	})
}
