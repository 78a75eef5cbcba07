package wggateway

// Port returns the UDP port that the gateway listens at, 0 before Start.
func (g *Gateway) Port() uint16 {
	if wire := g.listening(); wire != nil {
		return wire.Port()
	}
	return 0
}
