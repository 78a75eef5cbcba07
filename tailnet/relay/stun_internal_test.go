package relay

import (
	"net/netip"
	"testing"

	"tailscale.com/net/stun"
)

func FuzzAnswerSTUN(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(stun.Request(stun.NewTxID()))
	from := netip.MustParseAddrPort("[::ffff:192.0.2.1]:1234")
	f.Fuzz(func(t *testing.T, datagram []byte) {
		reply, ok := answerSTUN(datagram, from)
		if !ok {
			return
		}
		// An attacker who forges the sender's address must not gain bandwidth.
		if len(reply) > len(datagram) {
			t.Errorf("%d bytes answered by %d", len(datagram), len(reply))
		}
		if _, addr, err := stun.ParseResponse(reply); err != nil || addr != netip.MustParseAddrPort("192.0.2.1:1234") {
			t.Errorf("own response: %s, %v", addr, err)
		}
	})
}
