package relay_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// A server offers a relay on its own listener. Only nodes with an admitted key can use it.
func Example() {
	server, err := relay.New(relay.Options{})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", server.Handler())
	mux.Handle("/derp/", server.Handler())
	web := httptest.NewServer(mux)
	defer web.Close()
	defer server.Close()

	node, err := tailnet.New(tailnet.Options{ID: uuid.New()})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	server.Admit(node.PublicKey())
	base, err := url.Parse(web.URL)
	if err != nil {
		log.Fatal(err)
	}
	if err := node.SetRelayMap(tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "home", Name: "Home"}}}, base); err != nil {
		log.Fatal(err)
	}
	for node.Info().Region == 0 {
		<-node.Changed() // until the node is connected to its home relay
	}
	fmt.Println("relayed in region", node.Info().Region)
	// Output: relayed in region 1
}
