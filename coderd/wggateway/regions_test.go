package wggateway_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// region makes a region proxy that is connected and has a WireGuard gateway, as far as the database knows.
func (w *world) region(t *testing.T, name string) coderdtest.Region {
	t.Helper()
	made := w.Region(t, name)
	w.Exec(`UPDATE workspace_proxies SET wireguard_address = $2, url = 'http://192.0.2.1', server_id = (SELECT id FROM servers LIMIT 1) WHERE id = $1`,
		made.ID, name+".example.com:51820")
	return made
}

// register adds a device of a user for a region, "" for the servers.
func (w *world) register(t *testing.T, user, name, at string) sdk.UserDevice {
	t.Helper()
	_, public := wireguardtest.NewKey(t)
	var made sdk.UserDevice
	testwait.Until(t, "the device is added", func() (err error) { // once the list of regions is fresh
		made, err = w.As(user).CreateUserDevice(t.Context(), sdk.Me, sdk.CreateUserDeviceRequest{Name: name, PublicKey: wgquick.Key(public).String(), Region: at})
		return err
	})
	return made
}

// open asks as a proxy for a visit, or for a renewal if last is set.
func open(t *testing.T, p coderdtest.Region, node uuid.UUID, last secret.Token, asked region.DeviceVisit) (resp region.VisitResponse, err error) {
	t.Helper()
	return resp, p.PostAsProxy(t.Context(), "device-visits", region.VisitRequest{Device: &asked, Node: node, Visit: last}, &resp)
}

// regional is a world with two regions, and devices for them.
type regional struct {
	*world
	eu, us, stranger coderdtest.Region
	ada, bob         sdk.UserDevice // their devices at eu
	abroad, servers  sdk.UserDevice // ada's, at us and at the servers
	app              netip.AddrPort // in ada's workspace
	node             uuid.UUID
}

// TestDevicesAtRegions: a region is believed about the devices that their users have added for it, and gets for them what the users may reach. Nothing
// else that a region says gets it a device, a name, a visa or a renewal.
func TestDevicesAtRegions(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := &regional{world: w, eu: w.region(t, "eu"), us: w.region(t, "us"), stranger: w.NoRegion(), node: uuid.New()}
	r.ada, r.bob = w.register(t, "ada", "phone", "eu"), w.register(t, "bob", "phone", "EU")
	r.abroad, r.servers = w.register(t, "ada", "tablet", "us"), w.register(t, "ada", "router", "")
	r.app = netip.AddrPortFrom(tailnet.Addr(w.dev), 8000)
	t.Run("devices", r.devices)
	t.Run("keys", r.keys)
	t.Run("visits", func(t *testing.T) {
		first := r.visits(t)
		r.refusals(t)
		r.renewals(t, first)
	})
	t.Run("names", r.names)
	t.Run("sightings", r.sightings)
}

// devices checks which devices a region hears of, and that it does not learn whose they are.
func (r *regional) devices(t *testing.T) {
	var list region.DevicesResponse
	if err := r.eu.PostAsProxy(t.Context(), "devices", struct{}{}, &list); err != nil {
		t.Fatal(err)
	}
	got := map[uuid.UUID]bool{}
	for _, d := range list.Devices {
		got[d.ID] = true
	}
	if len(got) != 2 || !got[r.ada.ID] || !got[r.bob.ID] {
		t.Errorf("the devices of eu are %+v", list)
	}
	for _, d := range list.Devices {
		for _, c := range []struct {
			by   coderdtest.Region
			want []region.Device
		}{{r.eu, []region.Device{d}}, {r.us, []region.Device{}}} { // an alias means nothing at another region
			var one region.DevicesResponse
			err := c.by.PostAsProxy(t.Context(), "devices", region.DevicesRequest{Owner: d.Owner}, &one)
			if diff := cmp.Diff(region.DevicesResponse{Owner: d.Owner, Devices: c.want}, one, cmpopts.EquateComparable(netip.AddrPort{})); err != nil || diff != "" {
				t.Errorf("the devices of an owner, asked by %s: %v (-want +got):\n%s", c.by.ID, err, diff)
			}
		}
		if d.Owner == uuid.Nil || d.Owner == r.User("ada") || d.Owner == r.User("bob") {
			t.Errorf("the region learns whose %s is: %s", d.ID, d.Owner)
		}
	}
	coderdtest.WantCode(t, "no region", r.stranger.PostAsProxy(t.Context(), "devices", struct{}{}, &list), fault.Unauthenticated)
	active, err := r.Devices.Active(t.Context(), uuid.Nil)
	if err != nil || len(active) != 1 || active[0].ID != r.servers.ID {
		t.Errorf("the servers' devices are %+v, %v", active, err)
	}
}

// keys checks that each region has a private key of its own, whose public one users are shown.
func (r *regional) keys(t *testing.T) {
	keys := map[string]bool{}
	for _, p := range []coderdtest.Region{r.eu, r.us} {
		var resp region.WireGuardKeyResponse
		if err := p.PostAsProxy(t.Context(), "wireguard-key", struct{}{}, &resp); err != nil {
			t.Fatal(err)
		}
		keys[wgquick.Public(wgquick.Key(resp.Key)).String()] = true
	}
	shown, err := r.As("ada").WireGuardGateway(t.Context())
	if err != nil || len(shown.Regions) != 2 || len(keys) != 2 || keys[shown.PublicKey] || !keys[shown.Regions[0].PublicKey] || !keys[shown.Regions[1].PublicKey] {
		t.Errorf("the regions have the keys %v, and %+v is shown, %v", keys, shown, err)
	}
	coderdtest.WantCode(t, "no region", r.stranger.PostAsProxy(t.Context(), "wireguard-key", struct{}{}, &region.WireGuardKeyResponse{}), fault.Unauthenticated)
}

// visits opens visits for a device, and checks their visas. It returns the first.
func (r *regional) visits(t *testing.T) (first region.VisitResponse) {
	first, err := open(t, r.eu, r.node, "", region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: r.app})
	if err != nil {
		t.Fatal(err)
	}
	got, err := visa.Open(coderdtest.Token(r.dev).Hash(), first.Visa, time.Now())
	want := visa.Visa{Visit: first.ID, Agent: r.dev, Node: r.node, User: r.User("ada"), Port: 8000, Expires: got.Expires}
	if err != nil || got != want || time.Until(time.Unix(got.Expires, 0)) > visa.Lifetime {
		t.Errorf("the visa is %+v, %v, want %+v", got, err, want)
	}
	for name, c := range map[string]struct {
		port uint16
		want visa.Visa
	}{
		"tcp": {meshport.SSH, visa.Visa{Service: meshport.SSH}}, "udp": {53, visa.Visa{UDP: 53}},
	} {
		resp, err := open(t, r.eu, r.node, "", region.DeviceVisit{Device: r.ada.ID, Network: name, Addr: netip.AddrPortFrom(r.app.Addr(), c.port)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := visa.Open(coderdtest.Token(r.dev).Hash(), resp.Visa, time.Now())
		if err != nil || got.Port != 0 || got.Service != c.want.Service || got.UDP != c.want.UDP {
			t.Errorf("%s %d: the visa is %+v, %v", name, c.port, got, err)
		}
	}
	return first
}

// refusals asks for visits that no device or region may have.
func (r *regional) refusals(t *testing.T) {
	for what, c := range map[string]struct {
		by    coderdtest.Region
		asked region.DeviceVisit
		want  fault.Code
	}{
		"another region's device":     {r.us, region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: r.app}, fault.Unauthenticated},
		"a device of another region":  {r.eu, region.DeviceVisit{Device: r.abroad.ID, Network: "tcp", Addr: r.app}, fault.Unauthenticated},
		"a device of the servers":     {r.eu, region.DeviceVisit{Device: r.servers.ID, Network: "tcp", Addr: r.app}, fault.Unauthenticated},
		"no device":                   {r.eu, region.DeviceVisit{Device: uuid.New(), Network: "tcp", Addr: r.app}, fault.Unauthenticated},
		"no region":                   {r.stranger, region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: r.app}, fault.Unauthenticated},
		"another user's workspace":    {r.eu, region.DeviceVisit{Device: r.bob.ID, Network: "tcp", Addr: r.app}, fault.NotFound},
		"no agent":                    {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: netip.AddrPortFrom(tailnet.Addr(uuid.New()), 80)}, fault.NotFound},
		"an address of no mesh":       {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: netip.MustParseAddrPort("127.0.0.1:22")}, fault.NotFound},
		"no address":                  {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "tcp"}, fault.NotFound},
		"a port of the agent's own":   {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: netip.AddrPortFrom(r.app.Addr(), meshport.AgentRPC)}, fault.Forbidden},
		"the port of sessions":        {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "tcp", Addr: netip.AddrPortFrom(r.app.Addr(), meshport.Session)}, fault.Forbidden},
		"no port":                     {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "udp", Addr: netip.AddrPortFrom(r.app.Addr(), 0)}, fault.Forbidden},
		"a network that there is not": {r.eu, region.DeviceVisit{Device: r.ada.ID, Network: "icmp", Addr: r.app}, fault.Forbidden},
	} {
		resp, err := open(t, c.by, r.node, "", c.asked)
		if coderdtest.WantCode(t, what, err, c.want); resp.Visa != "" {
			t.Errorf("%s: a visa", what)
		}
	}
}

// renewals renews a visit, which only its region, node and device may, and ends it with its device.
func (r *regional) renewals(t *testing.T, first region.VisitResponse) {
	same := region.DeviceVisit{Device: r.ada.ID}
	renewed, err := open(t, r.eu, r.node, first.Visit, same)
	if err != nil || renewed.ID != first.ID || renewed.Visa == "" {
		t.Fatalf("renewed: %+v, %v", renewed, err)
	}
	for what, c := range map[string]struct {
		by     coderdtest.Region
		node   uuid.UUID
		visit  secret.Token
		device uuid.UUID
	}{
		"by another region":  {r.us, r.node, first.Visit, r.ada.ID},
		"for another node":   {r.eu, uuid.New(), first.Visit, r.ada.ID},
		"for another device": {r.eu, r.node, first.Visit, r.bob.ID},
		"tampered":           {r.eu, r.node, first.Visit + "A", r.ada.ID},
		"a visa":             {r.eu, r.node, first.Visa, r.ada.ID},
	} {
		_, err := open(t, c.by, c.node, c.visit, region.DeviceVisit{Device: c.device})
		coderdtest.WantCode(t, what, err, fault.Forbidden)
	}
	if _, err := open(t, r.eu, uuid.Nil, "", same); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("without a node: %v", err)
	}
	if err := r.As("ada").DeleteUserDevice(t.Context(), sdk.Me, r.ada.ID); err != nil {
		t.Fatal(err)
	}
	_, err = open(t, r.eu, r.node, renewed.Visit, same)
	coderdtest.WantCode(t, "of a removed device", err, fault.Unauthenticated)
	same.Ended, same.In, same.Out = "closed by the device", 3, 4 // it may tell how it ended
	if _, err := open(t, r.eu, r.node, renewed.Visit, same); err != nil {
		t.Error(err)
	}
	testwait.Until(t, "the end is in the log",
		r.Counts(1, `SELECT count(*) FROM connection_logs WHERE id = $1 AND disconnect_reason = 'closed by the device' AND bytes_in = 3 AND bytes_out = 4`, first.ID))
}

// names asks for names and addresses, which a device learns of workspaces of its user only.
func (r *regional) names(t *testing.T) {
	name := func(p coderdtest.Region, device uuid.UUID, asked region.DeviceName) (resp region.DeviceName, err error) {
		asked.Device = device
		return resp, p.PostAsProxy(t.Context(), "device-names", asked, &resp)
	}
	bob := tailnet.Addr(r.bobs)
	if got, err := name(r.eu, r.bob.ID, region.DeviceName{Name: "work"}); err != nil || got.Addr != bob {
		t.Errorf("work: %+v, %v", got, err)
	}
	if got, err := name(r.eu, r.bob.ID, region.DeviceName{Addr: bob}); err != nil || got.Name != "main.work.bob.coder" {
		t.Errorf("its address: %+v, %v", got, err)
	}
	_, err := name(r.eu, r.bob.ID, region.DeviceName{Name: "dev.ada"})
	coderdtest.WantCode(t, "another user's workspace", err, fault.NotFound)
	_, err = name(r.eu, r.bob.ID, region.DeviceName{Addr: r.app.Addr()})
	coderdtest.WantCode(t, "its address", err, fault.NotFound)
	_, err = name(r.us, r.bob.ID, region.DeviceName{Name: "work"})
	coderdtest.WantCode(t, "by another region", err, fault.Unauthenticated)
	_, err = name(r.eu, r.servers.ID, region.DeviceName{Name: "dev"})
	coderdtest.WantCode(t, "for a device of the servers", err, fault.Unauthenticated)
}

// sightings reports where devices are, which a region may of its own.
func (r *regional) sightings(t *testing.T) {
	at := netip.MustParseAddrPort("198.51.100.7:1234")
	see := func(p coderdtest.Region, devices ...uuid.UUID) error {
		var s region.Sightings
		for _, d := range devices {
			s.Seen = append(s.Seen, gateway.Sighting{Device: d, Endpoint: at, At: time.Now()})
		}
		return p.PostAsProxy(t.Context(), "device-sightings", s, &struct{}{})
	}
	seen := func(device uuid.UUID) int {
		n := 0
		if err := r.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM user_devices WHERE id = $1 AND endpoint = $2`, device, at.String()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := see(r.eu, r.bob.ID, r.abroad.ID, r.servers.ID); err != nil || seen(r.bob.ID) != 1 || seen(r.abroad.ID) != 0 || seen(r.servers.ID) != 0 {
		t.Errorf("eu has seen devices that are not its own, or not its own: %v", err)
	}
	coderdtest.WantCode(t, "no region", see(r.stranger, r.bob.ID), fault.Unauthenticated)
	coderdtest.WantCode(t, "too many", see(r.eu, make([]uuid.UUID, region.MaxSightings+1)...), fault.Invalid)
}
