package tailnet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// Two nodes connect through a relay. In the product, the coordinator admits their keys and introduces them.
func Example() {
	derp, err := relay.New(relay.Options{})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", derp.Handler())
	mux.Handle("/derp/", derp.Handler())
	web := httptest.NewServer(mux)
	defer web.Close()
	defer derp.Close()

	serverURL, err := url.Parse(web.URL)
	if err != nil {
		log.Fatal(err)
	}
	relays := tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "home", Name: "Home"}}}
	start := func() *tailnet.Node {
		node, err := tailnet.New(tailnet.Options{ID: uuid.New()})
		if err != nil {
			log.Fatal(err)
		}
		derp.Admit(node.PublicKey())
		if err := node.SetRelayMap(relays, serverURL); err != nil {
			log.Fatal(err)
		}
		for node.Info().Region == 0 {
			<-node.Changed() // until the node has chosen its home relay
		}
		return node
	}
	laptop, workspace := start(), start()
	defer laptop.Close()
	defer workspace.Close()

	listener, err := workspace.Listen(7)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.Copy(conn, conn)
	}()

	// Introduce the nodes to each other. The laptop may open port 7 of the workspace, and the workspace may open nothing.
	if err := laptop.Upsert(tailnet.Peer{NodeInfo: workspace.Info(), Inbound: tailnet.InboundNone}); err != nil {
		log.Fatal(err)
	}
	if err := workspace.Upsert(tailnet.Peer{NodeInfo: laptop.Info(), Inbound: tailnet.InboundPorts(7)}); err != nil {
		log.Fatal(err)
	}
	conn, err := laptop.Dial(context.Background(), "tcp", netip.AddrPortFrom(workspace.Addr(), 7))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "hello, mesh")
	echo := make([]byte, len("hello, mesh"))
	if _, err := io.ReadFull(conn, echo); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(echo))
	// Output: hello, mesh
}
