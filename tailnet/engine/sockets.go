package engine

import (
	"context"
	"net"
)

// sockets opens magicsock's UDP sockets, with what a new socket has to be set to before it is used. magicsock calls the place in
// its options TestOnlyPacketListener; it has no other one.
type sockets struct{}

func (sockets) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	l := net.ListenConfig{Control: allowFragments}
	return l.ListenPacket(ctx, network, address)
}
