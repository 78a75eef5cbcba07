package engine

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// admit reports whether a packet from a peer goes to the network stack. WireGuard has bound its source address to the
// peer's key. The stack asks whether it may open a connection if it has none for the packet: see stack.go. admit
// passes TCP, UDP, streams, and the ICMP errors about these, as well as echo requests from peers that may send them. It
// passes nothing else: no fragments and no extension headers.
func (e *Engine) admit(packet []byte) bool {
	if len(packet) < header.IPv6MinimumSize || packet[0]>>4 != header.IPv6Version {
		return false
	}
	ip := header.IPv6(packet)
	if addrOf(ip.DestinationAddress()) != e.opts.Addr {
		return false
	}
	switch tcpip.TransportProtocolNumber(ip.NextHeader()) {
	case header.TCPProtocolNumber, header.UDPProtocolNumber, streamProtocol:
		return true
	case header.ICMPv6ProtocolNumber:
		return e.admitICMP(addrOf(ip.SourceAddress()), packet[header.IPv6MinimumSize:])
	}
	return false
}

func (e *Engine) admitICMP(from netip.Addr, message []byte) bool {
	if len(message) < header.ICMPv6MinimumSize {
		return false
	}
	icmp := header.ICMPv6(message)
	switch icmp.Type() {
	case header.ICMPv6EchoRequest:
		return e.opts.AdmitEcho(from)
	case header.ICMPv6EchoReply:
		e.echoes.answered(from, icmp.Ident())
		return false
	case header.ICMPv6DstUnreachable, header.ICMPv6PacketTooBig, header.ICMPv6TimeExceeded, header.ICMPv6ParamProblem:
		return true
	}
	return false
}

// echoRequest returns an ICMPv6 echo request from one node to another.
func echoRequest(from, to netip.Addr, ident uint16) []byte {
	packet := make([]byte, header.IPv6MinimumSize+header.ICMPv6EchoMinimumSize)
	src, dst := tcpip.AddrFrom16(from.As16()), tcpip.AddrFrom16(to.As16())
	header.IPv6(packet).Encode(&header.IPv6Fields{
		PayloadLength: header.ICMPv6EchoMinimumSize, TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64,
		SrcAddr: src, DstAddr: dst,
	})
	icmp := header.ICMPv6(packet[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6EchoRequest)
	icmp.SetIdent(ident)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: src, Dst: dst}))
	return packet
}

func addrOf(a tcpip.Address) netip.Addr {
	if a.Len() != 16 {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a.As16())
}
