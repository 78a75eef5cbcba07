package tailnet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/codermesh/codermesh/internal/websock"
)

// TestBridgeLetsGo: the relay learns of the end of each connection, also of those that are busy then.
func TestBridgeLetsGo(t *testing.T) {
	t.Parallel()
	const rounds = 100
	ended := make(chan struct{}, rounds)
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		far, err := websock.AcceptNetConn(context.Background(), w, r, websock.AcceptOptions{Subprotocol: "derp"})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { ended <- struct{}{} }()
		defer far.Close()
		for ; err == nil; time.Sleep(10 * time.Microsecond) {
			_, err = far.Write(make([]byte, 10))
		}
	}))
	defer relay.Close()
	target, err := url.Parse(relay.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		b, err := newBridge(target, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		near, err := net.Dial("tcp", b.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(near, "GET /derp HTTP/1.1\r\nHost: %s\r\nUpgrade: DERP\r\nConnection: Upgrade\r\n\r\n", b.host)
		if _, err := io.CopyN(io.Discard, bufio.NewReader(near), 500); err != nil {
			t.Fatal(err)
		}
		b.close()
		near.Close()
	}
	for i := range rounds {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d connections are still open at the relay", rounds-i, rounds)
		}
	}
}

// TestBridgeServesNobodyElse: other users of the machine can reach the bridge's port.
func TestBridgeServesNobodyElse(t *testing.T) {
	t.Parallel()
	b, err := newBridge(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for host, want := range map[string]int{
		"":                         http.StatusForbidden,
		"bridge.invalid":           http.StatusForbidden,
		"x" + b.host:               http.StatusForbidden,
		b.host:                     http.StatusBadGateway, // it tries, and there is no relay
		b.host + ":80":             http.StatusBadGateway,
		"localhost":                http.StatusForbidden,
		b.listener.Addr().String(): http.StatusForbidden,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.listener.Addr().String()+"/derp", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Upgrade", "DERP")
		req.Header.Set("Connection", "Upgrade")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q: got %s, want %d", host, resp.Status, want)
		}
	}
}
