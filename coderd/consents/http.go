package consents

import (
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/sdk"
)

// target returns the user in the path, who must be the actor: no role lets a user see or change another's consents.
func (s *Service) target(r *http.Request, action rbac.Action) (uuid.UUID, error) {
	actor := httpapi.ActorFrom(r.Context())
	user, err := s.opts.Accounts.Find(r.Context(), actor, r.PathValue("user"))
	if err != nil {
		return uuid.Nil, err
	}
	if err := actor.May(rbac.Read, rbac.Of(rbac.User, user.ID)); err != nil {
		return uuid.Nil, err
	}
	return user.ID, actor.May(action, rbac.Of(rbac.TemplateConsent, user.ID))
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	user, err := s.target(r, rbac.Read)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListTemplateConsents(r.Context(), user)
	if err != nil {
		return fmt.Errorf("list consents: %w", err)
	}
	out := make([]sdk.TemplateConsent, len(rows))
	for i, row := range rows {
		out[i] = sdk.TemplateConsent(row)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) revoke(w http.ResponseWriter, r *http.Request) error {
	user, err := s.target(r, rbac.Delete)
	if err != nil {
		return err
	}
	template, err := httpapi.PathUUID(r, "template")
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		found, err := withdraw(r.Context(), q, user, template)
		if err == nil && !found {
			return rbac.NotFound(rbac.TemplateConsent)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke consent: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
