package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxListed bounds one page of a list.
const maxListed = 1000

// Routes registers the queue's routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/organizations/{organization}/provisionerdaemons",
		rbac.Needs(rbac.Read, rbac.ProvisionerDaemon), s.listDaemons)
	mux.Handle("GET /api/v2/organizations/{organization}/provisionerkeys/daemons",
		rbac.Needs(rbac.Read, rbac.ProvisionerKey), s.listKeyDaemons)
	mux.Handle("GET /api/v2/organizations/{organization}/provisionerjobs", rbac.Needs(rbac.Read, rbac.ProvisionerJob),
		s.listJobs)
	mux.Handle("GET /api/v2/organizations/{organization}/provisionerjobs/{job}",
		rbac.Needs(rbac.Read, rbac.ProvisionerJob), s.getJob)
	mux.Handle("PATCH /api/v2/organizations/{organization}/provisionerjobs/{job}/cancel",
		rbac.Needs(rbac.Update, rbac.ProvisionerJob), s.cancelJob, audit.On(audit.Cancel, audit.ProvisionerJob))
}

func (s *Service) listDaemons(w http.ResponseWriter, r *http.Request) error {
	org, err := lookup.Organization(r, s.opts.DB.Queries, httpapi.ActorFrom(r.Context()))
	if err != nil {
		return err
	}
	filter, err := readDaemonFilter(r)
	if err != nil {
		return err
	}
	out, err := s.visibleDaemons(r.Context(), org, filter)
	if err != nil {
		return err
	}
	if filter.limit > 0 {
		out = out[:min(len(out), filter.limit)]
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// listKeyDaemons lists an organization's keys, each with the daemons that joined with it.
func (s *Service) listKeyDaemons(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.opts.DB.Queries, actor)
	if err != nil {
		return err
	}
	if err := actor.May(rbac.Read, rbac.Of(rbac.ProvisionerKey, uuid.Nil).In(org.ID)); err != nil {
		return err
	}
	keys, err := s.opts.DB.ListProvisionerKeys(ctx, org.ID)
	if err != nil {
		return fmt.Errorf("list provisioner keys: %w", err)
	}
	daemons, err := s.visibleDaemons(ctx, org, daemonFilter{})
	if err != nil {
		return err
	}
	out := make([]sdk.ProvisionerKeyDaemons, len(keys))
	for i, key := range keys {
		tags, err := decodeTags(key.Tags)
		if err != nil {
			return err
		}
		out[i].Key = sdk.ProvisionerKey{
			ID: key.ID, CreatedAt: key.CreatedAt, OrganizationID: key.OrganizationID, Name: key.Name, Tags: tags,
		}
		for _, d := range daemons {
			if d.KeyID == key.ID {
				out[i].Daemons = append(out[i].Daemons, d)
			}
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// visibleDaemons returns the daemons of an organization that the actor sees and the filter keeps: online ones first,
// then by name.
func (s *Service) visibleDaemons(
	ctx context.Context, org dbsqlc.Organization, filter daemonFilter,
) ([]sdk.ProvisionerDaemon, error) {
	actor := httpapi.ActorFrom(ctx)
	rows, err := s.opts.DB.ListProvisioners(ctx, org.ID)
	if err != nil {
		return nil, fmt.Errorf("list provisioners: %w", err)
	}
	if !actor.Sees(rbac.ProvisionerDaemon, org.ID) {
		rows = slices.DeleteFunc(rows, func(row dbsqlc.ProvisionerDaemon) bool { return !ownDaemon(row, actor.UserID) })
	}
	rows = slices.DeleteFunc(rows, func(row dbsqlc.ProvisionerDaemon) bool { return !filter.keeps(row) })
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	leased, err := s.opts.DB.ListLeasedJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list running jobs: %w", err)
	}
	last, err := s.opts.DB.ListLastJobs(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list ended jobs: %w", err)
	}
	// A built-in daemon may run another organization's job, of which this one's administrators learn nothing.
	foreign := func(job dbsqlc.ProvisionerJob) bool { return job.OrganizationID != org.ID }
	leased, last = slices.DeleteFunc(leased, foreign), slices.DeleteFunc(last, foreign)
	shown, err := s.show(ctx, s.opts.DB.Queries, slices.Concat(leased, last))
	if err != nil {
		return nil, err
	}
	var paths map[uuid.UUID]string
	if s.opts.Mesh != nil {
		paths = s.opts.Mesh.Paths()
	}
	out := make([]sdk.ProvisionerDaemon, 0, len(rows))
	for _, row := range rows {
		d, err := s.daemonJSON(row, paths[row.ID], jobOf(row.ID, leased, shown), jobOf(row.ID, last, shown))
		if err != nil {
			return nil, err
		}
		if len(filter.statuses) == 0 || slices.Contains(filter.statuses, string(d.Status)) {
			out = append(out, d)
		}
	}
	return out, nil
}

// ownDaemon reports whether a daemon serves only the user.
func ownDaemon(row dbsqlc.ProvisionerDaemon, user uuid.UUID) bool {
	tags, err := decodeTags(row.Tags)
	return err == nil && tags[jobtags.Scope] == jobtags.User && tags[jobtags.Owner] == user.String()
}

// jobOf returns the first of these jobs that belongs to the daemon, nil for none.
func jobOf(
	daemon uuid.UUID, rows []dbsqlc.ProvisionerJob, shown map[uuid.UUID]sdk.ProvisionerJob,
) *sdk.ProvisionerDaemonJob {
	for _, row := range rows {
		if row.WorkerID != nil && *row.WorkerID == daemon {
			m := shown[row.ID].Metadata
			return &sdk.ProvisionerDaemonJob{
				ID: row.ID, Status: sdk.JobStatus(row.Status), TemplateName: m.TemplateName,
				TemplateIcon: m.TemplateIcon, TemplateDisplayName: m.TemplateDisplayName,
			}
		}
	}
	return nil
}

// listJobs lists the jobs that the actor may see: their own, or all.
func (s *Service) listJobs(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.opts.DB.Queries, actor)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", 50, maxListed)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, 1<<30)
	if err != nil {
		return err
	}
	p := dbsqlc.ListJobsParams{
		OrganizationID: org.ID, Statuses: queryList(r, "status"), PageLimit: int32(limit), PageOffset: int32(offset),
	}
	if p.Ids, err = queryIDs(r, "ids"); err != nil {
		return err
	}
	tags, err := queryTags(r)
	if err != nil {
		return err
	}
	if p.Tags, err = json.Marshal(tags); err != nil {
		return err
	}
	if p.InitiatorID, err = s.queryInitiator(r); err != nil {
		return err
	}
	if !actor.Sees(rbac.ProvisionerJob, org.ID) {
		if p.InitiatorID != nil && *p.InitiatorID != actor.UserID {
			return httpapi.Write(w, http.StatusOK, []sdk.ProvisionerJob{}) // also for a user who does not exist
		}
		p.InitiatorID = &actor.UserID
	}
	rows, err := s.opts.DB.ListJobs(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	shown, err := s.show(r.Context(), s.opts.DB.Queries, rows)
	if err != nil {
		return err
	}
	out := make([]sdk.ProvisionerJob, len(rows))
	for i, row := range rows {
		out[i] = shown[row.ID]
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// job returns the job in the path if the actor may perform the action on it.
func (s *Service) job(r *http.Request, action rbac.Action) (dbsqlc.ProvisionerJob, error) {
	actor := httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.opts.DB.Queries, actor)
	if err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	id, err := httpapi.PathUUID(r, "job")
	if err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	row, err := s.opts.DB.GetJob(r.Context(), id)
	if database.IsNotFound(err) || err == nil && row.OrganizationID != org.ID {
		return row, rbac.NotFound(rbac.ProvisionerJob)
	}
	if err != nil {
		return row, fmt.Errorf("read job: %w", err)
	}
	return row, actor.May(action, rbac.Of(rbac.ProvisionerJob, row.InitiatorID).In(row.OrganizationID))
}

func (s *Service) getJob(w http.ResponseWriter, r *http.Request) error {
	row, err := s.job(r, rbac.Read)
	if err != nil {
		return err
	}
	shown, err := s.show(r.Context(), s.opts.DB.Queries, []dbsqlc.ProvisionerJob{row})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, shown[row.ID])
}

func (s *Service) cancelJob(w http.ResponseWriter, r *http.Request) error {
	row, err := s.job(r, rbac.Update)
	if err != nil {
		return err
	}
	cancelable, err := s.opts.DB.GetJobCancelable(r.Context(), row.ID)
	if err != nil {
		return fmt.Errorf("read whether builds may be canceled: %w", err)
	}
	if !cancelable && httpapi.ActorFrom(r.Context()).May(rbac.Update, rbac.Of(rbac.Template, uuid.Nil).In(row.OrganizationID)) != nil {
		return fault.New(fault.Forbidden, "The template does not let users cancel builds.").
			WithDetail("Ask a template admin.")
	}
	if err := s.Cancel(r.Context(), row.ID, audit.Entry{
		ID: row.ID, Name: row.Kind, Organization: row.OrganizationID,
	}); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The job is being canceled."})
}
