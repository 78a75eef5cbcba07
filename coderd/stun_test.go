package coderd_test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestFurtherSTUN: participants learn of the STUN servers that the operator names. A client asks them if this server
// answers no STUN; if it does, its answer may be enough.
func TestFurtherSTUN(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"off", "127.0.0.1:0"} {
		t.Run(own, func(t *testing.T) {
			t.Parallel()
			further, err := net.ListenPacket("udp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer further.Close()
			s := coderdtest.Start(t, func(o *coderd.Options) {
				o.STUNAddress, o.STUNServers = own, []string{further.LocalAddr().String()}
			})
			if _, stun := s.Mesh.Relays(); !stun {
				t.Error("the health report says that there is no STUN")
			}
			if diff := cmp.Diff([]string{further.LocalAddr().String()}, s.Mesh.RelayMap().STUN); diff != "" {
				t.Errorf("STUN servers in the relay map (-want +got):\n%s", diff)
			}
			if own != "off" {
				return
			}
			client := s.Join(coderdtest.AsUser(s.Token("ann")))
			if err := further.SetReadDeadline(time.Now().Add(testwait.Patience)); err != nil {
				t.Fatal(err)
			}
			packet := make([]byte, 1500)
			for {
				n, from, err := further.ReadFrom(packet)
				const magic = 0x2112A442 // RFC 8489, section 5
				if err != nil || n < 20 || binary.BigEndian.Uint32(packet[4:]) != magic {
					t.Fatalf("%x, %v: want a STUN request", packet[:n], err)
				}
				if from.(*net.UDPAddr).Port == int(client.Node.Status().ListenOn) {
					break // else it is the server's own node's
				}
			}
		})
	}
}

// TestSTUNServers checks the addresses of a setting.
func TestSTUNServers(t *testing.T) {
	t.Parallel()
	for text, n := range map[string]int{
		"": 0, "disable": 0, "stun.example.com:3478": 1, "192.0.2.1:3478,[2001:db8::1]:3478": 2, "a:1,b:2,c:3,d:4": 4,
		"a:1,b:2,c:3,d:4,e:5": -1, "stun.example.com": -1, "stun.example.com:0": -1, "stun.example.com:65536": -1, ":3478": -1, "a:1,disable": -1,
		strings.Repeat("x", 300) + ":3478": -1, "stun:stun.example.com:3478": -1,
	} {
		var list []string
		if text != "" {
			list = strings.Split(text, ",")
		}
		got, err := mesh.ParseSTUNServers("--derp-server-stun-addresses", list)
		if n < 0 && (fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "--derp-server-stun-addresses")) || n >= 0 && (err != nil || len(got) != n) {
			t.Errorf("%.60q: %q, %v", text, got, err)
		}
	}
}
