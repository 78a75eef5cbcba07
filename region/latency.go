package region

import (
	"io"
	"net/http"
)

// LatencyPath is where servers and proxies answer pages that measure the round trip to them.
const LatencyPath = "/latency-check"

// AnswerLatency serves LatencyPath. The answer is the same for everyone, so pages of every origin may read it and its
// timing.
func AnswerLatency(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Timing-Allow-Origin", "*")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "OK") // an error means that the client has disconnected
}
