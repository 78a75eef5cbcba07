package region

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memo"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

// nameFresh is how long a server's answer about a name or an address counts for a device: programs ask for the same
// ones in a row.
const nameFresh = 2 * time.Second

// WireGuard configures the gateway for devices with a WireGuard app.
type WireGuard struct {
	// Port is the UDP port, on all addresses of the machine. Access is the host and port at which devices reach it.
	Port   uint16
	Access string
	// Resolvers returns the servers to ask about names outside of the mesh, as HOST:PORT. Nil: such questions are
	// refused.
	Resolvers func() ([]string, error)
	// Loaded is called whenever the gateway has compared its devices with the servers'. Nil means it is not.
	Loaded func()
}

// deviceHouse is what the WireGuard gateway asks: it asks the servers.
//
//	device ── WireGuard ──▶ gateway ──Open──▶ server: VisitResponse{Visa} ──dial──▶ mesh ──visa──▶ agent ──▶ localhost
type deviceHouse struct {
	*apps
	wake  *notify.Set[uuid.UUID] // the owners whose devices may be others
	uses  *memo.Cache[deviceUse, VisitResponse]
	names *memo.Cache[DeviceName, DeviceName]

	open map[deviceUse]*visit // guarded by the apps' mutex

	mu    sync.Mutex       // guards the field below
	known []gateway.Device // that may connect
}

// deviceUse is a device's use of a port.
type deviceUse struct {
	device uuid.UUID
	to     gateway.Destination
	from   netip.Addr
}

func newDeviceHouse(a *apps) *deviceHouse {
	return &deviceHouse{
		apps: a, wake: notify.NewSet[uuid.UUID](), open: map[deviceUse]*visit{},
		uses: memo.New[deviceUse, VisitResponse](memo.Options{
			Fresh: answerFresh, Timeout: askTimeout, Max: maxAnswers,
		}),
		names: memo.New[DeviceName, DeviceName](memo.Options{Fresh: nameFresh, Timeout: askTimeout, Max: maxAnswers}),
	}
}

// forget drops what the servers have answered, and has them asked which devices there are of some owners, nil for all.
func (h *deviceHouse) forget(owners []uuid.UUID) {
	h.uses.Forget(func(deviceUse, VisitResponse) bool { return true })
	h.names.Forget(func(DeviceName, DeviceName) bool { return true })
	if len(owners) == 0 {
		owners = []uuid.UUID{uuid.Nil}
	}
	h.wake.Add(owners...)
}

// serveWireGuard serves devices until ctx ends. It waits for the private key and the devices, which a server has.
func (a *apps) serveWireGuard(ctx context.Context, opts WireGuard) error {
	var key wireguard.Key
	ask := func() (err error) {
		key, err = a.askWireGuardKey(ctx)
		return err
	}
	if a.insist(ctx, "the key of the WireGuard gateway", ask) != nil {
		return nil // the proxy ends
	}
	g := gateway.New(gateway.Options{Logger: a.log, PrivateKey: key, House: a.devices, Resolvers: opts.Resolvers})
	defer g.Stop()
	if err := g.Listen(ctx, opts.Port); err != nil {
		return fault.New(fault.Unavailable, "The WireGuard address %s cannot be used: %w", opts.Access, err)
	}
	loads := []func() error{func() error { return g.Load(ctx) }}
	for {
		for _, load := range loads {
			if a.insist(ctx, "the devices of the WireGuard gateway", load) != nil {
				return nil
			}
		}
		if opts.Loaded != nil {
			opts.Loaded()
		}
		select {
		case <-a.devices.wake.Wake:
		case <-ctx.Done():
			return nil
		}
		loads = nil
		for _, owner := range a.devices.wake.Take() {
			loads = append(loads, func() error {
				err := g.Recheck(ctx, owner)
				if errors.Is(err, errEarlier) {
					err = g.Recheck(ctx, uuid.Nil)
				}
				return err
			})
		}
	}
}

// insist asks the servers for something until one answers. It fails only when ctx ends.
func (a *apps) insist(ctx context.Context, what string, ask func() error) error {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			a.log.Warn("the servers do not answer, asking again", "what", what, "err", err)
		}
		if err := retry.Wait(ctx); err != nil {
			return err
		}
	}
}

func (a *apps) askWireGuardKey(ctx context.Context) (key wireguard.Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var resp WireGuardKeyResponse
	if err := a.server.AskAsProxy(ctx, wireGuardKey, struct{}{}, &resp); err != nil {
		return key, err
	}
	if len(resp.Key) != len(key) {
		return key, errors.New("the server's answer contains no private key")
	}
	return wireguard.Key(resp.Key), nil
}

// errEarlier reports that a server of an earlier version has listed all devices instead of an owner's.
var errEarlier = errors.New("the server lists no devices of one owner")

// Devices implements gateway.House. The servers do not say whose a device is: its user is an alias, which servers of an
// earlier version leave out.
func (h *deviceHouse) Devices(ctx context.Context, owner uuid.UUID) ([]gateway.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var resp DevicesResponse
	if err := h.server.AskAsProxy(ctx, devices, DevicesRequest{owner}, &resp); err != nil {
		return nil, err
	}
	if resp.Owner != owner {
		return nil, errEarlier
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	owners := make(map[uuid.UUID]uuid.UUID, len(h.known))
	for _, d := range h.known {
		owners[d.ID] = d.User
	}
	list := make([]gateway.Device, len(resp.Devices))
	for i, d := range resp.Devices {
		if len(d.Key) != len(wireguard.Key{}) {
			return nil, fmt.Errorf("the server's answer contains no key of device %s", d.ID)
		}
		list[i] = gateway.Device{
			ID: d.ID, User: cmp.Or(d.Owner, owners[d.ID]), Name: d.Name, Key: wireguard.Key(d.Key),
			Endpoint: d.Endpoint, Left: d.Left,
		}
	}
	h.known = slices.DeleteFunc(h.known, func(d gateway.Device) bool { return owner == uuid.Nil || d.User == owner })
	h.known = append(h.known, list...)
	return list, nil
}

// AtEndpoint implements gateway.House.
func (h *deviceHouse) AtEndpoint(_ context.Context, at netip.AddrPort) (there []gateway.Device, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.known {
		if gateway.Canonical(d.Endpoint) == gateway.Canonical(at) {
			there = append(there, d)
		}
	}
	return there, nil
}

// Seen implements gateway.House.
func (h *deviceHouse) Seen(ctx context.Context, sightings []gateway.Sighting) error {
	at := make(map[uuid.UUID]netip.AddrPort, len(sightings))
	for _, s := range sightings {
		at[s.Device] = s.Endpoint
	}
	h.mu.Lock()
	for i, d := range h.known {
		if endpoint, ok := at[d.ID]; ok {
			h.known[i].Endpoint = endpoint
		}
	}
	h.mu.Unlock()
	for batch := range slices.Chunk(sightings, MaxSightings) {
		if err := h.server.AskAsProxy(ctx, seenDevices, Sightings{batch}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// askName asks what a name means to a device, or what name an address has.
func (h *deviceHouse) askName(ctx context.Context, what DeviceName) (DeviceName, error) {
	return h.names.Get(ctx, what, func(ctx context.Context) (resp DeviceName, err error) {
		return resp, h.server.AskAsProxy(ctx, deviceNames, what, &resp)
	})
}

// MayReach implements gateway.House.
func (h *deviceHouse) MayReach(ctx context.Context, d gateway.Device, addr netip.Addr) error {
	_, err := h.Host(ctx, d, addr)
	return err
}

// Find implements gateway.House.
func (h *deviceHouse) Find(ctx context.Context, d gateway.Device, name string) (netip.Addr, error) {
	resp, err := h.askName(ctx, DeviceName{Device: d.ID, Name: name})
	return resp.Addr, err
}

// Host implements gateway.House.
func (h *deviceHouse) Host(ctx context.Context, d gateway.Device, addr netip.Addr) (string, error) {
	resp, err := h.askName(ctx, DeviceName{Device: d.ID, Addr: addr})
	return resp.Name, err
}

// Open implements gateway.House.
func (h *deviceHouse) Open(ctx context.Context, d gateway.Device, to gateway.Destination) (gateway.Session, error) {
	v, token, err := h.enter(ctx, deviceUse{d.ID, to, gateway.Canonical(d.Endpoint).Addr()})
	if err != nil {
		return nil, err
	}
	conn, err := h.dial(ctx, v.agent, visa.OpenPort, token)
	if err != nil {
		h.leave(v)
		return nil, err
	}
	if to.Network == "udp" {
		conn = netio.Datagrams(conn)
	}
	return &deviceSession{house: h, visit: v, conn: conn}, nil
}

// enter counts one more use of a port, and returns its visit and visa. The servers are asked about the first.
func (h *deviceHouse) enter(ctx context.Context, use deviceUse) (*visit, secret.Token, error) {
	h.apps.mu.Lock()
	v, token := h.again(h.open[use])
	h.apps.mu.Unlock()
	if v != nil {
		return v, token, nil
	}
	resp, err := h.uses.Get(ctx, use, func(ctx context.Context) (VisitResponse, error) {
		asked := DeviceVisit{Device: use.device, Network: use.to.Network, Addr: use.to.Addr}
		return h.ask(ctx, VisitRequest{Device: &asked, Addr: use.from})
	})
	if err != nil {
		return nil, "", err
	}
	if resp.Visa == "" || resp.Agent == uuid.Nil {
		return nil, "", fault.New(fault.Unavailable, "The server's answer contains no visa.")
	}
	node, err := h.join().Node()
	if err != nil {
		return nil, "", err
	}
	h.apps.mu.Lock()
	defer h.apps.mu.Unlock()
	if h.life.Err() != nil {
		return nil, "", errStopping()
	}
	if v, token = h.again(h.visits[resp.ID]); v != nil { // others have waited for the same answer
		return v, token, nil
	}
	v = h.begin("port", question{addr: use.from}, resp.Agent, resp)
	v.requests = 1
	v.renew = func() VisitRequest { return VisitRequest{Device: &DeviceVisit{Device: use.device}} }
	h.open[use] = v
	h.working.Go(func() {
		h.keep(v)
		h.closed(v, use, node.ID())
	})
	return v, v.visa, nil
}

// again counts one more use of a visit, unless there is none that goes on. Called with the apps' mutex held.
func (h *deviceHouse) again(v *visit) (*visit, secret.Token) {
	if v == nil || v.ctx.Err() != nil {
		return nil, ""
	}
	v.requests++
	return v, v.visa
}

func (h *deviceHouse) leave(v *visit) {
	h.apps.mu.Lock()
	defer h.apps.mu.Unlock()
	v.requests--
	v.left = time.Now()
}

// closed forgets a device's visit that has ended, and reports that.
func (h *deviceHouse) closed(v *visit, use deviceUse, node uuid.UUID) {
	h.apps.mu.Lock()
	renewal := v.renewal
	if h.open[use] == v {
		delete(h.open, use)
	}
	h.apps.mu.Unlock()
	reason := "closed by the device"
	switch f := fault.As(context.Cause(v.ctx)); {
	case f != nil:
		reason = f.Message
	case h.life.Err() != nil:
		reason = "the region proxy stopped"
	}
	h.report(v, deviceVisits, VisitRequest{
		Device: &DeviceVisit{Device: use.device, Ended: reason, In: v.in.Load(), Out: v.out.Load()}, Visit: renewal,
		Node: node, Addr: v.from.addr,
	})
}

// deviceSession is an open connection or flow of a device.
type deviceSession struct {
	house *deviceHouse
	visit *visit
	conn  net.Conn
	begun bool
	ended sync.Once
}

// Context implements gateway.Session.
func (s *deviceSession) Context() context.Context { return s.visit.ctx }

// Check implements gateway.Session. The visit's renewal, which is asked for at the same time, tells whether it may go
// on.
func (s *deviceSession) Check(context.Context) error { return nil }

// Begin implements gateway.Session.
func (s *deviceSession) Begin() net.Conn {
	s.begun = true
	return countedConn{s.conn, &s.visit.in, &s.visit.out}
}

// End implements gateway.Session.
func (s *deviceSession) End(error) {
	s.ended.Do(func() {
		if !s.begun {
			s.conn.Close()
		}
		s.house.leave(s.visit)
	})
}
