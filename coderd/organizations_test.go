package coderd_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
)

// west creates an organization, of which dan is no member; he administers the default one.
func (p *people) west() sdk.Organization {
	p.t.Helper()
	org, err := p.olga.CreateOrganization(p.t.Context(), sdk.CreateOrganizationRequest{Name: "west"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.User("dan")
	if _, err := p.olga.UpdateOrganizationMemberRoles(p.t.Context(), sdk.DefaultOrganization, "dan", sdk.UpdateRolesRequest{Roles: []string{"organization-admin"}}); err != nil {
		p.t.Fatal(err)
	}
	return org
}

// waitingIn starts an import in an organization, and returns its version without waiting for a provisioner.
func (p *people) waitingIn(organization string) sdk.TemplateVersion {
	p.t.Helper()
	archive, err := echo.Script{"import": {{WaitStop: true}}}.Archive()
	if err != nil {
		p.t.Fatal(err)
	}
	file, err := p.tom.Upload(p.t.Context(), sdk.ContentTypeTar, strings.NewReader(string(archive)))
	if err != nil {
		p.t.Fatal(err)
	}
	v, err := p.tom.CreateTemplateVersion(p.t.Context(), organization, sdk.CreateTemplateVersionRequest{
		StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// TestProvisionersOfOrganizations checks that provisioners take the jobs of their own organization only, and that its administrators
// see nothing of other organizations' jobs.
func TestProvisionersOfOrganizations(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	west := p.west()
	p.mustJoin(coderdtest.ProvisionerHeader("east-1", sdk.ProvisionerKeyHeader, p.key("east", nil)))
	v := p.waitingIn("west")
	if v.MatchedProvisioners == nil || v.MatchedProvisioners.Count != 0 {
		t.Errorf("a daemon of the default organization matches a job of west: %+v", v.MatchedProvisioners)
	}
	p.importing(nil) // the daemon of the default organization has chosen, after the job of west was in the queue
	if got, err := p.tom.TemplateVersion(t.Context(), v.ID); err != nil || got.Job.Status != sdk.JobPending {
		t.Fatalf("the job of west: %+v, %v", got.Job.Status, err)
	}
	dan := p.As("dan")
	missing := func(what string, err error) {
		t.Helper()
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := dan.ProvisionerJobs(t.Context(), "west", sdk.JobsQuery{})
	missing("another organization's jobs", err)
	for _, org := range []string{"west", "default"} {
		_, err = dan.ProvisionerJob(t.Context(), org, v.Job.ID)
		missing("another organization's job in "+org, err)
		missing("cancel it in "+org, dan.CancelJob(t.Context(), org, v.Job.ID))
	}
	_, err = dan.TemplateVersion(t.Context(), v.ID)
	missing("another organization's version", err)
	_, err = dan.CreateProvisionerKey(t.Context(), "west", sdk.CreateProvisionerKeyRequest{Name: "x"})
	missing("a key in another organization", err)

	// A daemon with a key of west takes the job.
	made, err := p.olga.CreateProvisionerKey(t.Context(), "west", sdk.CreateProvisionerKeyRequest{Name: "west"})
	if err != nil {
		t.Fatal(err)
	}
	danKey, danToken := session(dan)
	annKey, annToken := session(p.ann)
	for name, row := range map[string]struct {
		header http.Header
		want   fault.Code
	}{
		"a key of another organization":   {coderdtest.ProvisionerHeader("x", sdk.ProvisionerKeyHeader, made.Key, sdk.ProvisionerOrganizationHeader, "default"), fault.Invalid},
		"an unknown organization":         {coderdtest.ProvisionerHeader("x", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal(), sdk.ProvisionerOrganizationHeader, "nowhere"), fault.Invalid},
		"an admin of another one":         {coderdtest.ProvisionerHeader("x", danKey, danToken, sdk.ProvisionerOrganizationHeader, "west"), fault.Invalid},
		"an outsider, for their own jobs": {coderdtest.ProvisionerHeader("x", annKey, annToken, sdk.ProvisionerTagsHeader, "scope=user", sdk.ProvisionerOrganizationHeader, "west"), fault.Invalid},
	} {
		if _, err := p.JoinProvisioner(row.header); fault.CodeOf(err) != row.want {
			t.Errorf("%s: got %v, want %s", name, err, row.want)
		}
	}
	p.mustJoin(coderdtest.ProvisionerHeader("dans", danKey, danToken)) // an organization's admin, for that organization
	p.mustJoin(coderdtest.ProvisionerHeader("west-1", sdk.ProvisionerKeyHeader, made.Key, sdk.ProvisionerOrganizationHeader, "west"))
	p.await(v.ID, sdk.JobRunning)
	list := func(org string) (names []string) {
		t.Helper()
		all, err := p.olga.ProvisionerDaemons(t.Context(), org)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			names = append(names, d.Name)
			if org == "west" && d.OrganizationID != west.ID {
				t.Errorf("%s belongs to %s", d.Name, d.OrganizationID)
			}
		}
		return names
	}
	if got := strings.Join(list("west"), " "); got != "west-1" {
		t.Errorf("provisioners of west: %s", got)
	}
	if got := strings.Join(list("default"), " "); got != "dans east-1" {
		t.Errorf("provisioners of the default organization: %s", got)
	}
}

// TestBuiltInServesAll checks that built-in provisioners take the jobs of every organization, and show each organization's
// administrators only its own.
func TestBuiltInServesAll(t *testing.T) {
	t.Parallel()
	exec := &echo.Executor{}
	t.Cleanup(func() {
		if err := exec.Close(); err != nil {
			t.Error(err)
		}
	})
	s := coderdtest.Start(t, func(o *coderd.Options) { o.Executors = []job.Executor{exec} })
	p := &people{s, t, s.As("olga"), s.As("tom"), s.As("ann")}
	p.west()
	v := p.waitingIn("west")
	p.await(v.ID, sdk.JobRunning)
	for name, busy := range map[string]bool{"default": false, "west": true} {
		c := p.olga
		if name == "default" {
			c = p.As("dan")
		}
		all, err := c.ProvisionerDaemons(t.Context(), name)
		if err != nil || len(all) != 1 {
			t.Fatalf("provisioners of %s: %+v, %v", name, all, err)
		}
		if (all[0].CurrentJob != nil && all[0].CurrentJob.ID == v.Job.ID) != busy {
			t.Errorf("%s sees the job %+v", name, all[0].CurrentJob)
		}
	}
	if err := p.tom.CancelTemplateVersion(t.Context(), v.ID); err != nil { // the server would wait for it
		t.Fatal(err)
	}
	p.await(v.ID, sdk.JobCanceled)
}
