package coderdtest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/meshport"
)

// ServeRPC serves unencrypted HTTP/2 on loopback, as RPCs are served on the mesh. It returns the address.
func ServeRPC(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	serveRPC(t, server)
	return server.URL
}

// ServeRPC serves RPCs on the member's node, as an agent does.
func (m *Member) ServeRPC(handler http.Handler) {
	m.T.Helper()
	listener, err := m.Node.Listen(meshport.AgentRPC)
	if err != nil {
		m.T.Fatal(err)
	}
	serveRPC(m.T, &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}})
}

func serveRPC(t testing.TB, server *httptest.Server) {
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
}

// RPCClient returns a client for unencrypted HTTP/2 over connections that dial creates.
func RPCClient(t testing.TB, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
