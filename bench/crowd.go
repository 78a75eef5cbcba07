package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/stock"
)

const (
	// Each of crowdUsers has as many devices as a user may have. Those of the first activeUsers connect.
	crowdUsers, crowdDevices, activeUsers = 50, 20, 5
	// crowdPause is how long a server's memory settles.
	crowdPause = 20 * time.Second
)

// member is a user, and the devices that are to connect.
type member struct {
	name    string
	client  *sdk.Client
	devices []crowdDevice
}

type crowdDevice struct {
	private stock.Key
	addr    netip.Addr
}

// crowd measures what 1 000 registered devices take of the server's memory, and 100 of them that have a connection to
// the workspace. Each figure is of a process that was started anew.
func (p *phone) crowd(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go echo(l)
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	members, err := p.members(ctx)
	if err != nil {
		return err
	}
	before, err := p.settled(ctx)
	if err != nil {
		return err
	}
	for i, m := range members {
		if err := m.register(ctx); err != nil {
			return err
		}
		if i < activeUsers {
			if _, err := p.do(ctx, "sharing", "add", "w1", "--user", m.name); err != nil {
				return err
			}
		}
	}
	registered, err := p.settled(ctx)
	if err != nil {
		return err
	}
	shown, err := members[0].client.WireGuardGateway(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, m := range members[:activeUsers] {
		for _, d := range m.devices {
			open, err := d.connect(ctx, shown, netip.MustParseAddr(p.address), port)
			if err != nil {
				return err
			}
			defer open()
		}
	}
	took := time.Since(begin)
	if err := wait(ctx, crowdPause); err != nil {
		return err
	}
	of := fmt.Sprintf("%.0f MB without devices", before)
	p.add(row{
		Name: "server, 1000 registered devices, resident", Value: registered - before, Unit: "MB more", Yardstick: of,
	})
	p.add(row{
		Name: "server, 1000 registered and 100 active devices, resident", Unit: "MB more", Goal: "≤ 60",
		Value:     resident(p.server.Process.Pid) - before,
		Yardstick: fmt.Sprintf("%s; 100 handshakes and connections in %.2f s", of, took.Seconds()),
	})
	return nil
}

// settled starts the server anew, and returns what it takes of the memory when it has settled, in MB.
func (p *phone) settled(ctx context.Context) (float64, error) {
	if err := p.stopServer(); err != nil {
		return 0, err
	}
	if err := p.startServer(ctx); err != nil {
		return 0, err
	}
	if err := wait(ctx, crowdPause); err != nil {
		return 0, err
	}
	return resident(p.server.Process.Pid), nil
}

// members creates users who are signed in.
func (p *phone) members(ctx context.Context) ([]*member, error) {
	server := &url.URL{Scheme: "http", Host: "127.0.0.1:" + p.port}
	token, err := p.do(ctx, "tokens", "create", "--name", "crowd")
	if err != nil {
		return nil, err
	}
	admin := sdk.New(server, secret.Token(strings.TrimSpace(token)), sdk.Options{})
	var members []*member
	for i := range crowdUsers {
		m := &member{name: "user" + strconv.Itoa(i)}
		email := m.name + "@example.com"
		account := sdk.CreateUserRequest{Email: email, Username: m.name, Password: password}
		if _, err := admin.CreateUser(ctx, account); err != nil {
			return nil, err
		}
		session, err := admin.Login(ctx, sdk.LoginRequest{Email: email, Password: password})
		if err != nil {
			return nil, err
		}
		m.client = sdk.New(server, secret.Token(session.SessionToken), sdk.Options{})
		members = append(members, m)
	}
	return members, nil
}

// register adds the member's devices.
func (m *member) register(ctx context.Context) error {
	for i := range crowdDevices {
		pair, err := wgquick.NewPair()
		if err != nil {
			return err
		}
		req := sdk.CreateUserDeviceRequest{Name: "device " + strconv.Itoa(i), PublicKey: pair.Public.String()}
		d, err := m.client.CreateUserDevice(ctx, sdk.Me, req)
		if err != nil {
			return err
		}
		addr, err := netip.ParseAddr(d.Address)
		if err != nil {
			return err
		}
		private, err := base64.StdEncoding.DecodeString(pair.Private.Reveal())
		if err != nil {
			return err
		}
		m.devices = append(m.devices, crowdDevice{stock.Key(private), addr})
	}
	return nil
}

// connect starts a device, and opens a connection to an echo, which the function that it returns ends.
func (d crowdDevice) connect(
	ctx context.Context, shown sdk.WireGuardGateway, workspace netip.Addr, port uint16,
) (end func(), err error) {
	key, err := wgquick.ParseKey(shown.PublicKey)
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(shown.Address)
	if err != nil {
		return nil, err
	}
	prefix, err := netip.ParsePrefix(shown.Prefix)
	if err != nil {
		return nil, err
	}
	device, err := stock.Start(d.private, d.addr, stock.Key(key), at.Port(), prefix)
	if err != nil {
		return nil, err
	}
	conn, err := device.DialContextTCPAddrPort(ctx, netip.AddrPortFrom(workspace, port))
	if err == nil {
		err = byteBack(conn)
	}
	if err != nil {
		device.Close()
		return nil, fmt.Errorf("device %s: %w", d.addr, err)
	}
	return func() {
		conn.Close()
		device.Close()
	}, nil
}
