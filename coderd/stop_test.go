package coderd_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestStopClosesListenersFirst checks that a stopping server accepts no connection once it has ended those of the mesh: a thousand agents that
// try again at once would keep it from stopping.
func TestStopClosesListenersFirst(t *testing.T) {
	s := coderdtest.Start(t)
	s.User("ann")
	u := s.URL.JoinPath(protocol.Path)
	u.RawQuery = url.Values{"v": {strconv.Itoa(protocol.Version)}, "key": {tailnet.NewPrivateKey().Public().String()}}.Encode()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	defer cancel()
	ws, err := websock.Dial(ctx, u, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {s.Token("ann")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if _, err := ws.Read(ctx); err != nil { // the welcome
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(ctx) }()
	for {
		data, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "the server is stopping") {
			break
		}
	}
	// The server waits for this participant to close its connection now.
	if conn, err := net.Dial("tcp", s.URL.Host); err == nil {
		conn.Close()
		t.Error("the server accepts a connection after it has ended those of the mesh")
	}
	ws.CloseNow()
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}
