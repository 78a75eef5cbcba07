package pubsub

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The names are those that dashboards for this API expect.
var (
	connectedDesc = prometheus.NewDesc("coder_pubsub_connected",
		"1 while this server listens for what other servers announce.", nil, nil)
	channelsDesc = prometheus.NewDesc("coder_pubsub_current_events", "Channels that this server listens on.", nil,
		nil)
	subscribersDesc = prometheus.NewDesc("coder_pubsub_current_subscribers",
		"Parts of this server that listen on them.", nil, nil)
	messagesDesc = prometheus.NewDesc("coder_pubsub_messages_total", "Messages that this server received.",
		[]string{"size"}, nil)
	receivedDesc   = prometheus.NewDesc("coder_pubsub_received_bytes_total", "Bytes of their payloads.", nil, nil)
	publishesDesc  = prometheus.NewDesc("coder_pubsub_publishes_total", "Messages that this server sent outside of transactions; most are sent by the transactions of changes.", []string{"success"}, nil)
	publishedDesc  = prometheus.NewDesc("coder_pubsub_published_bytes_total", "Bytes of their payloads.", nil, nil)
	subscribesDesc = prometheus.NewDesc("coder_pubsub_subscribes_total", "Subscriptions that began.",
		[]string{"success"}, nil)
	lostDesc = prometheus.NewDesc("coder_pubsub_disconnections_total",
		"How often the listening connection was lost.", nil, nil)
)

// counts are a Postgres' since its start.
type counts struct {
	messages, received, published, publishedBytes, unpublished, subscribed, lost atomic.Int64
}

// Describe names the metrics.
func (*Postgres) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		connectedDesc, channelsDesc, subscribersDesc, messagesDesc, receivedDesc, publishesDesc, publishedDesc, subscribesDesc, lostDesc,
	} {
		out <- d
	}
}

// Collect reads the metrics.
func (p *Postgres) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	counter := func(d *prometheus.Desc, n *atomic.Int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	p.mu.Lock()
	connected := p.connected
	p.mu.Unlock()
	channels, subscribers := p.table.size()
	up := 0
	if connected {
		up = 1
	}
	gauge(connectedDesc, up)
	gauge(channelsDesc, channels)
	gauge(subscribersDesc, subscribers)
	counter(messagesDesc, &p.counts.messages, "normal")
	counter(receivedDesc, &p.counts.received)
	counter(publishesDesc, &p.counts.published, strconv.FormatBool(true))
	counter(publishesDesc, &p.counts.unpublished, strconv.FormatBool(false))
	counter(publishedDesc, &p.counts.publishedBytes)
	counter(subscribesDesc, &p.counts.subscribed, strconv.FormatBool(true))
	counter(lostDesc, &p.counts.lost)
}

// size returns how many channels and subscribers there are.
func (t *table) size() (channels, subscribers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.channels {
		subscribers += len(list)
	}
	return len(t.channels), subscribers
}
