package workspaces

import (
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// listAutofill answers with the values that a user gave the parameters of a template most recently, so that a form can
// begin with them. It leaves out values that are masked or for one build only, and parameters that the template's
// active version does not have.
func (s *Service) listAutofill(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	user, err := s.opts.Users.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	id, err := uuid.Parse(r.URL.Query().Get("template_id"))
	if err != nil {
		return fault.New(fault.Invalid, "The request must name a template.").
			WithField("template_id", "must be the id of a template")
	}
	t, err := s.opts.DB.GetTemplate(ctx, id)
	if err != nil {
		return lookup.Fault(err, rbac.Template, "read template")
	}
	if err := actor.May(rbac.Read, templates.Object(t)); err != nil {
		return err
	}
	if err := actor.May(rbac.Read, rbac.Of(rbac.Workspace, user.ID).In(t.OrganizationID)); err != nil {
		return err
	}
	rows, err := s.opts.DB.ListRecentParameters(ctx, dbsqlc.ListRecentParametersParams{
		OwnerID: user.ID, TemplateID: t.ID,
	})
	if err != nil {
		return fmt.Errorf("list recent parameters: %w", err)
	}
	definitions, err := templates.Definitions(ctx, s.opts.DB.Queries, t.ActiveVersionID)
	if err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, d := range definitions {
		shown[d.Name] = !d.Masked() && !d.Ephemeral
	}
	out := sdk.List[sdk.ParameterValue]{}
	for _, row := range rows {
		if shown[row.Name] {
			out = append(out, sdk.ParameterValue{Name: row.Name, Value: row.Value})
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}
