package ipstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// PacketKind is what a packet is to those who decide about packets.
type PacketKind uint8

const (
	Other       PacketKind = iota
	Flow                   // TCP, UDP, or an ICMP error about these
	EchoRequest            // of ICMP
)

// Packet is what is known of an IPv6 packet.
type Packet struct {
	Src, Dst netip.Addr
	Kind     PacketKind
	raw      []byte
}

// Parse reads a packet's headers. ok is false for what is not IPv6, or too short. Fragments and extension headers are
// Other.
func Parse(packet []byte) (p Packet, ok bool) {
	if len(packet) < header.IPv6MinimumSize || packet[0]>>4 != header.IPv6Version {
		return Packet{}, false
	}
	ip := header.IPv6(packet)
	p = Packet{Src: addrOf(ip.SourceAddress()), Dst: addrOf(ip.DestinationAddress()), raw: packet}
	switch tcpip.TransportProtocolNumber(ip.NextHeader()) {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		p.Kind = Flow
	case header.ICMPv6ProtocolNumber:
		p.Kind = kindOfICMP(packet[header.IPv6MinimumSize:])
	}
	return p, true
}

func kindOfICMP(message []byte) PacketKind {
	if len(message) < header.ICMPv6EchoMinimumSize {
		return Other
	}
	switch header.ICMPv6(message).Type() {
	case header.ICMPv6EchoRequest:
		return EchoRequest
	case header.ICMPv6DstUnreachable, header.ICMPv6PacketTooBig, header.ICMPv6TimeExceeded, header.ICMPv6ParamProblem:
		return Flow
	}
	return Other
}

// EchoReply returns the answer to an echo request, as a packet of its own.
func (p Packet) EchoReply() []byte {
	reply := append([]byte(nil), p.raw...)
	ip := header.IPv6(reply)
	src, dst := ip.DestinationAddress(), ip.SourceAddress()
	ip.SetSourceAddress(src)
	ip.SetDestinationAddress(dst)
	ip.SetHopLimit(64)
	ip.SetPayloadLength(uint16(len(reply) - header.IPv6MinimumSize))
	seal(reply[header.IPv6MinimumSize:], header.ICMPv6EchoReply, 0, src, dst)
	return reply
}

// PortUnreachable returns what tells the sender of a datagram that its destination takes none (RFC 4443, section 3.1).
func PortUnreachable(from, to netip.AddrPort) []byte {
	const about = header.IPv6MinimumSize + header.UDPMinimumSize
	packet := make([]byte, header.IPv6MinimumSize+header.ICMPv6DstUnreachableMinimumSize+about)
	src, dst := tcpip.AddrFrom16(to.Addr().As16()), tcpip.AddrFrom16(from.Addr().As16())
	header.IPv6(packet).Encode(&header.IPv6Fields{
		PayloadLength:     uint16(len(packet) - header.IPv6MinimumSize),
		TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst,
	})
	message := packet[header.IPv6MinimumSize:]
	datagram := message[header.ICMPv6DstUnreachableMinimumSize:]
	header.IPv6(datagram).Encode(&header.IPv6Fields{
		PayloadLength: header.UDPMinimumSize, TransportProtocol: header.UDPProtocolNumber, HopLimit: 64, SrcAddr: dst,
		DstAddr: src,
	})
	header.UDP(datagram[header.IPv6MinimumSize:]).Encode(&header.UDPFields{
		SrcPort: from.Port(), DstPort: to.Port(), Length: header.UDPMinimumSize,
	})
	seal(message, header.ICMPv6DstUnreachable, header.ICMPv6PortUnreachable, src, dst)
	return packet
}

// seal sets the type and the checksum of an ICMP message.
func seal(message []byte, kind header.ICMPv6Type, code header.ICMPv6Code, src, dst tcpip.Address) {
	icmp := header.ICMPv6(message)
	icmp.SetType(kind)
	icmp.SetCode(code)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: icmp, Src: src, Dst: dst,
	}))
}
