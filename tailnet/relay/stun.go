package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"tailscale.com/net/stun"
)

// maxSTUN is the size of the receive buffer in bytes, far above any binding request.
const maxSTUN = 1500

// ListenSTUN answers STUN binding requests (RFC 8489) on a UDP address, until Close. It returns the port, which addr
// may leave open.
func (s *Server) ListenSTUN(addr string) (port int, err error) {
	ua, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return 0, fmt.Errorf("listen for STUN: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("listen for STUN: %w", net.ErrClosed)
	}
	c, err := net.ListenUDP("udp", ua)
	if err != nil {
		return 0, fmt.Errorf("listen for STUN: %w", err)
	}
	s.stun = append(s.stun, c)
	s.background.Go(func() { s.serveSTUN(c) })
	return c.LocalAddr().(*net.UDPAddr).Port, nil
}

func (s *Server) serveSTUN(c *net.UDPConn) {
	buf := make([]byte, maxSTUN)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Debug("cannot read STUN request", "err", err)
			time.Sleep(10 * time.Millisecond) // a persistent error must not cause a busy loop
			continue
		}
		if reply, ok := answerSTUN(buf[:n], from); ok {
			if _, err := c.WriteToUDPAddrPort(reply, from); err != nil {
				s.log.Debug("cannot answer STUN request", "err", err)
			}
		}
	}
}

// answerSTUN returns the response to a datagram, if it is a binding request.
func answerSTUN(datagram []byte, from netip.AddrPort) (reply []byte, ok bool) {
	if !stun.Is(datagram) {
		return nil, false
	}
	id, err := stun.ParseBindingRequest(datagram)
	if err != nil {
		return nil, false
	}
	return stun.Response(id, netip.AddrPortFrom(from.Addr().Unmap(), from.Port())), true
}
