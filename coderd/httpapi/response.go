package httpapi

import (
	"bufio"
	"net"
	"net/http"
	"sync"
)

// response records what was answered. Everything else passes through: flushing, hijacking, and http.ResponseController
// through Unwrap.
type response struct {
	http.ResponseWriter
	status   int // 0: nothing written yet
	bytes    int64
	hijacked bool
	created  bool             // what is read answers a request that created it: 200 becomes 201
	begins   func(status int) // called once, before the answer's status is sent; may be nil

	mu   sync.Mutex // guards what follows
	conn net.Conn   // the hijacked connection
	left bool       // the handler is returning
}

// code returns the status of an answer that has ended.
func (w *response) code() int {
	switch {
	case w.status == 0 && w.hijacked:
		return http.StatusSwitchingProtocols
	case w.status == 0:
		return http.StatusOK // the server's status for a handler that sets none
	}
	return w.status
}

func (w *response) started() bool { return w.status != 0 || w.hijacked }

// begin sets the status of the answer.
func (w *response) begin(status int) {
	if w.begins != nil {
		w.begins(status)
	}
	w.status = status
}

func (w *response) WriteHeader(status int) {
	if w.created && status == http.StatusOK {
		status = http.StatusCreated
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) Flush() {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	// A writer that cannot flush does not buffer either.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		w.mu.Lock()
		w.conn = conn
		w.mu.Unlock()
	}
	return conn, rw, err
}
