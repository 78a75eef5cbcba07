package wggateway_test

import (
	"net/http"
	"net/netip"
	"strings"
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

// proxy is a client with the token of a region proxy, which asks what it likes.
type proxy struct {
	*sdk.Client
	id uuid.UUID
}

// proxy makes a region proxy that is connected and has a WireGuard gateway, as far as the database knows.
func (w *world) proxy(t *testing.T, name string) proxy {
	t.Helper()
	made, err := w.As("olga").CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(`UPDATE workspace_proxies SET wireguard_address = $2, url = 'http://192.0.2.1', server_id = (SELECT id FROM servers LIMIT 1) WHERE id = $1`,
		made.Proxy.ID, name+".example.com:51820")
	return proxy{sdk.New(w.URL, "", sdk.Options{Header: http.Header{sdk.ProxyTokenHeader: {made.Token}}}), made.Proxy.ID}
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
func (p proxy) open(t *testing.T, node uuid.UUID, last secret.Token, asked region.DeviceVisit) (resp region.VisitResponse, err error) {
	t.Helper()
	return resp, p.PostAsProxy(t.Context(), "device-visits", region.VisitRequest{Device: &asked, Node: node, Visit: last}, &resp)
}

func wantCode(t *testing.T, what string, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// TestDevicesAtRegions: a region is believed about the devices that their users have added for it, and gets for them what the users may reach. Nothing
// else that a region says gets it a device, a name, a visa or a renewal.
func TestDevicesAtRegions(t *testing.T) {
	t.Parallel()
	w := start(t)
	eu, us := w.proxy(t, "eu"), w.proxy(t, "us")
	stranger := proxy{Client: sdk.New(w.URL, "", sdk.Options{Header: http.Header{sdk.ProxyTokenHeader: {"cmwp_" + strings.Repeat("x", 43)}}})}
	adas, bobs := w.register(t, "ada", "phone", "eu"), w.register(t, "bob", "phone", "EU")
	abroad, servers := w.register(t, "ada", "tablet", "us"), w.register(t, "ada", "router", "")
	dev := netip.AddrPortFrom(tailnet.Addr(w.dev), 8000)
	node := uuid.New()

	t.Run("devices", func(t *testing.T) {
		var list region.DevicesResponse
		if err := eu.PostAsProxy(t.Context(), "devices", struct{}{}, &list); err != nil {
			t.Fatal(err)
		}
		got := map[uuid.UUID]bool{}
		for _, d := range list.Devices {
			got[d.ID] = true
		}
		if len(got) != 2 || !got[adas.ID] || !got[bobs.ID] {
			t.Errorf("the devices of eu are %+v", list)
		}
		for _, d := range list.Devices {
			for _, c := range []struct {
				by   proxy
				want []region.Device
			}{{eu, []region.Device{d}}, {us, []region.Device{}}} { // an alias means nothing at another region
				var one region.DevicesResponse
				err := c.by.PostAsProxy(t.Context(), "devices", region.DevicesRequest{Owner: d.Owner}, &one)
				if diff := cmp.Diff(region.DevicesResponse{Owner: d.Owner, Devices: c.want}, one, cmpopts.EquateComparable(netip.AddrPort{})); err != nil || diff != "" {
					t.Errorf("the devices of an owner, asked by %s: %v (-want +got):\n%s", c.by.id, err, diff)
				}
			}
			if d.Owner == uuid.Nil || d.Owner == w.User("ada") || d.Owner == w.User("bob") {
				t.Errorf("the region learns whose %s is: %s", d.ID, d.Owner)
			}
		}
		wantCode(t, "no region", stranger.PostAsProxy(t.Context(), "devices", struct{}{}, &list), fault.Unauthenticated)
		active, err := w.Devices.Active(t.Context(), uuid.Nil)
		if err != nil || len(active) != 1 || active[0].ID != servers.ID {
			t.Errorf("the servers' devices are %+v, %v", active, err)
		}
	})
	t.Run("keys", func(t *testing.T) {
		keys := map[string]bool{}
		for _, p := range []proxy{eu, us} {
			var resp region.WireGuardKeyResponse
			if err := p.PostAsProxy(t.Context(), "wireguard-key", struct{}{}, &resp); err != nil {
				t.Fatal(err)
			}
			keys[wgquick.Public(wgquick.Key(resp.Key)).String()] = true
		}
		shown, err := w.As("ada").WireGuardGateway(t.Context())
		if err != nil || len(shown.Regions) != 2 || len(keys) != 2 || keys[shown.PublicKey] || !keys[shown.Regions[0].PublicKey] || !keys[shown.Regions[1].PublicKey] {
			t.Errorf("the regions have the keys %v, and %+v is shown, %v", keys, shown, err)
		}
		wantCode(t, "no region", stranger.PostAsProxy(t.Context(), "wireguard-key", struct{}{}, &region.WireGuardKeyResponse{}), fault.Unauthenticated)
	})
	t.Run("visits", func(t *testing.T) {
		first, err := eu.open(t, node, "", region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: dev})
		if err != nil {
			t.Fatal(err)
		}
		got, err := visa.Open(coderdtest.Token(w.dev).Hash(), first.Visa, time.Now())
		want := visa.Visa{Visit: first.ID, Agent: w.dev, Node: node, User: w.User("ada"), Port: 8000, Expires: got.Expires}
		if err != nil || got != want || time.Until(time.Unix(got.Expires, 0)) > visa.Lifetime {
			t.Errorf("the visa is %+v, %v, want %+v", got, err, want)
		}
		for name, c := range map[string]struct {
			port uint16
			want visa.Visa
		}{
			"tcp": {meshport.SSH, visa.Visa{Service: meshport.SSH}}, "udp": {53, visa.Visa{UDP: 53}},
		} {
			resp, err := eu.open(t, node, "", region.DeviceVisit{Device: adas.ID, Network: name, Addr: netip.AddrPortFrom(dev.Addr(), c.port)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := visa.Open(coderdtest.Token(w.dev).Hash(), resp.Visa, time.Now())
			if err != nil || got.Port != 0 || got.Service != c.want.Service || got.UDP != c.want.UDP {
				t.Errorf("%s %d: the visa is %+v, %v", name, c.port, got, err)
			}
		}
		for what, c := range map[string]struct {
			by    proxy
			asked region.DeviceVisit
			want  fault.Code
		}{
			"another region's device":     {us, region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: dev}, fault.Unauthenticated},
			"a device of another region":  {eu, region.DeviceVisit{Device: abroad.ID, Network: "tcp", Addr: dev}, fault.Unauthenticated},
			"a device of the servers":     {eu, region.DeviceVisit{Device: servers.ID, Network: "tcp", Addr: dev}, fault.Unauthenticated},
			"no device":                   {eu, region.DeviceVisit{Device: uuid.New(), Network: "tcp", Addr: dev}, fault.Unauthenticated},
			"no region":                   {stranger, region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: dev}, fault.Unauthenticated},
			"another user's workspace":    {eu, region.DeviceVisit{Device: bobs.ID, Network: "tcp", Addr: dev}, fault.NotFound},
			"no agent":                    {eu, region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: netip.AddrPortFrom(tailnet.Addr(uuid.New()), 80)}, fault.NotFound},
			"an address of no mesh":       {eu, region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: netip.MustParseAddrPort("127.0.0.1:22")}, fault.NotFound},
			"no address":                  {eu, region.DeviceVisit{Device: adas.ID, Network: "tcp"}, fault.NotFound},
			"a port of the agent's own":   {eu, region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: netip.AddrPortFrom(dev.Addr(), meshport.AgentRPC)}, fault.Forbidden},
			"the port of sessions":        {eu, region.DeviceVisit{Device: adas.ID, Network: "tcp", Addr: netip.AddrPortFrom(dev.Addr(), meshport.Session)}, fault.Forbidden},
			"no port":                     {eu, region.DeviceVisit{Device: adas.ID, Network: "udp", Addr: netip.AddrPortFrom(dev.Addr(), 0)}, fault.Forbidden},
			"a network that there is not": {eu, region.DeviceVisit{Device: adas.ID, Network: "icmp", Addr: dev}, fault.Forbidden},
		} {
			resp, err := c.by.open(t, node, "", c.asked)
			if wantCode(t, what, err, c.want); resp.Visa != "" {
				t.Errorf("%s: a visa", what)
			}
		}

		// Renewals.
		same := region.DeviceVisit{Device: adas.ID}
		renewed, err := eu.open(t, node, first.Visit, same)
		if err != nil || renewed.ID != first.ID || renewed.Visa == "" {
			t.Fatalf("renewed: %+v, %v", renewed, err)
		}
		for what, c := range map[string]struct {
			by     proxy
			node   uuid.UUID
			visit  secret.Token
			device uuid.UUID
		}{
			"by another region":  {us, node, first.Visit, adas.ID},
			"for another node":   {eu, uuid.New(), first.Visit, adas.ID},
			"for another device": {eu, node, first.Visit, bobs.ID},
			"tampered":           {eu, node, first.Visit + "A", adas.ID},
			"a visa":             {eu, node, first.Visa, adas.ID},
		} {
			_, err := c.by.open(t, c.node, c.visit, region.DeviceVisit{Device: c.device})
			wantCode(t, what, err, fault.Forbidden)
		}
		if _, err := eu.open(t, uuid.Nil, "", same); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("without a node: %v", err)
		}
		if err := w.As("ada").DeleteUserDevice(t.Context(), sdk.Me, adas.ID); err != nil {
			t.Fatal(err)
		}
		_, err = eu.open(t, node, renewed.Visit, same)
		wantCode(t, "of a removed device", err, fault.Unauthenticated)
		same.Ended, same.In, same.Out = "closed by the device", 3, 4 // it may tell how it ended
		if _, err := eu.open(t, node, renewed.Visit, same); err != nil {
			t.Error(err)
		}
		testwait.Until(t, "the end is in the log",
			w.Counts(1, `SELECT count(*) FROM connection_logs WHERE id = $1 AND disconnect_reason = 'closed by the device' AND bytes_in = 3 AND bytes_out = 4`, first.ID))
	})
	t.Run("names", func(t *testing.T) {
		name := func(p proxy, device uuid.UUID, asked region.DeviceName) (resp region.DeviceName, err error) {
			asked.Device = device
			return resp, p.PostAsProxy(t.Context(), "device-names", asked, &resp)
		}
		bob := tailnet.Addr(w.bobs)
		if got, err := name(eu, bobs.ID, region.DeviceName{Name: "work"}); err != nil || got.Addr != bob {
			t.Errorf("work: %+v, %v", got, err)
		}
		if got, err := name(eu, bobs.ID, region.DeviceName{Addr: bob}); err != nil || got.Name != "main.work.bob.coder" {
			t.Errorf("its address: %+v, %v", got, err)
		}
		_, err := name(eu, bobs.ID, region.DeviceName{Name: "dev.ada"})
		wantCode(t, "another user's workspace", err, fault.NotFound)
		_, err = name(eu, bobs.ID, region.DeviceName{Addr: dev.Addr()})
		wantCode(t, "its address", err, fault.NotFound)
		_, err = name(us, bobs.ID, region.DeviceName{Name: "work"})
		wantCode(t, "by another region", err, fault.Unauthenticated)
		_, err = name(eu, servers.ID, region.DeviceName{Name: "dev"})
		wantCode(t, "for a device of the servers", err, fault.Unauthenticated)
	})
	t.Run("sightings", func(t *testing.T) {
		at := netip.MustParseAddrPort("198.51.100.7:1234")
		see := func(p proxy, devices ...uuid.UUID) error {
			var s region.Sightings
			for _, d := range devices {
				s.Seen = append(s.Seen, gateway.Sighting{Device: d, Endpoint: at, At: time.Now()})
			}
			return p.PostAsProxy(t.Context(), "device-sightings", s, &struct{}{})
		}
		seen := func(device uuid.UUID) int {
			n := 0
			if err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM user_devices WHERE id = $1 AND endpoint = $2`, device, at.String()).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := see(eu, bobs.ID, abroad.ID, servers.ID); err != nil || seen(bobs.ID) != 1 || seen(abroad.ID) != 0 || seen(servers.ID) != 0 {
			t.Errorf("eu has seen devices that are not its own, or not its own: %v", err)
		}
		wantCode(t, "no region", see(stranger, bobs.ID), fault.Unauthenticated)
		wantCode(t, "too many", see(eu, make([]uuid.UUID, region.MaxSightings+1)...), fault.Invalid)
	})
}
