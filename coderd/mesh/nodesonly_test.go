package mesh_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/mesh"
)

// TestNodesOnly checks what the port for a server's own nodes answers, which every program of the machine reaches: what
// nodes ask, and neither pages nor the API.
func TestNodesOnly(t *testing.T) {
	t.Parallel()
	local, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	web := httptest.NewUnstartedServer(mesh.NodesOnly(local.Addr(), all))
	web.Start()
	defer web.Close()
	own := &http.Server{Handler: web.Config.Handler} //nolint:gosec // ends with the test
	go own.Serve(local)
	defer own.Close()
	for _, test := range []struct {
		path           string
		atWeb, atLocal int
	}{
		{"/derp", 200, 200},
		{"/derp/probe", 200, 200},
		{"/api/v2/mesh/coordinate", 200, 200},
		{"/", 200, 404},
		{"/api/v2/users/me", 200, 404},
		{"/api/v2/mesh/coordinate/more", 200, 404},
		{"/api/v2/mesh/link", 200, 404},
		{"/derpy", 200, 404},
		{"/derp/../api/v2/users/me", 200, 404},
	} {
		for at, want := range map[string]int{web.URL: test.atWeb, "http://" + local.Addr().String(): test.atLocal} {
			req := httptest.NewRequest(http.MethodGet, at, nil)
			req.URL.Path, req.RequestURI = test.path, ""
			res, err := web.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s%s: status %d, want %d", at, test.path, res.StatusCode, want)
			}
		}
	}
}
