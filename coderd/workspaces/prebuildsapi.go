package workspaces

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// prebuildsSetting is the key of the stored settings.
const prebuildsSetting = "prebuilds"

// prebuildsSettings are stored. Failures from before ResumedAt do not count: an administrator who resumes wants to try
// again.
type prebuildsSettings struct {
	sdk.PrebuildsSettings
	ResumedAt time.Time `json:"resumed_at"`
}

func storedPrebuilds(ctx context.Context, q *dbsqlc.Queries) (stored prebuildsSettings, err error) {
	text, err := q.GetSetting(ctx, prebuildsSetting)
	if database.IsNotFound(err) {
		return stored, nil
	}
	if err != nil {
		return stored, fmt.Errorf("read settings of prebuilt workspaces: %w", err)
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return stored, fmt.Errorf("decode settings of prebuilt workspaces: %w", err)
	}
	return stored, nil
}

func (s *Service) getPrebuilds(w http.ResponseWriter, r *http.Request) error {
	stored, err := storedPrebuilds(r.Context(), s.opts.DB.Queries)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, stored.PrebuildsSettings)
}

func (s *Service) putPrebuilds(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	var req sdk.PrebuildsSettings
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := q.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{Key: prebuildsSetting, Value: []byte("{}")}); err != nil {
			return err
		}
		if err := q.LockSetting(ctx, prebuildsSetting); err != nil {
			return err
		}
		before, err := storedPrebuilds(ctx, q)
		if err != nil {
			return err
		}
		after := prebuildsSettings{PrebuildsSettings: req, ResumedAt: before.ResumedAt}
		if !req.ReconciliationPaused {
			after.ResumedAt = s.opts.Now()
		}
		text, err := json.Marshal(after)
		if err != nil {
			return fmt.Errorf("encode settings: %w", err)
		}
		if err := q.UpdateSetting(ctx, dbsqlc.UpdateSettingParams{Key: prebuildsSetting, Value: text}); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{Name: "prebuilds", Diff: audit.Diff{}.Field("reconciliation_paused",
			before.ReconciliationPaused, req.ReconciliationPaused)})
	})
	if err != nil {
		return fmt.Errorf("store settings of prebuilt workspaces: %w", err)
	}
	if !req.ReconciliationPaused {
		s.taken.Poke()
	}
	return httpapi.Write(w, http.StatusOK, req)
}

// template reads the template in the path of the request, with which the actor may do action.
func (s *Service) template(r *http.Request, action rbac.Action) (dbsqlc.Template, error) {
	id, err := httpapi.PathUUID(r, "template")
	if err != nil {
		return dbsqlc.Template{}, err
	}
	t, err := s.opts.DB.GetTemplate(r.Context(), id)
	if err != nil {
		return dbsqlc.Template{}, lookup.Fault(err, rbac.Template, "read template")
	}
	object := rbac.Of(rbac.Template, uuid.Nil).In(t.OrganizationID).SharedWith(t.Sharing).WithID(t.ID)
	return t, httpapi.ActorFrom(r.Context()).May(action, object)
}

// invalidatePrebuilds has all prebuilt workspaces of a template replaced, and returns the presets that they belong to.
func (s *Service) invalidatePrebuilds(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	t, err := s.template(r, rbac.Update)
	if err != nil {
		return err
	}
	var out sdk.InvalidatedPrebuilds
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		out.Invalidated = nil // of a try that the database ended
		rows, err := q.InvalidatePrebuilds(ctx, t.ID)
		if err != nil {
			return err
		}
		for _, row := range rows {
			out.Invalidated = append(out.Invalidated, sdk.InvalidatedPreset{
				TemplateName: t.Name, TemplateVersionName: row.VersionName, PresetName: row.PresetName,
			})
		}
		return audit.Record(ctx, q, audit.Entry{
			ID: t.ID, Name: t.Name, Organization: t.OrganizationID,
			Fields: map[string]any{"invalidated_prebuilds": len(rows)},
		})
	})
	if err != nil {
		return fmt.Errorf("invalidate prebuilt workspaces: %w", err)
	}
	s.taken.Poke()
	return httpapi.Write(w, http.StatusOK, out)
}

// templatePrebuilds serves how many prebuilt workspaces a template has, by preset of its active version.
func (s *Service) templatePrebuilds(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	t, err := s.template(r, rbac.Read)
	if err != nil {
		return err
	}
	settings, err := storedPrebuilds(ctx, s.opts.DB.Queries)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.CountPrebuilds(ctx, dbsqlc.CountPrebuildsParams{
		TemplateID: &t.ID, Since: settings.ResumedAt,
	})
	if err != nil {
		return fmt.Errorf("count prebuilt workspaces: %w", err)
	}
	now, out := s.opts.Now(), []sdk.TemplatePrebuilds{}
	for _, row := range rows {
		pool, err := poolOf(row.Prebuilds, row.Failures, row.FailedAt, row.PrebuildProblemAt, settings.ResumedAt)
		if err != nil {
			return err
		}
		shown := sdk.TemplatePrebuilds{
			PresetID: row.PresetID, PresetName: row.PresetName, Desired: pool.Desired(now), Running: int(row.Running),
			Eligible:    int(row.Eligible),
			Explanation: pool.Explain(row.PrebuildProblem, now), ClaimWaits: append([]string{}, row.ClaimWaits...),
		}
		switch {
		case len(row.ClaimWaits) > 0:
			shown.Claims = sdk.ClaimsWait
		case row.ClaimWaits != nil:
			shown.Claims = sdk.ClaimsInstant
		}
		switch {
		case row.Deprecated:
			shown.Desired, shown.Explanation = 0, "The template is deprecated."
		case settings.ReconciliationPaused:
			shown.Explanation = "An administrator paused prebuilt workspaces."
		}
		out = append(out, shown)
	}
	return httpapi.Write(w, http.StatusOK, out)
}
