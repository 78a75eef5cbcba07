package coderd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coderd/wggateway"
	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

// newDevices makes the service for devices with a WireGuard app. Without an address for them it only says that there is
// no gateway.
func (s *Server) newDevices(keys *hostkeys.Keys, recorder *notifications.Recorder) *devices.Service {
	return devices.New(devices.Options{
		DB: s.opts.DB, Logger: s.log, Accounts: s.Users, Notifications: recorder, MaxLifetime: s.opts.MaxDeviceLifetime,
		Changed: s.devicesChanged,
		Server:  s.replicaURL().String(), Regions: s.Regions, RegionKey: keys.WireGuardAt,
		Gateway: sdk.WireGuardGateway{
			Enabled: s.opts.WireGuardAccess != "", Address: s.opts.WireGuardAccess,
			PublicKey: wgquick.Public(keys.WireGuard()).String(),
		},
	})
}

// devicesChanged tells this server's gateway of a user's devices. If that fails, it hears of them like other servers.
func (s *Server) devicesChanged(ctx context.Context, user uuid.UUID) {
	if err := s.WireGuard.Recheck(ctx, user); err != nil {
		s.log.WarnContext(ctx, "cannot compare the gateway's devices with the database, trying again", "err", err)
		s.revocations.recheckSoon(user)
	}
}

// newWireGuard makes the gateway for such devices.
func (s *Server) newWireGuard(keys *hostkeys.Keys, signer *signed.Signer) *wggateway.Gateway {
	opts := wggateway.Options{
		Logger: s.log, PrivateKey: keys.WireGuard(), Devices: s.Devices, Accounts: s.Users, Agents: s.reachable(),
		Mesh: s.Mesh, Connections: s.Connections,
		Regions: s.Regions, RegionKey: keys.WireGuardAt, Aliases: keys, Signer: signer,
	}
	switch {
	case s.opts.WireGuardNoDNSForward:
	case s.opts.Resolvers != nil:
		opts.Resolvers = s.opts.Resolvers
	default:
		opts.Resolvers = meshdns.SystemResolvers
	}
	return wggateway.New(opts)
}

// listenWireGuard serves devices, if the server has an address for them.
func (s *Server) listenWireGuard(ctx context.Context) error {
	if s.opts.WireGuardAddress == "" {
		return nil
	}
	// The library listens on all addresses of the machine.
	host, text, err := net.SplitHostPort(s.opts.WireGuardAddress)
	if ip, _ := netip.ParseAddr(host); err == nil && host != "" && !ip.IsUnspecified() {
		err = errors.New("WireGuard listens on all addresses of the machine: leave the host out")
	}
	port, parsed := strconv.ParseUint(text, 10, 16)
	if err = cmp.Or(err, parsed); err != nil {
		return fmt.Errorf("address %q of WireGuard: %w", s.opts.WireGuardAddress, err)
	}
	return s.WireGuard.Start(ctx, uint16(port))
}
