package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// WireGuardGateway is where devices with a WireGuard app reach workspaces.
type WireGuardGateway struct {
	Enabled   bool   `json:"enabled"`
	Address   string `json:"address"`    // HOST:PORT; "" if it is not enabled
	PublicKey string `json:"public_key"` // base64, as `wg pubkey` prints it
	Prefix    string `json:"prefix"`     // the network that the gateway leads to, such as fd00::/48
	DNS       string `json:"dns"`        // the address of the gateway's name server
	MTU       int    `json:"mtu"`        // of the device's interface, in bytes
	// MaxDeviceLifetime is how long a device may connect after it was added, in nanoseconds.
	MaxDeviceLifetime time.Duration `json:"max_device_lifetime"`
	// Regions are the gateways of region proxies that are connected. Devices connect to one of them, or to the
	// server's.
	Regions List[WireGuardRegionGateway] `json:"regions"`
}

// WireGuardRegionGateway is where devices reach workspaces at a region.
type WireGuardRegionGateway struct {
	Region      string `json:"region"`       // name of the region proxy
	DisplayName string `json:"display_name"` // for people
	Address     string `json:"address"`      // HOST:PORT
	PublicKey   string `json:"public_key"`
}

// UserDevice is a device of a user that connects with a WireGuard app.
type UserDevice struct {
	ID         uuid.UUID  `json:"id"`
	Name       string     `json:"name"`
	PublicKey  string     `json:"public_key"` // base64, as `wg pubkey` prints it
	Address    string     `json:"address"`    // of the device's interface
	Region     string     `json:"region"`     // to whose gateway it connects; "": the server's
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // nil: never
	Endpoint   string     `json:"endpoint"`     // ADDRESS:PORT where it was seen last; "": nowhere
}

// CreateUserDeviceRequest adds a device to the caller's account.
type CreateUserDeviceRequest struct {
	Name string `json:"name"`
	// PublicKey is as `wg pubkey` prints it. The private key stays on the device.
	PublicKey string        `json:"public_key"`
	Lifetime  time.Duration `json:"lifetime,omitempty"` // nanoseconds; 0: as long as the deployment allows
	// Region is the name of the region proxy to whose gateway the device connects, which is believed that the device
	// came. "": the server's gateway.
	Region string `json:"region,omitempty"`
}

// UpdateUserDeviceRequest renames a device.
type UpdateUserDeviceRequest struct {
	Name string `json:"name"`
}

// WireGuardGateway returns where the WireGuard gateway is.
func (c *Client) WireGuardGateway(ctx context.Context) (WireGuardGateway, error) {
	return get[WireGuardGateway](ctx, c, "deployment/wireguard-gateway")
}

// UserDevices lists a user's devices by name.
func (c *Client) UserDevices(ctx context.Context, user string) ([]UserDevice, error) {
	return get[[]UserDevice](ctx, c, "users/"+seg(user)+"/devices")
}

func (c *Client) CreateUserDevice(ctx context.Context, user string, req CreateUserDeviceRequest) (UserDevice, error) {
	return send[UserDevice](ctx, c, http.MethodPost, "users/"+seg(user)+"/devices", req)
}

func (c *Client) UpdateUserDevice(
	ctx context.Context, user string, id uuid.UUID, req UpdateUserDeviceRequest,
) (UserDevice, error) {
	return send[UserDevice](ctx, c, http.MethodPatch, "users/"+seg(user)+"/devices/"+id.String(), req)
}

// DeleteUserDevice removes a device by its id. It cannot connect from then on.
func (c *Client) DeleteUserDevice(ctx context.Context, user string, id uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user)+"/devices/"+id.String(), nil, nil)
}
