package coderdtest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// ServeRPC serves unencrypted HTTP/2 on loopback, as RPCs are served on the mesh. It returns the address.
func ServeRPC(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// RPCClient returns a client for unencrypted HTTP/2 over connections that dial creates.
func RPCClient(t testing.TB, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
