package wgquick

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Keepalive is how often a device shows itself, in seconds, so that a NAT between it and its peer keeps the way back
// open: WireGuard's own recommendation (wg(8)).
const Keepalive = 25

// Config is the configuration of a device with one peer.
type Config struct {
	// Private is the device's private key. "": its owner adds it.
	Private    secret.Token
	Address    netip.Addr
	DNS        string
	MTU        int
	Peer       string // the peer's public key
	AllowedIPs string // the network that the peer leads to
	Endpoint   string // HOST:PORT of the peer
}

// Text returns the configuration as a file for wg-quick. It contains the private key.
func (c Config) Text() string {
	var b strings.Builder
	line := func(name, value string) { b.WriteString(name + " = " + value + "\n") }
	b.WriteString("[Interface]\n")
	if c.Private != "" {
		line("PrivateKey", c.Private.Reveal())
	} else {
		b.WriteString("# PrivateKey = the key that belongs to the registered public key\n")
	}
	line("Address", netip.PrefixFrom(c.Address, c.Address.BitLen()).String())
	line("DNS", c.DNS)
	line("MTU", strconv.Itoa(c.MTU))
	b.WriteString("\n[Peer]\n")
	line("PublicKey", c.Peer)
	line("AllowedIPs", c.AllowedIPs)
	line("Endpoint", c.Endpoint)
	line("PersistentKeepalive", strconv.Itoa(Keepalive))
	return b.String()
}
