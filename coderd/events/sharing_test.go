package events_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestUnsharingIsAnnounced checks that pages of users who lose access to a workspace or template learn it at once, and that the pages of
// other users hear nothing of an object that they never saw.
func TestUnsharingIsAnnounced(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	ws, _ := s.Running("ann", "dev", template.ID)
	ann, tom, bob := s.As("ann"), s.As("tom"), s.User("bob").String()
	share := func(role string) {
		t.Helper()
		if err := ann.UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob: role}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, unshare := range map[string]func(){
		"one": func() { share("") },
		"all": func() {
			if err := ann.DeleteWorkspaceACL(t.Context(), ws.ID); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			share(sdk.RoleUse)
			guest, outsider, owner := open(t, s, "bob"), open(t, s, "eve"), open(t, s, "ann")
			opened := uuid.New()
			change(t, s, everyones(s, opened))
			for _, r := range []*reader{guest, outsider, owner} {
				r.hears("template", opened) // share may still be on its way when a stream opens
			}
			unshare()
			guest.want("workspace", ws.ID)
			owner.want("workspace", ws.ID)
			mark := uuid.New()
			change(t, s, everyones(s, mark))
			outsider.want("template", mark)
			guest.want("template", mark)
			owner.want("template", mark)
		})
	}
	member := open(t, s, "bob")
	if err := tom.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{GroupPerms: map[string]string{s.Org.String(): ""}}); err != nil {
		t.Fatal(err)
	}
	member.want("template", template.ID)
	mark := uuid.New()
	if _, err := tom.UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{Description: new("seen by tom")}); err != nil {
		t.Fatal(err)
	}
	change(t, s, everyones(s, mark))
	member.want("template", mark)
	if err := tom.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{GroupPerms: map[string]string{s.Org.String(): sdk.RoleUse}}); err != nil {
		t.Fatal(err)
	}
	member.want("template", template.ID)
	if _, err := tom.UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DisableEveryoneGroupAccess: true}); err != nil {
		t.Fatal(err)
	}
	member.want("template", template.ID)
}

// TestSharedPortsAreAnnounced checks that pages learn that a port is shared, or no longer.
func TestSharedPortsAreAnnounced(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ws, _ := s.Running("ann", "dev", s.Template("process", nil).ID)
	owner := open(t, s, "ann")
	opened := uuid.New()
	change(t, s, everyones(s, opened))
	owner.hears("template", opened) // the build's end may still be on its way when the stream opens
	if _, err := s.As("ann").SharePort(t.Context(), ws.ID, sdk.UpsertPortShareRequest{AgentName: "main", Port: 8080, ShareLevel: sdk.ShareOrganization}); err != nil {
		t.Fatal(err)
	}
	owner.want("workspace", ws.ID)
	ceiling := sdk.ShareOwner
	if _, err := s.As("tom").UpdateTemplate(t.Context(), ws.TemplateID, sdk.UpdateTemplateRequest{FixedTemplateSettings: sdk.FixedTemplateSettings{MaxPortShareLevel: &ceiling}}); err != nil {
		t.Fatal(err)
	}
	owner.hears("workspace", ws.ID) // among the events of the template
	if _, err := s.As("ann").SharePort(t.Context(), ws.ID, sdk.UpsertPortShareRequest{AgentName: "main", Port: 8080, ShareLevel: sdk.ShareOwner}); err != nil {
		t.Fatal(err)
	}
	owner.want("workspace", ws.ID)
	if err := s.As("ann").DeletePortShare(t.Context(), ws.ID, sdk.DeletePortShareRequest{AgentName: "main", Port: 8080}); err != nil {
		t.Fatal(err)
	}
	owner.want("workspace", ws.ID)
}

// hears skips events until the wanted one.
func (x *reader) hears(event string, id uuid.UUID) {
	x.t.Helper()
	for {
		switch got, which := x.next(); {
		case got == event && which == id:
			return
		case got == "":
			x.t.Fatalf("the stream ended without event %q %s", event, id)
		}
	}
}
