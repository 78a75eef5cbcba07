package users_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestServiceAccounts: accounts of programs act with tokens that owners give them, and nothing else signs in as them.
func TestServiceAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, admin := owner.add("alice"), owner.add("una", "user-admin")
	robot := call[sdk.User](admin, 201, "POST", "users", sdk.CreateUserRequest{Username: "robot", ServiceAccount: true})
	if !robot.IsServiceAccount || robot.Email != "" || robot.LoginType != sdk.LoginNone || robot.Status != sdk.UserActive || len(robot.OrganizationIDs) != 1 {
		t.Errorf("created %+v", robot)
	}
	// Another one does not collide with it.
	call[sdk.User](owner, 201, "POST", "users", sdk.CreateUserRequest{Username: "robot-2", LoginType: sdk.LoginNone, ServiceAccount: true})

	token := call[sdk.CreateTokenResponse](owner, 201, "POST", "users/robot/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"})
	program := person{api: a, name: "robot", token: token.Key, id: robot.ID}
	if me := call[sdk.User](program, 200, "GET", "users/me", nil); me.ID != robot.ID || !me.IsServiceAccount || me.Email != "" {
		t.Errorf("the program is %+v", me)
	}
	program.want(403, "POST", "users", sdk.CreateUserRequest{Username: "robot-3", ServiceAccount: true})
	alice.want(403, "POST", "users", sdk.CreateUserRequest{Username: "robot-3", ServiceAccount: true})
	alice.want(404, "POST", "users/robot/keys/tokens", sdk.CreateTokenRequest{TokenName: "mine"})

	// It never gets a password, and its placeholder is no way in.
	for _, p := range []person{owner, program} {
		p.want(400, "PUT", "users/robot/password", sdk.UpdateUserPasswordRequest{Password: password})
	}
	for _, address := range []string{robot.ID.String() + "@service-account.invalid", ""} {
		a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: address, Password: password})
	}
	for _, bad := range []sdk.CreateUserRequest{
		{Username: "x", ServiceAccount: true, Email: "x@example.com"},
		{Username: "x", ServiceAccount: true, Password: password},
		{Username: "x", ServiceAccount: true, LoginType: sdk.LoginPassword},
		{Username: "x", ServiceAccount: true, LoginType: sdk.LoginOIDC},
		{Username: "x", LoginType: sdk.LoginNone},
	} {
		owner.want(400, "POST", "users", bad)
	}
	call[sdk.User](owner, 200, "PUT", "users/robot/status/suspend", nil)
	program.want(401, "GET", "users/me", nil)
}
