package users

import (
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// connectionTypes serves how a user has connected to workspaces so far. Pages that introduce the product suggest the
// rest.
func (s *Service) connectionTypes(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	types, err := s.db.ListConnectionTypes(r.Context(), user.ID)
	if err != nil {
		return fmt.Errorf("list types of connections: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.ConnectionTypes{Types: types})
}
