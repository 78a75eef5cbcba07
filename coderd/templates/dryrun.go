package templates

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) createDryRun(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	if err := s.mayRun(ctx, actor, v); err != nil {
		return err
	}
	var req sdk.CreateDryRunRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if len(req.UserVariableValues) > 0 {
		if _, err := s.version(r, rbac.Update); err != nil {
			return err
		}
	}
	var job dbsqlc.ProvisionerJob
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		imports, err := q.GetTemplateJob(ctx, dbsqlc.GetTemplateJobParams{
			ID: v.JobID, Kind: string(sdk.JobTemplateImport),
		})
		if err != nil {
			return err
		}
		if err := imported(v, imports); err != nil {
			return err
		}
		definitions, err := Definitions(ctx, q, v.ID)
		if err != nil {
			return err
		}
		values, err := Resolve(definitions, Values{Given: req.RichParameterValues})
		if err != nil {
			return err
		}
		tags, err := Tags(ctx, q, v.ID, values)
		if err != nil {
			return err
		}
		job, err = s.opts.Jobs.Insert(ctx, q, jobs.NewJob{
			Kind: string(sdk.JobTemplateDryRun), Org: v.OrganizationID, Initiator: actor.UserID, FileID: imports.FileID,
			Tags: tags,
			Input: DryRunInput{
				TemplateVersionID: v.ID, WorkspaceName: database.Text(req.WorkspaceName), Parameters: values,
				Variables: req.UserVariableValues,
			},
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, dryRunEntry(job, v))
	})
	if err != nil {
		return fmt.Errorf("create dry run: %w", err)
	}
	return s.writeJob(w, r, http.StatusCreated, job.ID)
}

// mayRun returns a fault unless the actor may run the version as a new workspace does: reading it does not suffice.
// Those who upload a version run it before it belongs to a template.
func (s *Service) mayRun(ctx context.Context, actor rbac.Actor, v dbsqlc.TemplateVersion) error {
	if err := actor.InScope("workspace:create"); err != nil {
		return err
	}
	_, object, err := s.findVersion(ctx, v.ID)
	if err != nil || v.TemplateID == nil && v.CreatedBy == actor.UserID {
		return err
	}
	return actor.May(rbac.Use, object.As(rbac.Template))
}

// dryRunEntry returns the entry of the audit log for a dry run of a version.
func dryRunEntry(job dbsqlc.ProvisionerJob, v dbsqlc.TemplateVersion) audit.Entry {
	return audit.Entry{ID: job.ID, Name: "dry run of " + v.Name, Organization: job.OrganizationID, Fields: map[string]any{"template_version_id": v.ID}}
}

func (s *Service) writeJob(w http.ResponseWriter, r *http.Request, status int, id uuid.UUID) error {
	shown, err := s.opts.Jobs.JSON(r.Context(), s.opts.DB.Queries, id)
	if err != nil {
		return fmt.Errorf("show dry run: %w", err)
	}
	return httpapi.Write(w, status, shown[id])
}

// dryRun returns the job in the path, a dry run of the version in the path, if the actor may perform the action on it.
func (s *Service) dryRun(r *http.Request, action rbac.Action) (dbsqlc.ProvisionerJob, error) {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	id, err := httpapi.PathUUID(r, "job")
	if err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	job, err := s.opts.DB.GetTemplateJob(r.Context(), dbsqlc.GetTemplateJobParams{
		ID: id, Kind: string(sdk.JobTemplateDryRun),
	})
	if err != nil {
		return job, lookup.Fault(err, rbac.ProvisionerJob, "read dry run")
	}
	in, err := decodeDryRun(job)
	if err != nil {
		return job, err
	}
	if in.TemplateVersionID != v.ID || in.WorkspaceID != nil {
		return job, rbac.NotFound(rbac.ProvisionerJob)
	}
	return job, httpapi.ActorFrom(r.Context()).May(action,
		rbac.Of(rbac.ProvisionerJob, job.InitiatorID).In(job.OrganizationID))
}

func (s *Service) getDryRun(w http.ResponseWriter, r *http.Request) error {
	job, err := s.dryRun(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.writeJob(w, r, http.StatusOK, job.ID)
}

func (s *Service) dryRunLogs(w http.ResponseWriter, r *http.Request) error {
	job, err := s.dryRun(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.opts.Jobs.ServeLogs(w, r, job.ID)
}

func (s *Service) dryRunResources(w http.ResponseWriter, r *http.Request) error {
	job, err := s.dryRun(r, rbac.Read)
	if err != nil {
		return err
	}
	if job.CompletedAt == nil {
		return fault.New(fault.Conflict, "The dry run has not ended yet.").WithDetail("It is %s.", job.Status)
	}
	return s.writeResources(w, r, job.ID)
}

func (s *Service) dryRunProvisioners(w http.ResponseWriter, r *http.Request) error {
	job, err := s.dryRun(r, rbac.Read)
	if err != nil {
		return err
	}
	matched, err := s.opts.Jobs.Matched(r.Context(), s.opts.DB.Queries, job.ID)
	if err != nil {
		return fmt.Errorf("match provisioners: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, matched[job.ID])
}

func (s *Service) cancelDryRun(w http.ResponseWriter, r *http.Request) error {
	job, err := s.dryRun(r, rbac.Update)
	if err != nil {
		return err
	}
	if err := s.opts.Jobs.Cancel(r.Context(), job.ID, audit.Entry{
		ID: job.ID, Name: "dry run", Organization: job.OrganizationID,
	}); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The dry run is being canceled."})
}
