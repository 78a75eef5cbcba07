package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCut checks that cut ends an answer while its handler runs and does nothing afterwards, when HTTP/2's response writer would panic.
func TestCut(t *testing.T) {
	t.Parallel()
	answers := make(chan *response, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &response{ResponseWriter: rw}
		defer w.leave()
		if r.URL.Path == "/hangs" {
			w.Flush()
			answers <- w
			<-r.Context().Done()
			return
		}
		answers <- w
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	client := &http.Client{Transport: transport}

	resp, err := client.Get(server.URL + "/hangs")
	if err != nil {
		t.Fatal(err)
	}
	(<-answers).cut()
	if n, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Errorf("a handler that hangs went on after the cut: %d bytes", n)
	}
	resp.Body.Close()

	resp, err = client.Get(server.URL + "/returns")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	transport.CloseIdleConnections()
	server.Close() // the server has nothing of the answers left
	(<-answers).cut()
}
