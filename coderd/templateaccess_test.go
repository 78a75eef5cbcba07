package coderd_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// status sends a request as a user, and returns the answer's status.
func status(t *testing.T, s *coderdtest.Server, user, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL.String()+"/api/v2/"+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{sdk.SessionHeader: {s.Token(user)}, "Content-Type": {"application/json"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// waysTo are all ways for a user to reach a template with the name "secret" and its version, which report whether that succeeds.
func waysTo(t *testing.T, s *coderdtest.Server, template uuid.UUID, v sdk.TemplateVersion) []func(user string) bool {
	t.Helper()
	return []func(user string) bool{
		func(user string) bool {
			all, err := s.As(user).Templates(t.Context(), "", "")
			return err == nil && len(all) == 1
		},
		func(user string) bool {
			all, err := s.As(user).OrganizationTemplates(t.Context(), sdk.DefaultOrganization, "")
			return err == nil && len(all) == 1
		},
		func(user string) bool {
			return second(s.As(user).TemplateByName(t.Context(), sdk.DefaultOrganization, "secret")) == nil
		},
		func(user string) bool { return second(s.As(user).Template(t.Context(), template)) == nil },
		func(user string) bool { return second(s.As(user).TemplateACL(t.Context(), template)) == nil },
		func(user string) bool { return second(s.As(user).TemplateVersions(t.Context(), template)) == nil },
		func(user string) bool { return second(s.As(user).TemplateVersion(t.Context(), v.ID)) == nil },
		func(user string) bool {
			return status(t, s, user, "GET", "templateversions/"+v.ID.String()+"/rich-parameters", "") == 200
		},
		func(user string) bool {
			return status(t, s, user, "GET", "organizations/default/templates/secret/versions/"+v.Name, "") == 200
		},
		func(user string) bool {
			return status(t, s, user, "POST", "templateversions/"+v.ID.String()+"/dynamic-parameters/evaluate", `{"id":1,"inputs":{}}`) == 200
		},
		func(user string) bool {
			return status(t, s, user, "POST", "templateversions/"+v.ID.String()+"/dry-run", `{"workspace_name":"x"}`) == 201
		},
		func(user string) bool {
			_, err := s.As(user).CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template, Name: "w-" + uuid.NewString()[:8]})
			return err == nil
		},
		func(user string) bool {
			_, err := s.As(user).CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateVersionID: v.ID, Name: "w-" + uuid.NewString()[:8]})
			return err == nil
		},
	}
}

// TestPrivateTemplates: a template without Everyone exists only for those with whom it is shared.
func TestPrivateTemplates(t *testing.T) {
	s := coderdtest.New(t)
	tom := s.As("tom")
	v := s.Version(nil, nil)
	template, err := tom.CreateTemplate(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: "secret", VersionID: v.ID, DisableEveryoneGroupAccess: true})
	if err != nil {
		t.Fatal(err)
	}
	group, err := s.As("olga").CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.As("olga").PatchGroup(t.Context(), group.ID, sdk.PatchGroupRequest{AddUsers: []string{s.User("bob").String()}}); err != nil {
		t.Fatal(err)
	}
	ways := waysTo(t, s, template.ID, v)
	check := func(user string, want bool) {
		t.Helper()
		for i, way := range ways {
			if got := way(user); got != want {
				t.Errorf("way %d of %s: got %t, want %t", i, user, got, want)
			}
		}
	}
	check("eve", false)
	check("bob", false)
	check("tom", true)
	if err := tom.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{GroupPerms: map[string]string{group.ID.String(): "use"}}); err != nil {
		t.Fatal(err)
	}
	check("bob", true)
	check("eve", false)
	if err := tom.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{s.User("eve").String(): "use"}}); err != nil {
		t.Fatal(err)
	}
	check("eve", true)
	acl, err := s.As("bob").TemplateACL(t.Context(), template.ID)
	if err != nil || len(acl.Users) != 1 || acl.Users[0].Username != "eve" || acl.Users[0].Role != "use" || acl.Users[0].Email != "" || len(acl.Groups) != 1 || acl.Groups[0].Name != "devs" {
		t.Errorf("acl: %+v, %v", acl, err)
	}
	available, err := tom.TemplateACLAvailable(t.Context(), template.ID, "ev")
	if err != nil || len(available.Users) != 1 || len(available.Groups) != 2 {
		t.Errorf("available: %+v, %v", available, err)
	}
	if err := tom.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{s.User("eve").String(): ""}}); err != nil {
		t.Fatal(err)
	}
	check("eve", false)
	// use grants no more.
	for what, err := range map[string]error{
		"share":  s.As("bob").UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{s.User("bob").String(): "admin"}}),
		"edit":   second(s.As("bob").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{})),
		"delete": s.As("bob").DeleteTemplate(t.Context(), template.ID),
		"choose": second(s.As("bob").TemplateACLAvailable(t.Context(), template.ID, "")),
	} {
		if fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s with use: %v, want forbidden", what, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestTemplateAdminsByACL: a member with whom one template is shared for administration manages it, and no other.
func TestTemplateAdminsByACL(t *testing.T) {
	s := coderdtest.New(t)
	mine := s.Template("mine", nil)
	s.Archive = []byte("the source of the other template") // or both templates would have the same file
	other := s.Template("other", nil)
	dev := s.As("dev")
	var archive bytes.Buffer
	files := tar.NewWriter(&archive)
	if err := errors.Join(files.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Typeflag: tar.TypeReg}), files.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Upload(t.Context(), sdk.ContentTypeTar, bytes.NewReader(archive.Bytes())); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("upload without a template: %v, want forbidden", err)
	}
	if err := s.As("tom").UpdateTemplateACL(t.Context(), mine.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{s.User("dev").String(): "admin"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Upload(t.Context(), sdk.ContentTypeTar, bytes.NewReader(archive.Bytes())); err != nil {
		t.Errorf("upload: %v", err)
	}
	source, err := s.As("tom").TemplateVersion(t.Context(), mine.ActiveVersionID)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := s.As("tom").TemplateVersion(t.Context(), other.ActiveVersionID)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uuid.UUID]int{source.Job.FileID: 200, foreign.Job.FileID: 404} {
		if got := status(t, s, "dev", "GET", "files/"+id.String(), ""); got != want {
			t.Errorf("source of a template: got %d, want %d", got, want)
		}
	}
	if got := status(t, s, "ann", "GET", "files/"+source.Job.FileID.String(), ""); got != 404 {
		t.Errorf("source of a template, for a member: got %d", got)
	}
	v, err := dev.CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		TemplateID: &mine.ID, StorageMethod: sdk.StorageFile, FileID: s.File("dev"), Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{}})
	if err := dev.UpdateActiveVersion(t.Context(), mine.ID, sdk.UpdateActiveVersionRequest{ID: v.ID}); err != nil {
		t.Error(err)
	}
	if _, err := dev.UpdateTemplate(t.Context(), mine.ID, sdk.UpdateTemplateRequest{DisableEveryoneGroupAccess: true}); err != nil {
		t.Error(err)
	}
	if _, err := s.As("ann").Template(t.Context(), mine.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("made private: %v, want not found", err)
	}
	_, stray := dev.CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{TemplateID: &other.ID, StorageMethod: sdk.StorageFile, FileID: s.File("dev")})
	_, fresh := dev.CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{StorageMethod: sdk.StorageFile, FileID: s.File("dev")})
	for what, err := range map[string]error{
		"push to another": stray, "new template": fresh, "edit another": second(dev.UpdateTemplate(t.Context(), other.ID, sdk.UpdateTemplateRequest{})),
	} {
		if fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
	if err := dev.DeleteTemplate(t.Context(), mine.ID); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestWorkspacesOfATemplateMadePrivate: they go on, stop, start and can be deleted, with the version that they have.
func TestWorkspacesOfATemplateMadePrivate(t *testing.T) {
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	ws, _ := s.Running("ann", "dev", template.ID)
	first := ws.LatestBuild.TemplateVersionID
	next := s.Version(&template.ID, nil)
	if err := s.As("tom").UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: next.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DisableEveryoneGroupAccess: true}); err != nil {
		t.Fatal(err)
	}
	if got := s.Get(ws.ID).LatestBuild.Status; got != sdk.WorkspaceRunning {
		t.Errorf("the workspace is %s", got)
	}
	build := func(transition sdk.Transition) {
		t.Helper()
		b := s.Build("ann", ws.ID, transition)
		if b.TemplateVersionID != first {
			t.Errorf("%s used another version", transition)
		}
		s.Daemon().Next().Finish(coderdtest.Built("state"))
	}
	build(sdk.TransitionStop)
	build(sdk.TransitionStart)
	update := sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: next.ID}
	if _, err := s.As("ann").CreateBuild(t.Context(), ws.ID, update); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("update without access: %v, want forbidden", err)
	}
	if err := s.As("tom").UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{s.User("ann").String(): "use"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.As("ann").CreateBuild(t.Context(), ws.ID, update); err != nil {
		t.Errorf("update with access: %v", err)
	}
	s.Daemon().Next().Finish(coderdtest.Built("state"))
	if err := s.As("tom").UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{s.User("ann").String(): ""}}); err != nil {
		t.Fatal(err)
	}
	s.Build("ann", ws.ID, sdk.TransitionDelete)
}
