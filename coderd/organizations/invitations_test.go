package organizations_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

type invitation = sdk.OrganizationInvitation

// TestMembershipNeedsConsent is an attacker's attempt: the administrator of an organization adds a user and starts a workspace in their
// name. Nothing but the user's own acceptance makes them a member.
func TestMembershipNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template := uuid.New()
	for _, attacker := range []person{w.ada, w.eve} {
		for _, victim := range []string{"out", "olga2"} {
			w.User(victim)
			answer := call[sdk.InvitedResponse](attacker, 202, "POST", "organizations/east/members/"+victim, nil)
			if answer.Invitation.Username != victim || !strings.Contains(answer.Message, "invited to east") || answer.Invitation.OrganizationID != w.east.ID {
				t.Errorf("the answer is %+v", answer)
			}
			attacker.want(404, "GET", "organizations/east/members/"+victim, nil)
			attacker.want(404, "PUT", "organizations/east/members/"+victim+"/roles", roles{Roles: []string{}})
			body := sdk.CreateWorkspaceRequest{Name: "st", TemplateID: template}
			if code, text := attacker.send("POST", "organizations/east/members/"+victim+"/workspaces", body); code < 400 {
				t.Errorf("%s starts a workspace for %s: %d %s", attacker.name, victim, code, text)
			}
			crew := call[sdk.Group](w.ada, 201, "POST", "organizations/east/groups", sdk.CreateGroupRequest{Name: attacker.name + victim})
			attacker.want(400, "PATCH", "groups/"+crew.ID.String(), sdk.PatchGroupRequest{AddUsers: []string{w.User(victim).String()}})
			// Not even an owner of the deployment can answer for the victim.
			for _, p := range []person{attacker, w.una, w.olga} {
				for _, answer := range []string{"accept", "decline"} {
					if code, text := p.send("POST", "users/"+victim+"/invitations/east/"+answer, nil); code != 403 && code != 404 {
						t.Errorf("%s: %s for %s: %d %s", p.name, answer, victim, code, text)
					}
				}
			}
			attacker.want(204, "DELETE", "organizations/east/invitations/"+victim, nil)
			person{w.Server, victim}.want(404, "POST", "users/me/invitations/east/accept", nil)
		}
	}
}

// TestInvitations follows invitations from both sides.
func TestInvitations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open := func(p person, path string) (out []string) {
		t.Helper()
		for _, i := range call[[]invitation](p, 200, "GET", path, nil) {
			out = append(out, fmt.Sprintf("%s %s %s", i.OrganizationName, i.Username, i.InvitedBy))
		}
		return out
	}
	shows := func(p person, path string, want ...string) {
		t.Helper()
		if got := open(p, path); !slices.Equal(got, want) {
			t.Errorf("%s: %s: %q, want %q", p.name, path, got, want)
		}
	}
	_, rows := w.olga.events("")
	begin := len(rows)
	w.ada.want(202, "POST", "organizations/east/members/out", nil)
	w.wes.want(202, "POST", "organizations/west/members/out", nil)
	shows(w.out, "users/me/invitations", "east out ada", "west out wes")
	shows(w.eve, "organizations/east/invitations", "east out ada")
	w.mia.want(403, "GET", "organizations/east/invitations", nil)
	w.wes.want(404, "GET", "organizations/east/invitations", nil)
	w.mia.want(403, "DELETE", "organizations/east/invitations/out", nil)
	if code, text := w.olga.send("GET", "users/out/invitations", nil); code != 404 {
		t.Errorf("an owner reads them: %d %s", code, text)
	}
	w.out.want(204, "POST", "users/me/invitations/west/decline", nil)
	w.out.want(404, "POST", "users/me/invitations/west/accept", nil)
	w.out.want(200, "POST", "users/me/invitations/east/accept", nil)
	w.out.want(404, "POST", "users/me/invitations/east/accept", nil)
	shows(w.out, "users/me/invitations")
	w.ada.want(200, "GET", "organizations/east/members/out", nil)
	got, _ := w.olga.events("")
	want := []string{
		"ada create organization_invitation out 201 east", "wes create organization_invitation out 201 west", "out write organization_invitation out 200 west",
		"out create organization_member out 201 east", "out write organization_invitation out 200 east",
	}
	got = slices.DeleteFunc(got[begin:], func(row string) bool { return strings.Contains(row, " 403") })
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// An invitation that has expired is none, and can be made again. A user-admin of the deployment adds at once, which ends it.
	w.wes.want(202, "POST", "organizations/west/members/out", nil)
	w.Exec(`UPDATE organization_invitations SET expires_at = now()`)
	shows(w.out, "users/me/invitations")
	w.out.want(404, "POST", "users/me/invitations/west/accept", nil)
	w.wes.want(202, "POST", "organizations/west/members/out", nil)
	w.una.want(200, "POST", "organizations/west/members/out", nil)
	shows(w.wes, "organizations/west/invitations")
	w.out.want(404, "POST", "users/me/invitations/west/accept", nil)
}

// TestWorkspacesDoNotAccept checks that a workspace's token, which templates read, answers no invitation.
func TestWorkspacesDoNotAccept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ada.want(202, "POST", "organizations/east/members/out", nil)
	ws := w.WorkspaceRow("out", "dev")
	token, err := w.Users.SessionFor(t.Context(), w.DB.Queries, w.User("out"), ws)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/api/v2/users/me/invitations/east/accept", nil)
	r.Header.Set("Coder-Session-Token", token.Reveal())
	answer := httptest.NewRecorder()
	w.Mux.ServeHTTP(answer, r)
	if answer.Code != 403 {
		t.Errorf("accept: %d %s", answer.Code, answer.Body)
	}
	w.ada.want(404, "GET", "organizations/east/members/out", nil)
}
