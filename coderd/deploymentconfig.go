package coderd

import (
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// deploymentConfig answers with this server's settings. The program has left secrets out.
func (s *Server) deploymentConfig(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.DeploymentConfig{Options: s.opts.Settings})
}
