package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

var (
	participants = prometheus.NewDesc("codermesh_mesh_participants",
		"Participants of the mesh that are, or were last, connected to this server.", []string{"state"}, nil)
	serverLinks = prometheus.NewDesc("codermesh_server_links", "Links of this server to other servers.",
		[]string{"state"}, nil)
	serverRTT = prometheus.NewDesc("codermesh_server_link_rtt_seconds",
		"Latest round trip on this server's link to another server.", []string{"server"}, nil)
	relayNodes = prometheus.NewDesc("codermesh_relay_connections", "Nodes that are connected to this server's relay.",
		nil, nil)
	relayBytes = prometheus.NewDesc("codermesh_relay_bytes_total",
		"Bytes of packets that this server's relay sent to, and received from, its nodes.", []string{"direction"}, nil)
	relayPackets = prometheus.NewDesc("codermesh_relay_forwarded_packets_total",
		"Packets between this server's relay and those of other servers.", []string{"direction"}, nil)
)

// MeshNumbers are this server's numbers of the mesh.
type MeshNumbers struct {
	Online, Lost, RelayConnections   int
	SentBytes, ReceivedBytes         int64 // between the relay and its nodes
	ForwardedSent, ForwardedReceived int64 // packets
	Links                            []sdk.ServerLink
}

// Mesh is a prometheus.Collector of this server's part of the mesh.
type Mesh struct {
	numbers func() MeshNumbers
}

// NewMesh returns a collector that calls numbers for each scrape.
func NewMesh(numbers func() MeshNumbers) *Mesh { return &Mesh{numbers} }

// Describe names the metrics.
func (*Mesh) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{participants, serverLinks, serverRTT, relayNodes, relayBytes, relayPackets} {
		out <- d
	}
}

// Collect reads the numbers.
func (m *Mesh) Collect(out chan<- prometheus.Metric) {
	n := m.numbers()
	out <- gauge(participants, float64(n.Online), "online")
	out <- gauge(participants, float64(n.Lost), "lost")
	out <- gauge(relayNodes, float64(n.RelayConnections))
	out <- counter(relayBytes, float64(n.SentBytes), "sent")
	out <- counter(relayBytes, float64(n.ReceivedBytes), "received")
	out <- counter(relayPackets, float64(n.ForwardedSent), "sent")
	out <- counter(relayPackets, float64(n.ForwardedReceived), "received")
	up := 0
	for _, l := range n.Links {
		if !l.Connected {
			continue
		}
		up++
		if l.LatencyMillis > 0 {
			out <- gauge(serverRTT, (time.Duration(l.LatencyMillis * float64(time.Millisecond))).Seconds(),
				l.Server.String())
		}
	}
	out <- gauge(serverLinks, float64(up), "up")
	out <- gauge(serverLinks, float64(len(n.Links)-up), "down")
}
