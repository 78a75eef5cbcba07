package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

const (
	// CheckPath is where a proxy answers with its Hello's Check.
	CheckPath = "/region-check"
	// TerminalPath is where a proxy serves terminals.
	TerminalPath = "/api/v2/workspaceagents/{agent}/pty"
	// VisitPath and RedeemPath are routes of the servers, for proxies: VisitRequest and appproxy.Exchange.
	VisitPath  = proxyRoutes + visits
	RedeemPath = proxyRoutes + appCodes
	// SSHKeyPath, SSHVisitPath, SSHStartPath and SSHHostKeyPath are those for their SSH gateways: SSHKeyRequest,
	// VisitRequest, SSHStartRequest and an empty request.
	SSHKeyPath     = proxyRoutes + sshKeys
	SSHVisitPath   = proxyRoutes + sshVisits
	SSHStartPath   = proxyRoutes + sshStarts
	SSHHostKeyPath = proxyRoutes + sshHostKey
	// WireGuardKeyPath, DevicesPath, SightingsPath, DeviceNamesPath and DeviceVisitsPath are those for their WireGuard
	// gateways: an empty request, DevicesRequest, Sightings, DeviceName and VisitRequest.
	WireGuardKeyPath = proxyRoutes + wireGuardKey
	DevicesPath      = proxyRoutes + devices
	SightingsPath    = proxyRoutes + seenDevices
	DeviceNamesPath  = proxyRoutes + deviceNames
	DeviceVisitsPath = proxyRoutes + deviceVisits

	proxyRoutes, visits, appCodes             = "/api/v2/workspaceproxies/me/", "visits", "app-codes"
	sshKeys, sshVisits, sshStarts, sshHostKey = "ssh-keys", "ssh-visits", "ssh-starts", "ssh-host-key"
	wireGuardKey, devices, seenDevices        = "wireguard-key", "devices", "device-sightings"
	deviceNames, deviceVisits                 = "device-names", "device-visits"

	// MaxHello and MaxUpdate are the longest messages in bytes.
	MaxHello, MaxUpdate = 4 << 10, 128 << 10
	// MaxKeys is how many keys an Update may contain.
	MaxKeys = 1000
	// MaxOwners is how many owners of devices an Update may contain.
	MaxOwners = 1000
	// MaxSightings is how many sightings a request may contain.
	MaxSightings = 1000
	// CheckLength is the length of a Check in bytes.
	CheckLength = 32
)

// Hello is a proxy's first and only message.
type Hello struct {
	URL      string `json:"url"`       // http or https, at which nodes reach the relay
	STUNPort int    `json:"stun_port"` // on the URL's host; 0 means none
	Version  string `json:"version"`   // of the program
	Check    string `json:"check"`     // random; what CheckPath answers
	// Apps reports that the proxy serves apps, and WildcardHost is the pattern of their hosts there.
	Apps         bool   `json:"apps,omitempty"`
	WildcardHost string `json:"wildcard_host,omitempty"`
	// SSHAddress is HOST:PORT at which users reach the proxy's SSH gateway; "" if it has none.
	SSHAddress string `json:"ssh_address,omitempty"`
	// WireGuardAddress is HOST:PORT at which devices reach the proxy's WireGuard gateway; "" if it has none.
	WireGuardAddress string `json:"wireguard_address,omitempty"`
}

// VisitRequest asks whether a visitor may open an app or a terminal, or whether a visit may go on.
type VisitRequest struct {
	Question appproxy.Question `json:"question"`
	// Terminal takes the place of the question for a terminal. A server of a version without terminals finds no app.
	Terminal *Terminal `json:"terminal,omitempty"`
	// SSH takes the place of the question at SSHVisitPath.
	SSH *SSH `json:"ssh,omitempty"`
	// Device takes the place of the question at DeviceVisitsPath.
	Device *DeviceVisit `json:"device,omitempty"`
	// Visit is the last VisitResponse's. If it is set, it takes the place of the question.
	Visit secret.Token `json:"visit,omitempty"`
	// Node is the proxy's in the mesh.
	Node uuid.UUID `json:"node"`
	// Addr and UserAgent are the visitor's, for the connection log.
	Addr      netip.Addr `json:"addr,omitzero"`
	UserAgent string     `json:"user_agent,omitempty"`
	// In, Out and Status are what passed since the last request: bytes into and out of the workspace, and the first
	// answer's status.
	In     int64 `json:"in,omitempty"`
	Out    int64 `json:"out,omitempty"`
	Status int32 `json:"status,omitempty"`
}

// Terminal describes the visit of a terminal.
type Terminal struct {
	Agent uuid.UUID `json:"agent"`
	// Token is what the visitor brought. Origin is that of the visitor's page; "" if they have none. Renewals have
	// neither.
	Token  secret.Token `json:"token,omitempty"`
	Origin string       `json:"origin,omitempty"`
	// Ended is why the terminal was closed, and In and Out its bytes into and out of the workspace. A server only
	// records that.
	Ended string `json:"ended,omitempty"`
	In    int64  `json:"in,omitempty"`
	Out   int64  `json:"out,omitempty"`
}

// SSHKeyRequest asks whether a public key, in the wire format, may sign in here.
type SSHKeyRequest struct {
	Key []byte `json:"key"`
	// Proven says that a client has proven to have the key. Without it, any registered key is known.
	Proven bool `json:"proven,omitempty"`
}

// SSHKeyResponse is the answer for a key that signs someone in.
type SSHKeyResponse struct {
	// ID is the key's registration; Nil if the key was not proven.
	ID uuid.UUID `json:"id,omitzero"`
}

// SSH describes the visit of an SSH client.
type SSH struct {
	// Key is the client's public key, and KeyID its registration.
	Key   []byte    `json:"key"`
	KeyID uuid.UUID `json:"key_id"`
	// Name is [owner/]workspace[.agent], and Port a service of its agent: meshport.Session or meshport.SSH. Renewals
	// have neither.
	Name string `json:"name,omitempty"`
	Port uint16 `json:"port,omitempty"`
	// Ended, In and Out are as in Terminal.
	Ended string `json:"ended,omitempty"`
	In    int64  `json:"in,omitempty"`
	Out   int64  `json:"out,omitempty"`
}

// SSHStartRequest asks for the start of a stopped workspace of a key's user, or whether it has ended.
type SSHStartRequest struct {
	Key   []byte    `json:"key"`
	KeyID uuid.UUID `json:"key_id"`
	Name  string    `json:"name,omitempty"`
	// Start is the last SSHStartResponse's. If it is set, it takes the place of the name.
	Start secret.Token `json:"start,omitempty"`
}

// SSHStartResponse is the answer for a workspace that starts, or has started.
type SSHStartResponse struct {
	Start secret.Token `json:"start,omitempty"`
	Ended bool         `json:"ended,omitempty"`
}

// SSHHostKeyResponse contains the seed of the proxy's ed25519 host key.
type SSHHostKeyResponse struct {
	Seed []byte `json:"seed"`
}

// WireGuardKeyResponse contains the private key of the proxy's WireGuard gateway.
type WireGuardKeyResponse struct {
	Key []byte `json:"key"`
}

// DevicesRequest asks for the devices that may connect to the proxy: those of an owner, or all without one.
type DevicesRequest struct {
	Owner uuid.UUID `json:"owner,omitzero"`
}

// DevicesResponse lists them. Owner is the request's; a server of an earlier version lists all devices, without one.
type DevicesResponse struct {
	Owner   uuid.UUID `json:"owner,omitzero"`
	Devices []Device  `json:"devices"`
}

// Device is a device with a WireGuard app.
type Device struct {
	ID uuid.UUID `json:"id"`
	// Owner is the same for all devices of a user at the proxy. It says nothing else about the user.
	Owner uuid.UUID `json:"owner,omitzero"`
	Name  string    `json:"name"`
	Key   []byte    `json:"key"` // public
	// Endpoint and Left are as in gateway.Device.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	Left     bool           `json:"left,omitempty"`
}

// Sightings are where the proxy has seen devices.
type Sightings struct {
	Seen []gateway.Sighting `json:"seen"`
}

// DeviceName asks what a name means to a device, or what name an address has. It is also the answer.
type DeviceName struct {
	Device uuid.UUID  `json:"device,omitzero"`
	Name   string     `json:"name,omitempty"`
	Addr   netip.Addr `json:"addr,omitzero"`
}

// DeviceVisit describes the visit of a device to a port.
type DeviceVisit struct {
	Device uuid.UUID `json:"device"`
	// Network is tcp or udp, and Addr a port of an agent's mesh address. Renewals have neither.
	Network string         `json:"network,omitempty"`
	Addr    netip.AddrPort `json:"addr,omitzero"`
	// Ended, In and Out are as in Terminal.
	Ended string `json:"ended,omitempty"`
	In    int64  `json:"in,omitempty"`
	Out   int64  `json:"out,omitempty"`
}

// VisitResponse is the answer. ID, Visa and Visit are set if the app or the terminal can be opened now.
type VisitResponse struct {
	Answer appproxy.Answer `json:"answer"`
	// ID is the same for all requests of a visitor to an app, and in all renewals of a terminal.
	ID uuid.UUID `json:"id,omitzero"`
	// Visa is for the agent, and Visit renews it. Both expire soon.
	Visa  secret.Token `json:"visa,omitempty"`
	Visit secret.Token `json:"visit,omitempty"`
	// Agent is that of a visit of an SSH client or a device, and Blocked reports that logins to it wait for its start
	// scripts.
	Agent   uuid.UUID `json:"agent,omitzero"`
	Blocked bool      `json:"blocked,omitempty"`
}

// RedeemResponse contains a token for an app's host or path; "" if the code is not valid.
type RedeemResponse struct {
	Token secret.Token `json:"token"`
}

// DecodeHello parses a Hello and checks it.
func DecodeHello(data []byte) (h Hello, err error) {
	if len(data) > MaxHello {
		return Hello{}, fmt.Errorf("decode hello: %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return Hello{}, fmt.Errorf("decode hello: %w", err)
	}
	if err := CheckURL(h.URL); err != nil {
		return Hello{}, err
	}
	if h.WildcardHost != "" {
		if h.WildcardHost, err = appproxy.ParseWildcard(h.WildcardHost); err != nil {
			return Hello{}, err
		}
	}
	if h.STUNPort < 0 || h.STUNPort > 0xffff || len(h.Version) > 100 || len(h.Check) != CheckLength {
		return Hello{}, errors.New("decode hello: a field is out of range")
	}
	for _, address := range []string{h.SSHAddress, h.WireGuardAddress} {
		if address == "" {
			continue
		}
		if err := CheckGatewayAddress(address); err != nil {
			return Hello{}, err
		}
	}
	return h, nil
}

// gatewayHost matches names and addresses of hosts that can be in a command or a configuration that users copy.
var gatewayHost = lazyregexp.New(`^[A-Za-z0-9:][A-Za-z0-9._:-]*$`)

// CheckGatewayAddress returns an error unless text can be the address of an SSH or WireGuard gateway.
func CheckGatewayAddress(text string) error {
	host, port, err := net.SplitHostPort(text)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 || len(host) > 253 || !gatewayHost().MatchString(host) {
		return fmt.Errorf("%q cannot be the address of a gateway: it must be like eu.example.com:2222", text)
	}
	return nil
}

// CheckURL returns an error unless text can be the URL of a proxy.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || u.Opaque != "" {
		return fmt.Errorf("%q cannot be the URL of a region: it must be like https://eu.example.com", u.Redacted())
	}
	return nil
}

// Update is a message of the server.
type Update struct {
	Admit  []tailnet.PublicKey `json:"admit,omitempty"`
	Revoke []tailnet.PublicKey `json:"revoke,omitempty"`
	// Synced reports that all keys that were admitted when the connection began have been sent.
	Synced bool `json:"synced,omitempty"`
	// Recheck reports that visitors may have lost their rights: the proxy asks about every visit again.
	Recheck bool `json:"recheck,omitempty"`
	// Owners are those whose devices may be others, with Recheck. If there are none, any owner's may be.
	Owners []uuid.UUID `json:"owners,omitempty"`
}

// DecodeUpdate parses an Update.
func DecodeUpdate(data []byte) (u Update, err error) {
	if len(data) > MaxUpdate {
		return Update{}, fmt.Errorf("decode update: %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &u); err != nil {
		return Update{}, fmt.Errorf("decode update: %w", err)
	}
	if len(u.Admit)+len(u.Revoke) > MaxKeys {
		return Update{}, fmt.Errorf("decode update: %d keys", len(u.Admit)+len(u.Revoke))
	}
	if len(u.Owners) > MaxOwners {
		return Update{}, fmt.Errorf("decode update: %d owners", len(u.Owners))
	}
	return u, nil
}
