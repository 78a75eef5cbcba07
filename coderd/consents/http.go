package consents

import (
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.TemplateConsent)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListTemplateConsents(r.Context(), user.ID)
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
	user, err := s.opts.Accounts.Target(r, rbac.Delete, rbac.TemplateConsent)
	if err != nil {
		return err
	}
	template, err := httpapi.PathUUID(r, "template")
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		found, err := withdraw(r.Context(), q, user.ID, template)
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
