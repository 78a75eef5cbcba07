package engine

import (
	"context"
	"net"
)

// sockets opens magicsock's UDP sockets and sets their options before they are used. magicsock's only hook for this is the
// option TestOnlyPacketListener.
type sockets struct{}

func (sockets) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	l := net.ListenConfig{Control: allowFragments}
	return l.ListenPacket(ctx, network, address)
}
