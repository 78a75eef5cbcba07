package tailnet

import "net"

// Over reports whether the stack sends nothing any more for a TCP connection of Dial's or a listener's.
func Over(c net.Conn) bool { return c.(*tcpConn).TCPConn.Over() }
