package diagnose

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/webdial"
	"github.com/codermesh/codermesh/v2/meshclient"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// maxSkew is how far clocks may differ before signatures, certificates and tokens suffer.
	maxSkew = time.Minute
	// soon is how long before its expiry a certificate is worth a warning.
	soon = 7 * 24 * time.Hour
	// meshMTU is the longest packet that streams send on a path that carries no longer ones: 1200 bytes inside,
	// WireGuard's 32, UDP's 8 and IPv6's 40.
	meshMTU = 1280
	// relayPatience is how long the relay may take to connect.
	relayPatience = 8 * time.Second
	relayLook     = 50 * time.Millisecond
)

// examination passes what earlier checks of a run found to later ones.
type examination struct {
	app       *global.Flags
	server    *url.URL // nil until the URL is known
	proxy     *url.URL // nil without one
	reachable bool     // TCP to the server, or its proxy, works
	trusted   bool     // so does TLS
	client    *sdk.Client
	answer    *http.Response // the server's response to a request without a session; its body is closed
	skew      time.Duration  // of the local clock against the server's
	mesh      *meshclient.Client
	node      *tailnet.Node // nil until the mesh is joined
}

func (x *examination) end() {
	if x.mesh != nil {
		target.LeaveQuickly(x.mesh.Leave)
	}
}

func (x *examination) checkProxy(context.Context) finding {
	if x.server == nil {
		return skip("there is no URL")
	}
	proxy, err := webdial.Proxy(x.server)
	switch {
	case err != nil:
		return fail("set HTTPS_PROXY to a URL such as http://proxy.example.com:3128, or unset it",
			"the proxy of the environment cannot be used: %s", err)
	case proxy == nil:
		return pass("none")
	}
	x.proxy = proxy
	return pass("%s", proxy.Redacted())
}

func (x *examination) checkConnection(ctx context.Context) finding {
	if x.server == nil {
		return skip("there is no URL")
	}
	to := x.server
	if x.proxy != nil {
		to = x.proxy
	}
	begin := time.Now()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address(to))
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fail("check the name in the URL, and this machine's DNS", "the name %s is not found", dns.Name)
	case err != nil:
		return fail("check that the server runs and that no firewall blocks "+address(to)+"; behind a proxy set HTTPS_PROXY", "%s: %s", address(to), err)
	}
	conn.Close()
	x.reachable = true
	return pass("%s answers in %s", conn.RemoteAddr(), output.Latency(time.Since(begin)))
}

func (x *examination) checkTLS(ctx context.Context) finding {
	switch {
	case !x.reachable:
		return skip("the server is out of reach")
	case x.server.Scheme == "http":
		x.trusted = true
		return skip("the URL is http")
	}
	config, err := x.app.TLSConfig()
	if err != nil {
		return fail("correct --client-tls-ca-file, --client-tls-cert-file and --client-tls-key-file", "%s", plain(err))
	}
	// The same way as requests, through the proxy if there is one.
	transport := webdial.Upgrader(config)
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, x.server.JoinPath("healthz").String(), nil)
	if err != nil {
		return fail("coder login "+shell.Word(x.server.String()), "%s", err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return tlsFailure(x.server, err)
	}
	resp.Body.Close()
	x.trusted = true
	if resp.TLS == nil || len(resp.TLS.PeerCertificates) == 0 {
		return pass("no certificate was shown")
	}
	leaf := resp.TLS.PeerCertificates[0]
	if left := time.Until(leaf.NotAfter); left < soon {
		return warn("ask the server's operator to renew its certificate", "the certificate ends %s",
			leaf.NotAfter.Format(time.DateTime))
	}
	return pass("%s, issued by %s, until %s", tls.VersionName(resp.TLS.Version), leaf.Issuer.CommonName,
		leaf.NotAfter.Format(time.DateOnly))
}

func tlsFailure(server *url.URL, err error) finding {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return fail("trust the authority that issued it: --client-tls-ca-file ca.pem, or add it to the system's",
			"the certificate of %s is not signed by an authority that this machine trusts", server.Host)
	case errors.As(err, &name):
		return fail("use a name that the certificate holds, or have it issued for "+server.Hostname(), "%s",
			name.Error())
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fail("set this machine's clock, or have the certificate renewed", "%s", invalid.Error())
	}
	return fail("check whether something between this machine and the server intercepts TLS", "%s", err)
}

func (x *examination) checkServer(ctx context.Context) finding {
	if !x.trusted {
		return skip("the server is out of reach")
	}
	client, err := x.app.ClientFor(ctx, x.server, "")
	if err != nil {
		return fail("correct --header and --header-command", "%s", plain(err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.server.JoinPath("healthz").String(), nil)
	if err != nil {
		return fail("coder login "+shell.Word(x.server.String()), "%s", err)
	}
	req.Header = client.Header()
	before := time.Now()
	resp, err := client.HTTP().Do(req)
	if err != nil {
		return fail("check what listens at "+x.server.String(), "%s", err)
	}
	took := time.Since(before)
	resp.Body.Close()
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds, and was written somewhere in between.
		x.skew = before.Add(took / 2).Sub(at.Add(500 * time.Millisecond))
		x.answer = resp
	}
	if resp.StatusCode != http.StatusOK {
		return fail("check that "+x.server.String()+" is the server's URL, and the server's log",
			"GET /healthz is answered with %s", resp.Status)
	}
	x.client = client
	return pass("healthy, answers in %s", output.Latency(took))
}

func (x *examination) checkClock(context.Context) finding {
	if x.answer == nil {
		return skip("the server sent no time")
	}
	skew := x.skew.Round(time.Second)
	if skew.Abs() > maxSkew {
		return fail("set the clock, for example: timedatectl set-ntp true",
			"this machine's clock is %s off the server's", skew)
	}
	return pass("within %s of the server's", max(skew.Abs(), time.Second))
}

func (x *examination) checkVersion(ctx context.Context) finding {
	if x.client == nil {
		return skip("the server is out of reach")
	}
	info, err := x.client.BuildInfo(ctx)
	if err != nil {
		return fail("check that "+x.server.String()+" is the server's URL", "%s", plain(err))
	}
	if global.Release(info.Version) != global.Release(buildinfo.Version()) {
		remedy := "install the server's: " + x.server.JoinPath("bin").String()
		if info.UpgradeMessage != "" {
			remedy = info.UpgradeMessage
		}
		return warn(remedy, "the server is %s, this program %s", info.Version, buildinfo.Version())
	}
	if words, _ := buildinfo.Difference(info.Version, ""); words != "" {
		return pass("%s; the server has %s, %s", buildinfo.Version(), info.Version, words)
	}
	return pass("%s", buildinfo.Version())
}

func (x *examination) checkSession(ctx context.Context) finding {
	if x.client == nil {
		return skip("the server is out of reach")
	}
	client, err := x.app.Client(ctx)
	if err == nil {
		var me sdk.User
		if me, err = client.User(ctx, "me"); err == nil {
			x.client = client
			return pass("signed in as %s", me.Username)
		}
	}
	x.client = nil
	return fail("coder login "+shell.Word(x.server.String()), "%s", plain(err))
}

func (x *examination) checkWebsocket(ctx context.Context) finding {
	if x.client == nil {
		return skip("there is no session")
	}
	mesh := joinMesh(x.app, x.client)
	x.mesh = mesh
	begin := time.Now()
	if _, err := mesh.Joined(ctx); err != nil {
		if code := fault.CodeOf(err); code == fault.Unauthenticated || code == fault.Forbidden {
			return fail("coder login "+shell.Word(x.server.String()), "%s", plain(err))
		}
		return fail("let proxies in between pass websockets: the headers Upgrade and Connection, and no limit on how long a connection lasts",
			"the coordinator is out of reach: %s", plain(err))
	}
	var err error
	if x.node, err = mesh.Node(); err != nil {
		return fail("coder support bundle", "%s", plain(err))
	}
	took := time.Since(begin)
	return onServer(x.placement(ctx).Server, pass("the coordinator answered in %s", output.Latency(took)))
}

// placement returns where this machine is connected, as far as the server tells.
func (x *examination) placement(ctx context.Context) target.Placement {
	at, err := target.Placements(ctx, x.client, x.node.ID())
	if err != nil {
		x.app.Logger().Debug("cannot find the servers in use", "err", err)
	}
	return at[x.node.ID()]
}

// onServer adds the server that a check used.
func onServer(id uuid.UUID, f finding) finding {
	if id != uuid.Nil {
		f.Server = &id
		f.Detail += ", server " + target.ShortID(id)
	}
	return f
}

func (x *examination) checkRelay(ctx context.Context) finding {
	if x.node == nil {
		return skip("the mesh was not joined")
	}
	ctx, cancel := context.WithTimeout(ctx, relayPatience)
	defer cancel()
	for {
		status := x.node.Status()
		var problem string
		for _, relay := range status.Relays {
			switch {
			case relay.Connected && relay.Websocket:
				return onServer(x.placement(ctx).Relay, warn("let proxies in between pass \"Upgrade: DERP\" as they pass websockets: it is faster", "relay %q is reached by websocket", relay.Code))
			case relay.Connected:
				return onServer(x.placement(ctx).Relay, pass("relay %q", relay.Code))
			case relay.Err != "":
				problem = relay.Err
			}
		}
		if !target.Sleep(ctx, relayLook) {
			if problem == "" {
				problem = fmt.Sprintf("no relay connected within %s", relayPatience)
			}
			return fail("let proxies in between pass upgraded connections to /derp of the server", "%s", problem)
		}
	}
}

func (x *examination) checkUDP(ctx context.Context) finding {
	if x.node == nil {
		return skip("the mesh was not joined")
	}
	report, err := x.node.Netcheck(ctx)
	switch {
	case err != nil:
		return fail("coder netcheck", "%s", plain(err))
	case !report.UDP:
		return warn("let UDP out of this network, to the server's STUN port and to workspaces: direct paths are faster than relayed ones",
			"no answer by UDP: workspaces are reached through the relay")
	case report.MappingVariesByDest != nil && *report.MappingVariesByDest:
		return warn("if the router supports it, configure endpoint-independent NAT",
			"the NAT uses a different port for each destination: direct paths will be rare")
	case report.PublicIPv4.IsValid():
		return pass("seen from the server as %s", report.PublicIPv4)
	}
	return pass("seen from the server as %s", report.PublicIPv6)
}

func (x *examination) checkMTU(context.Context) finding {
	if x.server == nil {
		return skip("there is no URL")
	}
	mtu, name, err := routeMTU(address(x.server))
	switch {
	case err != nil:
		return skip(err.Error())
	case mtu < meshMTU:
		return warn(fmt.Sprintf("raise the MTU of %s to %d or more: connections stall on it", name, meshMTU),
			"%s has an MTU of %d", name, mtu)
	}
	return pass("%d on %s", mtu, name)
}

// routeMTU returns the MTU of the interface through which packets to addr leave.
func routeMTU(addr string) (mtu int, name string, err error) {
	conn, err := net.Dial("udp", addr) // sends nothing, but chooses the route
	if err != nil {
		return 0, "", fmt.Errorf("there is no route: %w", err)
	}
	defer conn.Close()
	local := conn.LocalAddr().(*net.UDPAddr).IP
	interfaces, err := net.Interfaces()
	if err != nil {
		return 0, "", fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has just been removed
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.Equal(local) {
				return i.MTU, i.Name, nil
			}
		}
	}
	return 0, "", fmt.Errorf("no interface has the address %s", local)
}
