package region

import "github.com/prometheus/client_golang/prometheus"

// The relay's metrics have the names of those of the servers' relays, so that sums cover all relays.
var (
	connected = prometheus.NewDesc("codermesh_region_connected",
		"1 while this region proxy is connected to a server that has sent all keys.", nil, nil)
	connections = prometheus.NewDesc("codermesh_region_connections_total",
		"Connections to servers that have sent all keys.", nil, nil)
	admitted   = prometheus.NewDesc("codermesh_region_keys", "Node keys that this region proxy admits.", nil, nil)
	relayNodes = prometheus.NewDesc("codermesh_relay_connections", "Nodes that are connected to this relay.", nil, nil)
	relayBytes = prometheus.NewDesc("codermesh_relay_bytes_total",
		"Bytes of packets that this relay sent to, and received from, its nodes.", []string{"direction"}, nil)
)

// Describe names the metrics.
func (*proxy) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connected, connections, admitted, relayNodes, relayBytes} {
		out <- d
	}
}

// Collect reads the numbers.
func (p *proxy) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	isConnected, synced, keys := 0, p.synced, len(p.keys)
	if p.connected {
		isConnected = 1
	}
	p.mu.Unlock()
	traffic := p.relay.Traffic()
	number := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	number(connected, prometheus.GaugeValue, float64(isConnected))
	number(connections, prometheus.CounterValue, float64(synced))
	number(admitted, prometheus.GaugeValue, float64(keys))
	number(relayNodes, prometheus.GaugeValue, float64(p.relay.Connected()))
	number(relayBytes, prometheus.CounterValue, float64(traffic.SentBytes), "sent")
	number(relayBytes, prometheus.CounterValue, float64(traffic.ReceivedBytes), "received")
}
