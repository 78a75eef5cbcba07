package engine

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/tailscale/wireguard-go/device"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// streamProtocol is the IPv6 next header of stream packets: 253, which RFC 3692 reserves for experiments. Only nodes
// running this program ever see these packets.
const streamProtocol = 253

// Conn is a stream or a TCP connection with a peer.
type Conn interface {
	net.Conn
	CloseWrite() error
	// Abort ends the connection at once and discards unacknowledged data.
	Abort()
	// Over reports whether the connection has stopped sending for good.
	Over() bool
}

// relayPacket is the longest packet of streams that fits maxPacket, in bytes. WireGuard pads what it encrypts to a
// multiple of 16 and adds 32, and its buffers have another 8 before that.
const relayPacket = (maxPacket-device.MessageTransportSize-device.MessageEncapsulatingTransportSize)/16*16 - header.IPv6MinimumSize

// newMux creates this node's end of all streams.
func newMux(e *Engine) *stream.Mux {
	own := e.opts.Addr.As16()
	return stream.New(stream.Options{
		RelayPacket: relayPacket,
		Admit:       e.opts.Admit,
		Accept: func(peer netip.Addr, port uint16, c *stream.Conn) func() {
			serve := e.opts.AcceptTCP(netip.AddrPortFrom(peer, ephemeral(c)), netip.AddrPortFrom(e.opts.Addr, port))
			if serve == nil {
				return nil
			}
			return func() { serve(c) }
		},
		Header: func(buf []byte, peer netip.Addr) int {
			clear(buf[:8])
			buf[0], buf[6], buf[7] = header.IPv6Version<<4, streamProtocol, 64
			to := peer.As16()
			copy(buf[8:], own[:])
			copy(buf[24:], to[:])
			return header.IPv6MinimumSize
		},
		Finish: func(packet []byte) {
			binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-header.IPv6MinimumSize))
		},
	})
}

// ephemeral returns the opener's port of a stream, for logs: streams are distinguished by their numbers.
func ephemeral(c *stream.Conn) uint16 { return uint16(49152 + c.Number()%(65536-49152)) }

// Stream is a stream that this node opened.
type Stream struct{ *stream.Conn }

// Local returns the port that logs show for this end.
func (s Stream) Local() uint16 { return ephemeral(s.Conn) }

// DialStream opens a stream to a peer without waiting: written data travels with the request. See stream.Conn.Wait.
func (e *Engine) DialStream(to netip.AddrPort) (Stream, error) {
	c, err := e.mux.Dial(to.Addr(), to.Port())
	return Stream{c}, err
}

// bypass is the mux as the link sees it: its packets do not go through the network stack.
type bypass struct{ *stream.Mux }

func (bypass) Protocol() uint8 { return streamProtocol }

// Receive hands over the packets of a batch, those of one peer at a time.
func (b bypass) Receive(packets [][]byte) {
	for len(packets) > 0 {
		from := header.IPv6(packets[0]).SourceAddress()
		n := 0
		for n < len(packets) && header.IPv6(packets[n]).SourceAddress() == from {
			packets[n] = packets[n][header.IPv6MinimumSize:]
			n++
		}
		b.Mux.Receive(addrOf(from), packets[:n])
		packets = packets[n:]
	}
}
