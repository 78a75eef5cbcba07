package devices

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func (s *Service) gateway(w http.ResponseWriter, r *http.Request) error {
	out := s.opts.Gateway
	gateways, err := s.opts.Regions.WireGuardGateways(r.Context())
	if err != nil {
		return err
	}
	out.Regions = sdk.List[sdk.WireGuardRegionGateway]{}
	for _, at := range gateways {
		out.Regions = append(out.Regions, sdk.WireGuardRegionGateway{
			Region: at.Name, DisplayName: at.DisplayName, Address: at.Address,
			PublicKey: wgquick.Public(s.opts.RegionKey(at.Proxy)).String(),
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// at returns the gateway of a connected region with a name.
func (s *Service) at(ctx context.Context, name string) (regions.Gateway, error) {
	gateways, err := s.opts.Regions.WireGuardGateways(ctx)
	if err != nil {
		return regions.Gateway{}, err
	}
	for _, g := range gateways {
		if strings.EqualFold(g.Name, name) {
			return g, nil
		}
	}
	return regions.Gateway{}, unknownRegion()
}

func unknownRegion() error {
	return fault.New(fault.Invalid, "The device cannot be added.").
		WithField("region",
			"must be the name of a region that is connected and has a WireGuard gateway, or empty for the server's")
}

func (s *Service) all(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.UserDevice)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListUserDevices(r.Context(), user.ID)
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	out := sdk.List[sdk.UserDevice]{}
	for _, row := range rows {
		out = append(out, show(row.UserDevice, row.Region))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Create, rbac.UserDevice)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	if actor.Scope.Limited() {
		return fault.New(fault.Forbidden, "A token with limited scopes cannot add a device, which has no limits.").
			WithDetail("This token has the scopes %s. Sign in with: coder login <url>", actor.Scope)
	}
	var req sdk.CreateUserDeviceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	proxy, gateway, err := s.target(r.Context(), &req)
	if err != nil {
		return err
	}
	key, err := s.check(&req, gateway)
	if err != nil {
		return err
	}
	row, err := s.insert(r.Context(), user, key, proxy, req)
	if err != nil {
		return err
	}
	s.opts.Changed(r.Context(), user.ID)
	s.log.InfoContext(r.Context(), "device added", "user", user.Username, "key", key)
	return httpapi.Write(w, http.StatusCreated, show(row, req.Region))
}

// target returns the region that a device is to connect to, or nil for the servers, and the public key of the gateway
// there. It writes the region's name as the region does. It refuses what has no gateway.
func (s *Service) target(
	ctx context.Context, req *sdk.CreateUserDeviceRequest,
) (proxy *uuid.UUID, key string, err error) {
	if req.Region != "" {
		at, err := s.at(ctx, req.Region)
		req.Region = at.Name
		return &at.Proxy, wgquick.Public(s.opts.RegionKey(at.Proxy)).String(), err
	}
	if !s.opts.Gateway.Enabled {
		return nil, "", fault.New(fault.Conflict, "This deployment has no WireGuard gateway that devices could connect to.").
			WithDetail("Its operator enables one with coder server --wireguard-address :51820. If a region has one, name it: coder devices add NAME --region REGION")
	}
	return nil, s.opts.Gateway.PublicKey, nil
}

// check returns the key of a request to a gateway, and completes the request. Its error is a fault, which repeats
// nothing of the request.
func (s *Service) check(req *sdk.CreateUserDeviceRequest, gateway string) (wgquick.Key, error) {
	key, err := wgquick.ParseKey(req.PublicKey)
	if f := fault.As(err); f != nil {
		return key, f.WithField("public_key", "must be a public key of WireGuard")
	}
	f := fault.New(fault.Invalid, "The device cannot be added.")
	if key.String() == gateway {
		f = f.WithField("public_key", "is the gateway's: use the public key of the device")
	}
	if problem := checkName(&req.Name); problem != "" {
		f = f.WithField("name", problem)
	}
	req.Lifetime = cmp.Or(req.Lifetime, s.opts.MaxLifetime)
	if req.Lifetime < MinLifetime || req.Lifetime > s.opts.MaxLifetime {
		f = f.WithField("lifetime",
			fmt.Sprintf("must be between %s and %s, or 0 for the longest time", MinLifetime, s.opts.MaxLifetime))
	}
	if len(f.Fields) > 0 {
		return key, f
	}
	return key, nil
}

// checkName trims a name, and returns what is wrong with it, or "". Names of devices obey the rules of names of SSH
// keys.
func checkName(name *string) string {
	*name = strings.TrimSpace(*name)
	return sshkey.CheckName(*name)
}

// insert stores a checked device, in place of an expired one of the user's that has its name or its key.
func (s *Service) insert(
	ctx context.Context, user dbsqlc.User, key wgquick.Key, proxy *uuid.UUID, req sdk.CreateUserDeviceRequest,
) (row dbsqlc.UserDevice, err error) {
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		// One device of a user is added at a time, so that the limit holds, and none to a user who is being deleted.
		if _, err := q.LockUser(ctx, user.ID); err != nil {
			return lookup.Fault(err, rbac.User, "lock user")
		}
		if err := q.FreeUserDevices(ctx, dbsqlc.FreeUserDevicesParams{
			UserID: user.ID, Name: req.Name, PublicKey: key[:],
		}); err != nil {
			return fmt.Errorf("remove expired device: %w", err)
		}
		n, err := q.CountUserDevices(ctx, user.ID)
		if err != nil {
			return fmt.Errorf("count devices: %w", err)
		}
		if n >= MaxDevices {
			return fault.New(fault.Conflict, "You already have %d devices, as many as you can have.", n).
				WithDetail("Remove one first with: coder devices remove NAME")
		}
		// An id of its own for each registration: a key that was removed and comes back gets another address.
		row, err = q.InsertUserDevice(ctx, dbsqlc.InsertUserDeviceParams{
			ID: uuid.New(), UserID: user.ID, Name: req.Name, PublicKey: key[:], ProxyID: proxy,
			LifetimeSeconds: int64(req.Lifetime / time.Second),
		})
		if database.IsForeignKeyViolation(err, "user_devices_proxy_id_fkey") { // the region was deleted meanwhile
			return unknownRegion()
		}
		if err != nil {
			return taken(err, req.Name)
		}
		if err := audit.Record(ctx, q, audit.OfDevice(user, dbsqlc.UserDevice{}, row, req.Region)); err != nil {
			return err
		}
		return s.notifyAdded(ctx, q, user, row)
	})
	return row, err
}

// notifyAdded notifies the user of a new device, so that they notice one that they did not add.
func (s *Service) notifyAdded(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, row dbsqlc.UserDevice) error {
	const layout = "2 January 2006, 15:04 UTC"
	from := "an unknown address"
	if addr := httpapi.ClientAddr(ctx); addr.IsValid() {
		from = addr.String()
	}
	return s.opts.Notifications.Record(ctx, q, notifications.Event{
		Template: notifications.DeviceAdded, To: []uuid.UUID{user.ID}, Targets: []uuid.UUID{row.ID},
		Labels: map[string]string{
			"device": row.Name, "address": from, "time": row.CreatedAt.UTC().Format(layout), "expires": row.ExpiresAt.UTC().Format(layout),
		},
	})
}

// taken returns the fault for a name that the user has already, or for a key that any user has. It does not say which
// user.
func taken(err error, name string) error {
	switch {
	case database.IsUniqueViolation(err, "user_devices_name"):
		return fault.New(fault.Conflict, "You already have a device named %q.", name).WithField("name", "is taken")
	case database.IsUniqueViolation(err, "user_devices_public_key"):
		return fault.New(fault.Conflict, "This public key is already registered, and a key can be registered once.").
			WithDetail("If it is not among your own devices, create another one with: wg genkey | tee private | wg pubkey").WithField("public_key", "is registered")
	}
	return fmt.Errorf("store device: %w", err)
}

// find returns the device in the path, if it is the user's.
func find(
	ctx context.Context, q *dbsqlc.Queries, r *http.Request, user dbsqlc.User,
) (row dbsqlc.GetUserDeviceRow, err error) {
	id, err := uuid.Parse(r.PathValue("device"))
	if err != nil {
		return row, rbac.NotFound(rbac.UserDevice)
	}
	if row, err = q.GetUserDevice(ctx, dbsqlc.GetUserDeviceParams{ID: id, UserID: user.ID}); err != nil {
		return row, lookup.Fault(err, rbac.UserDevice, "read device")
	}
	return row, nil
}

func (s *Service) update(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Update, rbac.UserDevice)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserDeviceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if problem := checkName(&req.Name); problem != "" {
		return fault.New(fault.Invalid, "The device cannot be renamed.").WithField("name", problem)
	}
	ctx := r.Context()
	var after dbsqlc.UserDevice
	var region string
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		found, err := find(ctx, q, r, user)
		if err != nil {
			return err
		}
		before := found.UserDevice
		region = found.Region
		after, err = q.RenameUserDevice(ctx, dbsqlc.RenameUserDeviceParams{
			ID: before.ID, UserID: user.ID, Name: req.Name,
		})
		switch {
		case database.IsNotFound(err): // another request removed it meanwhile
			return rbac.NotFound(rbac.UserDevice)
		case err != nil:
			return taken(err, req.Name)
		}
		return audit.Record(ctx, q, audit.OfDevice(user, before, after, region))
	})
	if err != nil {
		return err
	}
	s.opts.Changed(ctx, user.ID)
	return httpapi.Write(w, http.StatusOK, show(after, region))
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Delete, rbac.UserDevice)
	if err != nil {
		return err
	}
	ctx := r.Context()
	var row dbsqlc.UserDevice
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		found, err := find(ctx, q, r, user)
		if err != nil {
			return err
		}
		row = found.UserDevice
		n, err := q.DeleteUserDevice(ctx, dbsqlc.DeleteUserDeviceParams{ID: row.ID, UserID: user.ID})
		switch {
		case err != nil:
			return fmt.Errorf("delete device: %w", err)
		case n == 0: // another request was faster
			return rbac.NotFound(rbac.UserDevice)
		}
		return audit.Record(ctx, q, audit.OfDevice(user, row, dbsqlc.UserDevice{}, found.Region))
	})
	if err != nil {
		return err
	}
	s.opts.Changed(ctx, user.ID)
	s.log.InfoContext(ctx, "device removed", "user", user.Username, "key", wgquick.Key(row.PublicKey))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func show(row dbsqlc.UserDevice, region string) sdk.UserDevice {
	out := sdk.UserDevice{
		ID: row.ID, Name: row.Name, Region: region, PublicKey: wgquick.Key(row.PublicKey).String(),
		Address:   tailnet.Addr(row.ID).String(),
		CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt, LastUsedAt: row.LastUsedAt,
	}
	if row.Endpoint != nil {
		out.Endpoint = *row.Endpoint
	}
	return out
}
