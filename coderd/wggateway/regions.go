package wggateway

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

// The gateway of a region proxy asks these questions. Each is about a device that its user has added for that region,
// which the servers believe about it, and is answered with the rights that the user has at the moment
// (docs/decisions/0064-credentials-at-regions.md).

// purposeVisit is that of signed renewals.
const purposeVisit = "device visit"

// Regions are the region proxies.
type Regions interface {
	Authenticate(ctx context.Context, token secret.Token) (regions.Proxy, error)
	// Grant lets a proxy's node be introduced to an agent for a while.
	Grant(ctx context.Context, proxy regions.Proxy, node, agent uuid.UUID, lifetime time.Duration) error
}

// Aliases are what region proxies call users: see hostkeys.Keys.
type Aliases interface {
	Alias(proxy, user uuid.UUID) uuid.UUID
	User(proxy, alias uuid.UUID) uuid.UUID
}

// Signer signs renewals.
type Signer interface {
	Sign(purpose string, content any, lifetime time.Duration) (secret.Token, error)
	Verify(purpose string, token secret.Token, content any) error
}

// regionVisit is the content of a renewal: what a device has open, and since when.
type regionVisit struct {
	ID     uuid.UUID `json:"v"`
	Proxy  uuid.UUID `json:"x"`
	Node   uuid.UUID `json:"n"`
	Device uuid.UUID `json:"d"`
	User   uuid.UUID `json:"o"`
	Name   string    `json:"l"` // of the device
	Agent  uuid.UUID `json:"a"`
	TCP    uint16    `json:"p,omitempty"`
	UDP    uint16    `json:"u,omitempty"`
	Since  time.Time `json:"t"`
}

// Routes registers the routes for region proxies, which show their tokens: they are not users.
func (g *Gateway) Routes(mux *httpapi.Mux) {
	uncounted, reads := httpapi.Uncounted("region proxies ask often"), audit.Exempt("it reads")
	mux.Handle("POST "+region.WireGuardKeyPath, rbac.Public, g.regionKey, uncounted, reads)
	mux.Handle("POST "+region.DevicesPath, rbac.Public, g.regionDevices, uncounted, reads)
	mux.Handle("POST "+region.DeviceNamesPath, rbac.Public, g.regionNames, uncounted, reads)
	mux.Handle("POST "+region.SightingsPath, rbac.Public, g.regionSightings, uncounted,
		audit.Exempt("sightings of devices are no changes of them"))
	mux.Handle("POST "+region.DeviceVisitsPath, rbac.Public, g.openAtRegion, uncounted,
		audit.Exempt("the connection log records visits"))
}

// asked returns the proxy that sends a request, and reads the request.
func (g *Gateway) asked(w http.ResponseWriter, r *http.Request, req any) (regions.Proxy, error) {
	proxy, err := g.opts.Regions.Authenticate(r.Context(), secret.Token(r.Header.Get(sdk.ProxyTokenHeader)))
	if err != nil {
		return proxy, err
	}
	return proxy, httpapi.Read(w, r, req)
}

// regionKey gives a proxy the private key of its own gateway.
func (g *Gateway) regionKey(w http.ResponseWriter, r *http.Request) error {
	proxy, err := g.asked(w, r, &struct{}{})
	if err != nil {
		return err
	}
	key := g.opts.RegionKey(proxy.ID)
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, region.WireGuardKeyResponse{Key: key[:]})
}

// regionDevices lists the devices that may connect to a proxy, or those of one owner.
func (g *Gateway) regionDevices(w http.ResponseWriter, r *http.Request) error {
	var req region.DevicesRequest
	proxy, err := g.asked(w, r, &req)
	if err != nil {
		return err
	}
	var user uuid.UUID
	if req.Owner != uuid.Nil {
		user = g.opts.Aliases.User(proxy.ID, req.Owner)
	}
	list, err := g.opts.Devices.ActiveAt(r.Context(), proxy.ID, user)
	if err != nil {
		return err
	}
	out := region.DevicesResponse{Owner: req.Owner, Devices: []region.Device{}}
	for _, d := range list {
		out.Devices = append(out.Devices, region.Device{
			ID: d.ID, Owner: g.opts.Aliases.Alias(proxy.ID, d.User), Name: d.Name, Key: d.Key[:],
			Endpoint: d.Endpoint, Left: d.Left,
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// regionSightings stores where a proxy has seen its devices.
func (g *Gateway) regionSightings(w http.ResponseWriter, r *http.Request) error {
	var req region.Sightings
	proxy, err := g.asked(w, r, &req)
	if err != nil {
		return err
	}
	if len(req.Seen) > region.MaxSightings {
		return fault.New(fault.Invalid, "The region proxy reports more than %d sightings.", region.MaxSightings)
	}
	if err := g.opts.Devices.SeenAt(r.Context(), proxy.ID, req.Seen); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, struct{}{})
}

// regionNames tells a proxy what a name means to a device, or which name an address has that the device may reach.
func (g *Gateway) regionNames(w http.ResponseWriter, r *http.Request) error {
	var req region.DeviceName
	proxy, err := g.asked(w, r, &req)
	if err != nil {
		return err
	}
	ctx := r.Context()
	d, err := g.opts.Devices.FindAt(ctx, req.Device, proxy.ID)
	if err != nil {
		return err
	}
	var out region.DeviceName
	if req.Name != "" {
		out.Addr, err = house{g}.Find(ctx, d, req.Name)
	} else {
		out.Name, err = house{g}.Host(ctx, d, req.Addr)
	}
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// openAtRegion lets a proxy reach one port of one agent for a device, for the lifetime of a visa.
func (g *Gateway) openAtRegion(w http.ResponseWriter, r *http.Request) error {
	var req region.VisitRequest
	proxy, err := g.asked(w, r, &req)
	if err != nil {
		return err
	}
	if req.Device == nil || req.Node == uuid.Nil {
		return fault.New(fault.Invalid, "The region proxy names no device or no node.")
	}
	ctx, asked := r.Context(), req.Device
	var v regionVisit
	if req.Visit != "" {
		err := g.opts.Signer.Verify(purposeVisit, req.Visit, &v)
		if err != nil || v.Proxy != proxy.ID || v.Node != req.Node || v.Device != asked.Device {
			return fault.New(fault.Forbidden, "The visit has ended.")
		}
		if asked.Ended != "" {
			g.opts.Connections.Report(v.ID, v.Since, v.connection(proxy, req), &audit.Ended{
				Reason: asked.Ended, In: asked.In, Out: asked.Out,
			})
			return httpapi.Write(w, http.StatusOK, region.VisitResponse{})
		}
	}
	d, err := g.opts.Devices.FindAt(ctx, asked.Device, proxy.ID)
	if err != nil {
		return err
	}
	if req.Visit == "" {
		if v, err = g.begins(proxy, d, req); err != nil {
			return err
		}
	}
	if err := g.admit(ctx, d.User, v.Agent); err != nil {
		if req.Visit != "" {
			return err // it ends
		}
		return g.opts.Connections.Refused(v.connection(proxy, req), err)
	}
	resp, err := g.grant(ctx, proxy, v)
	if err != nil {
		return err
	}
	if req.Visit == "" {
		g.opts.Connections.Report(v.ID, v.Since, v.connection(proxy, req), nil)
	} else if err := g.opts.Connections.Confirm(ctx, v.ID); err != nil {
		g.opts.Logger.WarnContext(ctx, "cannot confirm a connection through a region", "agent", v.Agent, "err", err)
	}
	return httpapi.Write(w, http.StatusOK, resp)
}

// begins returns the visit that a request asks for, to a port that a device may open.
func (g *Gateway) begins(proxy regions.Proxy, d gateway.Device, req region.VisitRequest) (regionVisit, error) {
	to := req.Device.Addr
	agent, ok := g.opts.Mesh.CallingAgent(to.Addr())
	if !ok {
		return regionVisit{}, fault.New(fault.NotFound, "No agent has the address %s.", to.Addr())
	}
	v := regionVisit{
		ID: uuid.New(), Proxy: proxy.ID, Node: req.Node, Device: d.ID, User: d.User, Name: d.Name, Agent: agent,
		Since: time.Now(),
	}
	switch {
	case req.Device.Network == "udp" && to.Port() != 0:
		v.UDP = to.Port()
	case req.Device.Network == "tcp" && to.Port() != 0 && !meshport.Reserved(to.Port()):
		v.TCP = to.Port()
	default:
		return v, fault.New(fault.Forbidden, "The port is not the workspace's.")
	}
	return v, nil
}

// grant makes a visa, and lets the proxy's node be introduced to the agent as long.
func (g *Gateway) grant(
	ctx context.Context, proxy regions.Proxy, v regionVisit,
) (resp region.VisitResponse, err error) {
	resp = region.VisitResponse{ID: v.ID, Agent: v.Agent}
	key, err := g.opts.Agents.VisaKey(ctx, v.Agent)
	if err != nil {
		return resp, err
	}
	signed := visa.Visa{
		Visit: v.ID, Agent: v.Agent, Node: v.Node, User: v.User, Port: v.TCP, UDP: v.UDP,
		Expires: time.Now().Add(visa.Lifetime).Unix(),
	}
	if v.TCP == meshport.SSH { // the agent's SSH, as on the mesh, and not what listens in the workspace
		signed.Port, signed.Service = 0, meshport.SSH
	}
	if resp.Visa, err = visa.Sign(key, signed); err != nil {
		return resp, err
	}
	if resp.Visit, err = g.opts.Signer.Sign(purposeVisit, v, 2*visa.Lifetime); err != nil {
		return resp, err
	}
	return resp, g.opts.Regions.Grant(ctx, proxy, v.Node, v.Agent, visa.Lifetime)
}

// connection describes the visit for the connection log.
func (v regionVisit) connection(proxy regions.Proxy, req region.VisitRequest) audit.Connection {
	return connection(v.Agent, v.User, v.Name, v.TCP+v.UDP, req.Addr, proxy.Name)
}
