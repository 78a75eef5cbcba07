package templates

import (
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Archived versions stay where they are used: workspaces that were built from one can be started, stopped and deleted.
// Lists leave them out, and neither new workspaces nor templates can choose them.

func (s *Service) archiveVersion(w http.ResponseWriter, r *http.Request) error {
	return s.setArchived(w, r, true, "The version is archived.")
}

func (s *Service) unarchiveVersion(w http.ResponseWriter, r *http.Request) error {
	return s.setArchived(w, r, false, "The version is no longer archived.")
}

func (s *Service) setArchived(w http.ResponseWriter, r *http.Request, archived bool, done string) error {
	ctx := r.Context()
	v, err := s.version(r, rbac.Update)
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if v.TemplateID != nil {
			t, err := q.LockTemplate(ctx, *v.TemplateID) // so that the version does not become active meanwhile
			if err != nil {
				return lookup.Fault(err, rbac.Template, "lock template")
			}
			if archived && t.ActiveVersionID == v.ID {
				return fault.New(fault.Conflict, "Version %q is the active version of the template %s.", v.Name, t.Name).
					WithDetail("Promote another version first: coder templates versions promote")
			}
		}
		before, err := q.GetTemplateVersion(ctx, v.ID)
		if err != nil {
			return lookup.Fault(err, rbac.TemplateVersion, "read template version")
		}
		job, err := q.GetTemplateJob(ctx, dbsqlc.GetTemplateJobParams{ID: v.JobID, Kind: string(sdk.JobTemplateImport)})
		if err != nil {
			return fmt.Errorf("read import job: %w", err)
		}
		if archived && !sdk.JobStatus(job.Status).Ended() {
			return fault.New(fault.Conflict, "The import of version %q has not finished.", v.Name).
				WithDetail("Try again when it has finished, or cancel it.")
		}
		after, err := q.SetTemplateVersionArchived(ctx, dbsqlc.SetTemplateVersionArchivedParams{
			ID: v.ID, Archived: archived,
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfTemplateVersion(before, after))
	})
	if err != nil {
		return fmt.Errorf("archive template version: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: done})
}

func (s *Service) archiveVersions(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	t, err := s.template(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.ArchiveTemplateVersionsRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	out := sdk.ArchiveTemplateVersionsResponse{TemplateID: t.ID}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		out.ArchivedIDs = nil // of a try that the database ended
		locked, err := q.LockTemplate(ctx, t.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Template, "lock template")
		}
		rows, err := q.ArchiveUnusedTemplateVersions(ctx, dbsqlc.ArchiveUnusedTemplateVersionsParams{
			TemplateID: &t.ID, SucceededToo: req.All,
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			before := row.TemplateVersion
			before.Archived = false
			if err := audit.Record(ctx, q, audit.OfTemplateVersion(before, row.TemplateVersion)); err != nil {
				return err
			}
			out.ArchivedIDs = append(out.ArchivedIDs, row.TemplateVersion.ID)
		}
		if len(rows) == 0 {
			return audit.Record(ctx, q, audit.OfTemplate(locked, locked)) // asked for, with nothing to do
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("archive template versions: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// RefuseArchived returns a fault if a version cannot be chosen because it is archived. The caller holds the version's
// template, if it has one.
func RefuseArchived(v dbsqlc.TemplateVersion) error {
	if !v.Archived {
		return nil
	}
	return fault.New(fault.Invalid, "Version %q is archived.", v.Name).
		WithDetail("Choose another version, or unarchive it: coder templates versions unarchive").
		WithField("template_version_id", "is archived")
}
