package session

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestNetworkInfoNamesLatency: the relay that is named always has a latency, also before one was measured.
func TestNetworkInfoNamesLatency(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		measured time.Duration
		want     float64
	}{"measured": {20 * time.Millisecond, 20}, "not measured": {0, 7}} {
		info, _ := describe(tailnet.Status{Region: 1, Relays: []tailnet.RelayLink{{ID: 1, Code: "home", Latency: c.measured}}}, &target.Target{}, tailnet.PeerStatus{}, time.Second)
		info.Latency = 7
		info.complete()
		if got, has := info.DERPLatency[info.PreferredDERP]; info.PreferredDERP != "home" || !has || got != c.want {
			t.Errorf("%s: %+v, want %v", name, info, c.want)
		}
	}
	info, _ := describe(tailnet.Status{}, &target.Target{}, tailnet.PeerStatus{}, time.Second)
	info.complete()
	if _, has := info.DERPLatency[info.PreferredDERP]; !has {
		t.Errorf("without a relay: %+v", info)
	}
}
