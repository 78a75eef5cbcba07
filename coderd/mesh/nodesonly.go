package mesh

import (
	"net"
	"net/http"
	"path"
	"strings"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
)

// NodesOnly answers requests that come to a listener's address only if they are those of the mesh's nodes: to the
// coordinator and the relay.
func NodesOnly(local net.Addr, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		asked := path.Clean(r.URL.Path)
		mesh := asked == protocol.Path || asked == "/derp" || strings.HasPrefix(asked, "/derp/")
		if ok && at.String() == local.String() && !mesh {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
