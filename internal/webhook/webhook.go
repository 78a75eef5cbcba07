// Package webhook posts messages to other services over HTTP, signs them by the Standard Webhooks scheme
// (https://www.standardwebhooks.com), and keeps the posts away from addresses that only the server's own host may
// reach. It knows nothing about what the messages say.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/webdial"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4096

// Headers of a signed message.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// secretPrefix begins a signing secret in its text form.
const secretPrefix = "whsec_"

// NewSecret returns a signing secret of 256 random bits, in its text form.
func NewSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// Signature returns the value of HeaderSignature: an HMAC of the id, the time and the body.
func Signature(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) == 0 {
		return "", errors.New("the signing secret is damaged")
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// Sign sets the headers of a message that is signed with each of the secrets: a receiver accepts it if it knows one.
func Sign(h http.Header, secrets []string, id string, at time.Time, body []byte) error {
	var signatures []string
	for _, secret := range secrets {
		signature, err := Signature(secret, id, at, body)
		if err != nil {
			return err
		}
		signatures = append(signatures, signature)
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return nil
}

// Answer is how a receiver answered.
type Answer struct {
	Status  int
	Excerpt string // the beginning of its body
}

// Accepted reports whether the receiver has taken the message.
func (a Answer) Accepted() bool { return a.Status >= 200 && a.Status <= 299 }

// ErrForbidden reports a destination that the guard refuses.
var ErrForbidden = errors.New("its address is reserved for this server's own host or network, and the operator has " +
	"not allowed it (--webhook-allowed-networks)")

// Client posts messages. It never follows redirects: another host than the configured one must not get messages. Safe
// for concurrent use.
type Client struct {
	direct, proxied *http.Client
	guard           *Guard
}

// NewClient returns a client that refuses the destinations that the guard refuses. Nil: it refuses none. Posts go
// through the proxy that the environment of the process names; the guard then sees a destination only as the URL has
// it, because the proxy looks up its name.
func NewClient(guard *Guard) *Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	proxied := webdial.Transport(nil)
	c := &Client{guard: guard, proxied: &http.Client{Transport: proxied, CheckRedirect: stay}}
	c.direct = c.proxied
	if guard != nil {
		direct := proxied.Clone()
		direct.Proxy = nil
		direct.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second,
			Control: guard.control}).DialContext
		c.direct = &http.Client{Transport: direct, CheckRedirect: stay}
	}
	return c
}

// Close closes idle connections.
func (c *Client) Close() {
	c.direct.CloseIdleConnections()
	c.proxied.CloseIdleConnections()
}

// Post posts a JSON body. ctx bounds it. Errors do not have the URL: its path or query is often a secret. A destination
// that the guard refuses gives an error that wraps ErrForbidden.
func (c *Client) Post(ctx context.Context, to string, header http.Header, body []byte) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return Answer{}, withoutURL(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "codermesh/"+buildinfo.Version())
	client := c.direct
	if c.guard != nil {
		if err := c.guard.CheckHost(r.URL.Hostname()); err != nil {
			return Answer{}, err
		}
		if proxy, err := webdial.Proxy(r.URL); err == nil && proxy != nil {
			client = c.proxied
		}
	}
	resp, err := client.Do(r)
	if err != nil {
		return Answer{}, fmt.Errorf("post to the webhook: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	// The connection can be used again if the answer is short.
	excerpt, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return Answer{Status: resp.StatusCode, Excerpt: string(excerpt)}, nil
}

func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// Guard refuses destinations that only the server's own host should reach: loopback, link-local and unspecified
// addresses, multicast, and those at which clouds answer questions about the host. Addresses are checked after a name
// was looked up, for each connection.
type Guard struct{ allowed []netip.Prefix }

// NewGuard returns a guard that lets these networks pass.
func NewGuard(allowed []netip.Prefix) *Guard { return &Guard{allowed} }

// reserved are networks that netip has no name for.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba's metadata
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's host
	netip.MustParsePrefix("192.0.0.0/24"),       // Oracle's metadata, among protocol assignments
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("fd00:ec2::/32"),    // Amazon's metadata
	netip.MustParsePrefix("fd20:ce::254/128"), // Google's metadata
	netip.MustParsePrefix("fec0::/10"),        // site-local
	netip.MustParsePrefix("::/96"),            // IPv4-compatible
}

// embedding are the prefixes of IPv6 addresses that a router turns into IPv4 ones, and where these begin, in bytes.
var embedding = []struct {
	netip.Prefix
	at int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
}

// Refuses reports whether connections to an address are refused.
func (g *Guard) Refuses(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range g.allowed {
		if p.Contains(addr) {
			return false
		}
	}
	for _, e := range embedding {
		if e.Contains(addr) {
			whole := addr.As16()
			return g.Refuses(netip.AddrFrom4([4]byte(whole[e.at : e.at+4])))
		}
	}
	for _, p := range reserved {
		if p.Contains(addr) {
			return true
		}
	}
	return !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsLinkLocalUnicast() ||
		addr.IsMulticast()
}

// CheckHost returns an error for a host of a URL that is refused whatever its name may mean: an address, or a name of
// this host.
func (g *Guard) CheckHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	addr, err := netip.ParseAddr(name)
	if err != nil && (name == "localhost" || strings.HasSuffix(name, ".localhost")) {
		addr, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err == nil && g.Refuses(addr) {
		return ErrForbidden
	}
	return nil
}

// control refuses a connection before it is begun.
func (g *Guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse destination: %w", err)
	}
	if g.Refuses(to.Addr()) {
		return ErrForbidden
	}
	return nil
}
