package coderdtest

import (
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// File stores a source archive that a user has uploaded, once for each content.
func (s *Rows) File(owner string) (id uuid.UUID) {
	s.T.Helper()
	if err := s.DB.Pool.QueryRow(s.T.Context(), `INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, encode(sha256($2), 'hex'), 'application/x-tar', $2, $3)
		ON CONFLICT (sha256, created_by) DO UPDATE SET mimetype = excluded.mimetype RETURNING id`,
		uuid.New(), append([]byte{}, s.Archive...), s.User(owner)).Scan(&id); err != nil {
		s.T.Fatal(err)
	}
	return id
}

// Version makes tom upload and import a version of a template; nil creates a new one. found is what the import finds in
// it.
func (s *Server) Version(template *uuid.UUID, found *provisionerpb.ImportResult) sdk.TemplateVersion {
	s.T.Helper()
	v, err := s.As("tom").CreateTemplateVersion(s.T.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		TemplateID: template, StorageMethod: sdk.StorageFile, FileID: s.File("tom"),
		Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	s.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found}})
	v, err = s.As("tom").TemplateVersion(s.T.Context(), v.ID)
	if err != nil || v.Job.Status != sdk.JobSucceeded {
		s.T.Fatalf("import: %s %q, %v", v.Job.Status, v.Job.Error, err)
	}
	return v
}

// Template creates a template with one version, whose workspaces may share ports and apps with everyone.
func (s *Server) Template(name string, found *provisionerpb.ImportResult) sdk.Template {
	s.T.Helper()
	v := s.Version(nil, found)
	everyone := sdk.SharePublic
	t, err := s.As("tom").CreateTemplate(s.T.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{
		Name: name, VersionID: v.ID, FixedTemplateSettings: sdk.FixedTemplateSettings{MaxPortShareLevel: &everyone},
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return t
}

// Workspace creates a workspace whose first build has not run yet.
func (s *Server) Workspace(owner, name string, template uuid.UUID, values ...sdk.ParameterValue) sdk.Workspace {
	s.T.Helper()
	ws, err := s.As(owner).CreateWorkspace(s.T.Context(), sdk.Me, sdk.CreateWorkspaceRequest{
		TemplateID: template, Name: name, RichParameterValues: values,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return ws
}

// Running creates a workspace and runs its first build, which leaves one agent.
func (s *Server) Running(owner, name string, template uuid.UUID) (sdk.Workspace, uuid.UUID) {
	s.T.Helper()
	ws := s.Workspace(owner, name, template)
	agent := uuid.New()
	s.Daemon().Next().Finish(Built("state 1", Resource(agent)))
	return s.Get(ws.ID), agent
}

// Get returns a workspace that is not deleted, as an owner of the deployment sees it.
func (s *Server) Get(id uuid.UUID) sdk.Workspace {
	s.T.Helper()
	ws, err := s.As("olga").Workspace(s.T.Context(), id)
	if err != nil {
		s.T.Fatal(err)
	}
	return ws
}

// Is is a check for testwait.Until: a workspace has a status.
func (s *Server) Is(id uuid.UUID, want sdk.WorkspaceStatus) func() error {
	return func() error {
		got := s.Get(id).LatestBuild
		return testwait.Unless(got.Status == want, "it is %s, want %s: %+v", got.Status, want, got.Job)
	}
}

// Ended is a check for testwait.Until: a workspace's latest build has ended.
func (s *Server) Ended(id uuid.UUID) func() error {
	return func() error {
		job := s.Get(id).LatestBuild.Job
		return testwait.Unless(job.Status.Ended(), "its job is %+v", job)
	}
}

// Build creates a build that has not run yet.
func (s *Server) Build(
	owner string, workspace uuid.UUID, transition sdk.Transition, values ...sdk.ParameterValue,
) sdk.WorkspaceBuild {
	s.T.Helper()
	b, err := s.As(owner).CreateBuild(s.T.Context(), workspace, sdk.CreateBuildRequest{
		Transition: transition, RichParameterValues: values,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return b
}
