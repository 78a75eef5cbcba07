package mesh_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestNewServerLinksAtOnce checks that a server that has just started links to the others without waiting for them to dial, and lends them its
// relay: they cannot reach it.
func TestNewServerLinksAtOnce(t *testing.T) {
	t.Parallel()
	older := newWorld(t)
	shared := coderdtest.New(t, func(o *coderd.Options) { o.DB, o.States = older.DB, older.States })
	newer := &world{shared, shared.Mesh}
	for _, w := range []*world{older, newer} {
		w.DialBackAfter(24 * time.Hour)
		w.start(t)
	}
	nowhere := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	older.SetReplicas([]mesh.Replica{{ID: newer.Mesh.ID(), URL: nowhere, Started: 1}})
	newer.SetReplicas([]mesh.Replica{{ID: older.Mesh.ID(), URL: older.URL, Started: -1}})
	for _, w := range []*world{older, newer} {
		testwait.Until(t, "the link, and the other server's relay", func() error {
			links := w.ServerLinks()
			return testwait.Unless(len(links) == 1 && links[0].Connected && links[0].RelayConnected, "links %+v", links)
		})
	}
}
