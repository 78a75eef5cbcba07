package sshkeys_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestRegions: the user of a key says at which regions it may sign in, and the operator what a new key may unless its user says otherwise. No one else
// says so.
func TestRegions(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t, func(o *coderd.Options) { o.SSHKeyRegions = []string{"eu", "gone"} })
	ann, ctx := s.As("ann"), t.Context()
	for _, name := range []string{"eu", "us"} {
		if _, err := s.As("olga").CreateWorkspaceProxy(ctx, sdk.CreateWorkspaceProxyRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(what string, key sdk.UserSSHKey, regions ...string) {
		t.Helper()
		list, err := ann.UserSSHKeys(ctx, sdk.Me)
		i := slices.IndexFunc(list, func(k sdk.UserSSHKey) bool { return k.ID == key.ID })
		if err != nil || i < 0 || !slices.Equal(list[i].Regions, regions) || !slices.Equal(key.Regions, regions) {
			t.Errorf("%s: %v, stored as %+v, %v; want %v", what, key.Regions, list, err, regions)
		}
	}
	has("the operator's choice", add(t, ann, sdk.CreateUserSSHKeyRequest{Name: "a", PublicKey: newPair(t).line}), "eu")
	has("none", add(t, ann, sdk.CreateUserSSHKeyRequest{Name: "b", PublicKey: newPair(t).line, Regions: []string{}}))
	key := add(t, ann, sdk.CreateUserSSHKeyRequest{Name: "c", PublicKey: newPair(t).line, Regions: []string{"US", "eu", "us"}})
	has("two", key, "eu", "us")
	revoked := make(chan string, 100)
	defer s.PubSub.Subscribe("users_revoked", func(payload string) { revoked <- payload })()
	set := func(regions ...string) sdk.UserSSHKey {
		t.Helper()
		changed, err := ann.UpdateUserSSHKey(ctx, sdk.Me, key.ID, sdk.UpdateUserSSHKeyRequest{Regions: regions})
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	has("one taken", set("us"), "us")
	for looked := ""; looked != s.User("ann").String(); {
		looked = testwait.For(t, "servers look at what Ann has open", revoked)
	}
	has("another one", set("eu"), "eu")
	has("none left", set())
	set("eu", "us")

	more := sdk.UpdateUserSSHKeyRequest{Regions: []string{"eu"}}
	_, err := ann.UpdateUserSSHKey(ctx, sdk.Me, key.ID, sdk.UpdateUserSSHKeyRequest{Regions: []string{"eu", "mars"}})
	coderdtest.WantCode(t, "a region that is none", err, fault.Invalid)
	_, err = ann.UpdateUserSSHKey(ctx, sdk.Me, key.ID, sdk.UpdateUserSSHKeyRequest{Regions: strings.Split(strings.Repeat("eu,", 100), ",")})
	coderdtest.WantCode(t, "too many regions", err, fault.Invalid)
	_, err = ann.CreateUserSSHKey(ctx, sdk.Me, sdk.CreateUserSSHKeyRequest{Name: "d", PublicKey: newPair(t).line, Regions: []string{"mars"}})
	coderdtest.WantCode(t, "a new key for a region that is none", err, fault.Invalid)
	_, err = s.As("bob").UpdateUserSSHKey(ctx, sdk.Me, key.ID, more)
	coderdtest.WantCode(t, "another user's key", err, fault.NotFound)
	_, err = s.As("bob").UpdateUserSSHKey(ctx, "ann", key.ID, more)
	coderdtest.WantCode(t, "another user", err, fault.NotFound)
	_, err = s.As("olga").UpdateUserSSHKey(ctx, "ann", key.ID, more)
	coderdtest.WantCode(t, "an owner of the deployment", err, fault.Forbidden)
	narrow, err := ann.CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{Scopes: []string{"user_ssh_key:*"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.With(secret.Token(narrow.Key)).UpdateUserSSHKey(ctx, sdk.Me, key.ID, more)
	coderdtest.WantCode(t, "a token with limits", err, fault.Forbidden)
	key.Regions = sdk.List[string]{"eu", "us"}
	has("after all that", key, "eu", "us")

	if err := s.As("olga").DeleteWorkspaceProxy(ctx, "eu"); err != nil {
		t.Fatal(err)
	}
	key.Regions = sdk.List[string]{"us"}
	has("a region is deleted", key, "us")
	log, err := s.As("olga").AuditLogs(ctx, sdk.LogQuery{Q: "resource_type:user_ssh_key action:write username:ann", Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	log.AuditLogs = slices.DeleteFunc(log.AuditLogs, func(l sdk.AuditLog) bool { return l.StatusCode != http.StatusOK })
	if len(log.AuditLogs) != 4 || log.AuditLogs[0].Diff["regions"].New == nil || log.AuditLogs[0].Description != "ann changed regions of public SSH key c" {
		t.Errorf("the audit log has %+v", log)
	}
}
