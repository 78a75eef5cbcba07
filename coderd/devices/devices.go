// Package devices owns the devices of users that connect with a WireGuard app, such as phones: their public keys, until
// when they may connect, and where they were seen. A device acts as its user, who alone adds it; user admins may remove
// it. Its private key never leaves the device. The device's address in the mesh follows from its id, so that it cannot
// choose another's. The package knows neither workspaces nor the gateway that carries packets.
//
// Every server learns of a device that was added, renamed or removed: the database announces its user on Channel, and
// on "users_revoked" a user who was suspended, activated or deleted. Expiry is announced by no one: it counts among the
// keys whose end a server waits for (coderd/revocations.go).
package devices

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

const (
	// Channel is where the database announces the user of a device that changed.
	Channel = "user_devices"
	// MaxDevices is how many devices a user can have. It is far above what a person carries, and keeps one user from
	// filling the table of peers that every gateway holds in memory.
	MaxDevices = 20
	// DefaultMaxLifetime is how long a device may connect, unless the operator sets another time: a device that was
	// lost and forgotten is harmless after three months.
	DefaultMaxLifetime = 90 * 24 * time.Hour
	// MinLifetime is the shortest time that a device can be added for, and that an operator can set.
	MinLifetime = time.Minute
	// MTU is that of devices' interfaces: the least that IPv6 allows, so that WireGuard's packets fit into every path.
	MTU = 1280
	// sessionLife is how long a device may still use a session of an earlier process: WireGuard's REJECT_AFTER_TIME.
	sessionLife = 3 * time.Minute
)

// Accounts finds users.
type Accounts interface {
	// Target returns the user in the path if the actor may perform the action on the resource of that user.
	Target(r *http.Request, action rbac.Action, resource rbac.Resource) (dbsqlc.User, error)
}

// Regions has the gateways of connected regions.
type Regions interface {
	WireGuardGateways(ctx context.Context) ([]regions.Gateway, error)
}

// Options configure the service. DB, Logger, Accounts, Regions and RegionKey are required.
type Options struct {
	DB       *database.DB
	Logger   *slog.Logger
	Accounts Accounts
	// Notifications records what users are told. Nil: nothing.
	Notifications *notifications.Recorder
	// Regions are those whose gateways devices can connect to, and RegionKey returns the private key of a region's
	// gateway.
	Regions   Regions
	RegionKey func(proxy uuid.UUID) [wgquick.KeySize]byte
	// Gateway is what devices connect to: whether it is enabled, its address and its public key. The service sets the
	// other fields.
	Gateway sdk.WireGuardGateway
	// Changed is called after a device of a user was added, renamed or removed, before the request is answered, so that
	// a device that follows its answer finds this server's gateway informed. Other servers hear of it on Channel. Nil:
	// nothing is called.
	Changed func(ctx context.Context, user uuid.UUID)
	// Server is the URL of this server, which the next process there will have, too. It is required if there is a
	// gateway.
	Server string
	// MaxLifetime is the longest time that a device may connect, and the time without another one. 0 means
	// DefaultMaxLifetime.
	MaxLifetime time.Duration
}

// Service serves devices. Safe for concurrent use.
type Service struct {
	opts Options
	log  *slog.Logger
}

// New returns the service.
func New(opts Options) *Service {
	if opts.Changed == nil {
		opts.Changed = func(context.Context, uuid.UUID) {}
	}
	if opts.MaxLifetime == 0 {
		opts.MaxLifetime = DefaultMaxLifetime
	}
	opts.Gateway.Prefix, opts.Gateway.DNS, opts.Gateway.MTU = tailnet.Prefix.String(), gateway.Addr.String(), MTU
	opts.Gateway.MaxDeviceLifetime = opts.MaxLifetime
	return &Service{opts: opts, log: opts.Logger}
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const devices = "/api/v2/users/{user}/devices"
	mux.Handle("GET /api/v2/deployment/wireguard-gateway", rbac.AnyToken, s.gateway)
	mux.Handle("GET "+devices, rbac.Needs(rbac.Read, rbac.UserDevice), s.all)
	mux.Handle("POST "+devices, rbac.Needs(rbac.Create, rbac.UserDevice), s.create,
		audit.On(audit.Create, audit.UserDevice))
	mux.Handle("PATCH "+devices+"/{device}", rbac.Needs(rbac.Update, rbac.UserDevice), s.update,
		audit.On(audit.Write, audit.UserDevice))
	mux.Handle("DELETE "+devices+"/{device}", rbac.Needs(rbac.Delete, rbac.UserDevice), s.remove,
		audit.On(audit.Delete, audit.UserDevice))
}

// Active returns the devices that may connect to the servers now, by id: those that have not expired, of users who are
// not suspended. With a user it returns that user's only, with uuid.Nil all.
func (s *Service) Active(ctx context.Context, user uuid.UUID) ([]gateway.Device, error) {
	if user == uuid.Nil {
		return s.list(s.opts.DB.ListActiveDevices(ctx, nil))
	}
	return s.list(s.opts.DB.ListActiveDevicesOf(ctx, dbsqlc.ListActiveDevicesOfParams{UserID: user}))
}

// ActiveAt is Active for those that may connect to a region.
func (s *Service) ActiveAt(ctx context.Context, proxy, user uuid.UUID) ([]gateway.Device, error) {
	if user == uuid.Nil {
		return s.list(s.opts.DB.ListActiveDevices(ctx, &proxy))
	}
	return s.list(s.opts.DB.ListActiveDevicesOf(ctx, dbsqlc.ListActiveDevicesOfParams{UserID: user, ProxyID: &proxy}))
}

// FindAt returns a device that may connect to a region now. It returns the fault Unauthenticated for another one.
func (s *Service) FindAt(ctx context.Context, device, proxy uuid.UUID) (gateway.Device, error) {
	row, err := s.opts.DB.GetActiveDeviceAt(ctx, dbsqlc.GetActiveDeviceAtParams{ID: device, ProxyID: proxy})
	switch {
	case database.IsNotFound(err):
		return gateway.Device{}, fault.New(fault.Unauthenticated, "This device may not connect at this region.")
	case err != nil:
		return gateway.Device{}, fmt.Errorf("look up device: %w", err)
	}
	return s.known(row), nil
}

func (s *Service) list(rows []dbsqlc.UserDevice, err error) ([]gateway.Device, error) {
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	out := make([]gateway.Device, len(rows))
	for i, row := range rows {
		out[i] = s.known(row)
	}
	return out, nil
}

// AtEndpoint returns the devices that may connect to the servers now and were last seen at an address: several if they
// share it one after the other.
func (s *Service) AtEndpoint(ctx context.Context, endpoint netip.AddrPort) ([]gateway.Device, error) {
	return s.list(s.opts.DB.ListDevicesAtEndpoint(ctx, gateway.Canonical(endpoint).String()))
}

// Seen records where devices are, that this server's gateway has them, and that they and their users are active, in one
// statement, and a second one if a user has not been seen for an hour. It leaves no rows in the audit log. It ignores
// devices that have been removed, those of regions, sightings without an endpoint, and those before the last one that
// is recorded.
func (s *Service) Seen(ctx context.Context, sightings []gateway.Sighting) error {
	return s.note(ctx, dbsqlc.NoteDevicesParams{Gateway: s.opts.Server}, sightings)
}

// SeenAt is Seen for the gateway of a region, and the region's devices.
func (s *Service) SeenAt(ctx context.Context, proxy uuid.UUID, sightings []gateway.Sighting) error {
	return s.note(ctx, dbsqlc.NoteDevicesParams{Gateway: "region " + proxy.String(), ProxyID: &proxy}, sightings)
}

func (s *Service) note(ctx context.Context, p dbsqlc.NoteDevicesParams, sightings []gateway.Sighting) error {
	for _, one := range sightings {
		if one.Endpoint.IsValid() {
			p.Ids, p.Endpoints, p.Ats = append(p.Ids, one.Device), append(p.Endpoints,
				gateway.Canonical(one.Endpoint).String()), append(p.Ats, one.At)
		}
	}
	if len(p.Ids) == 0 {
		return nil
	}
	unseen, err := s.opts.DB.NoteDevices(ctx, p)
	if err != nil {
		return fmt.Errorf("record where devices are: %w", err)
	}
	if len(unseen) == 0 {
		return nil
	}
	if err := s.opts.DB.TouchUsers(ctx, unseen); err != nil {
		return fmt.Errorf("record that the users of devices were seen: %w", err)
	}
	return nil
}

// known returns a device as gateways know it. One may have a session of an earlier process of this server if that saw
// it last, and of its region's gateway if that did.
func (s *Service) known(row dbsqlc.UserDevice) gateway.Device {
	d := gateway.Device{ID: row.ID, User: row.UserID, Name: row.Name, Key: wgquick.Key(row.PublicKey)}
	if row.Endpoint != nil {
		d.Endpoint, _ = netip.ParseAddrPort(*row.Endpoint) // zero if it is not one: a gateway replaces it
	}
	if row.EndpointAt != nil && row.Gateway != nil {
		d.Left = (row.ProxyID != nil || *row.Gateway == s.opts.Server) && time.Since(*row.EndpointAt) < sessionLife
	}
	return d
}
