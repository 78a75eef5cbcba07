package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests. Dashboards for this API expect these names. path is a route's pattern, so it has as many
// values as there are routes.
type metrics struct {
	processed  *prometheus.CounterVec   // code, method, path
	latency    *prometheus.HistogramVec // method, path
	concurrent *prometheus.GaugeVec     // method, path
	sockets    *prometheus.GaugeVec     // path
	socketTime *prometheus.HistogramVec // path
	unaudited  prometheus.Counter
}

// newMetrics creates the metrics and registers them with into, unless that is nil.
func newMetrics(into prometheus.Registerer) *metrics {
	const space, part = "coderd", "api"
	m := &metrics{
		processed: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: space, Subsystem: part, Name: "requests_processed_total",
			Help: "Requests that were answered."}, []string{"code", "method", "path"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: space, Subsystem: part, Name: "request_latencies_seconds",
			Help: "Time from a request to the end of its answer, without websockets.", Buckets: []float64{.001, .005, .01, .025, .05, .1, .5, 1, 5, 10, 30}}, []string{"method", "path"}),
		concurrent: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: space, Subsystem: part, Name: "concurrent_requests",
			Help: "Requests that are being answered, without websockets."}, []string{"method", "path"}),
		sockets: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: space, Subsystem: part, Name: "concurrent_websockets",
			Help: "Websockets that are open."}, []string{"path"}),
		socketTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: space, Subsystem: part, Name: "websocket_durations_seconds",
			Help: "How long websockets were open.", Buckets: []float64{.1, 1, 10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}}, []string{"path"}),
		unaudited: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Subsystem: part, Name: "unaudited_requests_total",
			Help: "Requests whose handler recorded nothing in the audit log, which is a defect. The server recorded them without their difference."}),
	}
	if into != nil {
		into.MustRegister(m.processed, m.latency, m.concurrent, m.sockets, m.socketTime, m.unaudited)
	}
	return m
}

// begin counts a request for the mux's pattern. The returned function counts its end.
func (m *metrics) begin(r *http.Request, pattern string) (end func(*response)) {
	start := time.Now()
	path := "unmatched"
	if pattern != "" {
		if path = pattern; strings.Contains(pattern, " ") {
			_, path, _ = strings.Cut(pattern, " ")
		}
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		open := m.sockets.WithLabelValues(path)
		open.Inc()
		return func(w *response) {
			open.Dec()
			m.count(w, r.Method, path)
			m.socketTime.WithLabelValues(path).Observe(time.Since(start).Seconds())
		}
	}
	method := knownMethod(r.Method)
	running := m.concurrent.WithLabelValues(method, path)
	running.Inc()
	return func(w *response) {
		running.Dec()
		m.count(w, method, path)
		m.latency.WithLabelValues(method, path).Observe(time.Since(start).Seconds())
	}
}

func (m *metrics) count(w *response, method, path string) {
	m.processed.WithLabelValues(strconv.Itoa(w.code()), knownMethod(method), path).Inc()
}

// knownMethod prevents clients from creating labels.
func knownMethod(method string) string {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}, method) {
		return method
	}
	return "other"
}
