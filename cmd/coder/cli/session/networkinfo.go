package session

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// networkInfo is the content of the file that IDE plugins read about a connection.
type networkInfo struct {
	P2P              bool               `json:"p2p"`
	Latency          float64            `json:"latency"`        // milliseconds
	PreferredDERP    string             `json:"preferred_derp"` // code of the home relay
	DERPLatency      map[string]float64 `json:"derp_latency"`   // milliseconds
	UploadBytesSec   int64              `json:"upload_bytes_sec"`
	DownloadBytesSec int64              `json:"download_bytes_sec"`
	UsingConnect     bool               `json:"using_coder_connect"` // always false
}

// WriteNetworkInfo writes dir/<parent's pid>.json at each interval until ctx ends, and then removes it.
func (s *Session) WriteNetworkInfo(ctx context.Context, dir string, every time.Duration) {
	log, t := s.Logger, s.Target
	if err := os.MkdirAll(dir, 0o700); err != nil {
		log.Warn("cannot write network information", "err", err)
		return
	}
	path := filepath.Join(dir, fmt.Sprintf("%d.json", os.Getppid()))
	defer os.Remove(path)
	node, err := t.Mesh.Node()
	if err != nil {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before tailnet.PeerStatus
	at := time.Now()
	for {
		probe, cancel := context.WithTimeout(ctx, every)
		pong, err := t.Mesh.Ping(probe, t.Agent.ID)
		cancel()
		// The relay's latency is known when a ping was answered.
		status, now := node.Status(), time.Now()
		info, peer := describe(status, t, before, now.Sub(at))
		before, at = peer, now
		if err == nil {
			info.P2P = pong.Direct
			info.Latency = millis(pong.Latency)
		}
		info.complete()
		data, err := json.Marshal(info)
		if err == nil {
			err = config.WriteFile(path, data, 0o600)
		}
		if err != nil {
			log.Warn("cannot write network information", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// describe summarizes a snapshot. It uses before and elapsed to compute rates.
func describe(
	status tailnet.Status, t *target.Target, before tailnet.PeerStatus, elapsed time.Duration,
) (networkInfo, tailnet.PeerStatus) {
	info := networkInfo{DERPLatency: map[string]float64{}}
	for _, relay := range status.Relays {
		if relay.ID == status.Region {
			info.PreferredDERP = relay.Code
		}
		if relay.Latency > 0 {
			info.DERPLatency[relay.Code] = millis(relay.Latency)
		}
	}
	for _, peer := range status.Peers {
		if peer.ID != t.Agent.ID {
			continue
		}
		info.P2P = peer.Path == tailnet.PathDirect
		// Counters start at zero with each WireGuard session.
		if before.ID == peer.ID && elapsed > 0 {
			info.UploadBytesSec = int64(float64(max(peer.Tx-before.Tx, 0)) / elapsed.Seconds())
			info.DownloadBytesSec = int64(float64(max(peer.Rx-before.Rx, 0)) / elapsed.Seconds())
		}
		return info, peer
	}
	return info, tailnet.PeerStatus{}
}

// complete gives the named relay a latency if none is known: JetBrains Toolbox fails on a name without one. That of the
// whole path, which leads through the relay, is nearest.
func (i *networkInfo) complete() {
	if _, known := i.DERPLatency[i.PreferredDERP]; !known {
		i.DERPLatency[i.PreferredDERP] = i.Latency
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
