package stream

import (
	"net"
	"net/netip"
	"time"
)

// Number returns the stream's number, which is unique among the streams that the same end opened.
func (c *Conn) Number() uint64 { return c.id.number }

func (c *Conn) LocalAddr() net.Addr  { return addr{} }
func (c *Conn) RemoteAddr() net.Addr { return addr{c.a.peer, c.port} }

// addr is the address of one end of a stream. The mesh has more useful addresses.
type addr struct {
	ip   netip.Addr
	port uint16
}

func (addr) Network() string  { return "stream" }
func (a addr) String() string { return netip.AddrPortFrom(a.ip, a.port).String() }

func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(&c.rdl, t) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wdl, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	d.set(t)
	return nil
}
