package coderd_test

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestSharingIsSwitchedOff: administrators of an organization end the sharing of its workspaces and ports, after which their owners cannot
// share, and can again later. What was shared does not come back.
func TestSharingIsSwitchedOff(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	const setting = "organizations/{org}/settings/workspace-sharing"
	share := step{as: "ann", method: "PATCH", path: "workspaces/{ws}/acl", body: `{"user_roles":{"{bob}":"use"}}`, status: 204}
	port := step{as: "ann", method: "POST", path: "workspaces/{ws}/port-share", body: `{"agent_name":"main","port":8080,"share_level":"organization","protocol":"http"}`, status: 200}
	refused := func(st step) step {
		st.status, st.text = 403, "disabled in this organization"
		return st
	}
	replay(t, s, known, []step{
		{method: "PATCH", path: "templates/{template}", body: `{"max_port_share_level":"public"}`, status: 200},
		share, port,
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 200},
		// Members, also those who share, and administrators of templates only read it.
		{as: "ann", method: "PATCH", path: setting, body: `{"sharing_disabled":true}`, status: 403},
		{as: "tom", method: "PATCH", path: setting, body: `{"sharing_disabled":true}`, status: 403},
		{as: "nobody", method: "PATCH", path: setting, body: `{"sharing_disabled":true}`, status: 401},
		{as: "ann", method: "GET", path: setting, status: 200, want: `{"sharing_disabled":false}`},
		{method: "PATCH", path: "organizations/{none}/settings/workspace-sharing", body: `{"sharing_disabled":true}`, status: 404},
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 200},

		{method: "PATCH", path: setting, body: `{"sharing_disabled":true}`, status: 200, want: `{"sharing_disabled":true}`},
		{as: "ann", method: "GET", path: setting, status: 200, want: `{"sharing_disabled":true}`},
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 404},
		{as: "ann", method: "GET", path: "workspaces/{ws}/acl", status: 200, want: `{"users":[],"group":[]}`},
		{as: "ann", method: "GET", path: "workspaces/{ws}/port-share", status: 200, want: `{"shares":[]}`},
		refused(share), refused(port),
		// What shares nothing is not refused.
		{as: "ann", method: "PATCH", path: "workspaces/{ws}/acl", body: `{"user_roles":{"{bob}":""}}`, status: 204},
		{as: "ann", method: "DELETE", path: "workspaces/{ws}/acl", status: 204},
		// Strangers learn nothing of it.
		{as: "bob", method: "PATCH", path: "workspaces/{ws}/acl", body: `{"user_roles":{"{bob}":"use"}}`, status: 404},
		{method: "GET", path: "audit?q=resource_type:organization%20action:write", status: 200, text: `{"workspaces_no_longer_shared":1}`},

		{method: "PATCH", path: setting, body: `{"sharing_disabled":false}`, status: 200, want: `{"sharing_disabled":false}`},
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 404},
		share, port,
		{as: "bob", method: "GET", path: "workspaces/{ws}", status: 200},
	})
}

// TestBrowserOnly: users' programs are not introduced to agents, nor let in by the gateways, and pages are. Strangers learn
// no more than elsewhere.
func TestBrowserOnly(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{true, false} {
		s := coderdtest.New(t, func(o *coderd.Options) { o.BrowserOnly = only })
		_, agent := s.Running("ann", "dev", s.Template("process", nil).ID)
		want := map[string]fault.Code{"ann": "", "bob": fault.NotFound}
		if only {
			want["ann"] = fault.Forbidden
		}
		for name, code := range want {
			actor, err := s.Users.Actor(t.Context(), s.User(name))
			if err != nil {
				t.Fatal(err)
			}
			if err := coderd.Reachable(s.Server).MayConnect(t.Context(), actor, agent); fault.CodeOf(err) != code {
				t.Errorf("browser only %t: %s's program got %v, want %q", only, name, err, code)
			}
			page := fault.Code("")
			if name == "bob" {
				page = fault.NotFound
			}
			if err := s.Agents.MayConnect(t.Context(), actor, agent); fault.CodeOf(err) != page {
				t.Errorf("browser only %t: %s's page got %v, want %q", only, name, err, page)
			}
		}
		got, err := s.As("ann").Entitlements(t.Context())
		if err != nil || got.Features["browser_only"].Enabled != only {
			t.Errorf("browser only %t: %+v, %v", only, got.Features["browser_only"], err)
		}
	}
}

// TestSharingDuringTheSwitch: whatever owners share while sharing is switched off, nothing is shared afterwards.
func TestSharingDuringTheSwitch(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	bob := s.User("bob")
	workspaces := []uuid.UUID{uuid.MustParse(known["ws"])}
	for _, name := range []string{"one", "two"} {
		ws, _ := s.Running("ann", name, s.Template("t-"+name, nil).ID)
		workspaces = append(workspaces, ws.ID)
	}
	var wg sync.WaitGroup
	for _, ws := range workspaces {
		wg.Go(func() {
			for range 5 {
				err := s.As("ann").UpdateWorkspaceACL(t.Context(), ws, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob.String(): sdk.RoleUse}})
				if err != nil && fault.CodeOf(err) != fault.Forbidden {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		if _, err := s.As("olga").SetWorkspaceSharing(t.Context(), known["org"], sdk.WorkspaceSharingSettings{SharingDisabled: true}); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	for _, ws := range workspaces {
		acl, err := s.As("ann").WorkspaceACL(t.Context(), ws)
		if err != nil || len(acl.Users) > 0 {
			t.Errorf("%s is shared: %+v, %v", ws, acl, err)
		}
	}
}

// TestHealthChecksAreDismissed: owners of the deployment dismiss checks by the names that other programs for this API use, and only they.
func TestHealthChecksAreDismissed(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	const settings = "debug/health/settings"
	replay(t, s, known, []step{
		{as: "ann", method: "PUT", path: settings, body: `{"dismissed_healthchecks":["DERP"]}`, status: 403},
		{as: "tom", method: "PUT", path: settings, body: `{"dismissed_healthchecks":["DERP"]}`, status: 403},
		{as: "nobody", method: "PUT", path: settings, body: `{"dismissed_healthchecks":["DERP"]}`, status: 401},
		{as: "ann", method: "GET", path: settings, status: 403},
		{method: "PUT", path: settings, body: `{"dismissed_healthchecks":["Horoscope"]}`, status: 400, text: "ProvisionerDaemons"},
		{method: "GET", path: settings, status: 200, want: `{"dismissed_healthchecks":[]}`},
		{method: "PUT", path: settings, body: `{"dismissed_healthchecks":["WorkspaceProxy","DERP","relay","servers"]}`, status: 200, want: `{"dismissed_healthchecks":["DERP","Servers","WorkspaceProxy"]}`},
		{method: "GET", path: settings, status: 200, want: `{"dismissed_healthchecks":["DERP","Servers","WorkspaceProxy"]}`},
		{as: "ann", method: "PATCH", path: settings, body: `{"undismiss":["DERP"]}`, status: 403},
		{as: "nobody", method: "PATCH", path: settings, body: `{"undismiss":["DERP"]}`, status: 401},
		{method: "PATCH", path: settings, body: `{"undismiss":["Horoscope"]}`, status: 400, text: "ProvisionerDaemons"},
		{method: "PATCH", path: settings, body: `{"undismiss":["DERP"],"dismiss":["relay"]}`, status: 400, text: "at once"},
		{method: "PATCH", path: settings, body: `{"undismiss":["DERP","Database"],"dismiss":["access_url","Servers"]}`, status: 200, want: `{"dismissed_healthchecks":["AccessURL","Servers","WorkspaceProxy"]}`},
		{method: "GET", path: settings, status: 200, want: `{"dismissed_healthchecks":["AccessURL","Servers","WorkspaceProxy"]}`},
		{method: "PUT", path: settings, body: `{"dismissed_healthchecks":[]}`, status: 200, want: `{"dismissed_healthchecks":[]}`},
		{method: "GET", path: "audit?q=resource_type:health_settings", status: 200, want: `{"count":6}`}, // three changes, and three attempts without the right
	})
}

// TestHealthChecksAreDismissedAtOnce: owners who dismiss different checks at the same time lose none.
func TestHealthChecksAreDismissedAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := clientWorld(t)
	client := s.As("olga")
	var wg sync.WaitGroup
	want := slices.Sorted(maps.Values(sdk.HealthChecks))
	for _, name := range want {
		wg.Go(func() {
			if _, err := client.PatchHealthSettings(t.Context(), sdk.PatchHealthSettingsRequest{Dismiss: []string{name}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := client.PatchHealthSettings(t.Context(), sdk.PatchHealthSettingsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, []string(got.DismissedHealthchecks)); diff != "" {
		t.Errorf("dismissed (-want +got):\n%s", diff)
	}
}
