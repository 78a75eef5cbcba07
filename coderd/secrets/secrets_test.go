package secrets_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/secrets"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/usersecret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hidden = "hunter2-never-shown"

func create(t *testing.T, c *sdk.Client, req sdk.CreateUserSecretRequest) sdk.UserSecret {
	t.Helper()
	if req.Value == "" {
		req.Value = hidden
	}
	made, err := c.CreateUserSecret(t.Context(), sdk.Me, req)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestLifeOfASecret checks that a secret's fields can be set, read and changed, that its value is never returned, logged or stored as it
// is, and that it goes with its user.
func TestLifeOfASecret(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, ctx := s.As("ann"), t.Context()
	made := create(t, ann, sdk.CreateUserSecretRequest{Name: "api-key", Description: "for tools", EnvName: "API_KEY", FilePath: "~/.api-key"})
	want := sdk.UserSecret{Name: "api-key", Description: "for tools", EnvName: "API_KEY", FilePath: "~/.api-key", Enabled: true}
	ignore := cmpopts.IgnoreFields(sdk.UserSecret{}, "ID", "CreatedAt", "UpdatedAt")
	if diff := cmp.Diff(want, made, ignore); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	got, err := ann.UserSecret(ctx, "ann", "api-key")
	if diff := cmp.Diff(made, got); diff != "" || err != nil {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
	description, env, file, off, value := "", "OTHER", "", false, "another "+hidden
	changed, err := ann.UpdateUserSecret(ctx, sdk.Me, "api-key", sdk.UpdateUserSecretRequest{Description: &description, EnvName: &env, FilePath: &file, Enabled: &off, Value: &value})
	if diff := cmp.Diff(sdk.UserSecret{Name: "api-key", EnvName: "OTHER"}, changed, ignore); diff != "" || err != nil {
		t.Errorf("changed: %v (-want +got):\n%s", err, diff)
	}
	if !changed.UpdatedAt.After(made.UpdatedAt) || changed.ID != made.ID {
		t.Errorf("changed: %+v", changed)
	}
	create(t, ann, sdk.CreateUserSecretRequest{Name: "a-second"})
	list, err := ann.UserSecrets(ctx, sdk.Me)
	if err != nil || len(list) != 2 || list[0].Name != "a-second" || list[1].Name != "api-key" {
		t.Errorf("list: %+v, %v", list, err)
	}
	var stored string
	if err := s.DB.Pool.QueryRow(ctx, `SELECT string_agg(u::text || encode(u.sealed, 'escape'), ' ') FROM user_secrets u`).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal([]any{made, got, changed, list})
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"the log": s.Logged(), "the database": stored, "an answer": string(shown)} {
		if strings.Contains(text, hidden) {
			t.Errorf("%s has the value", what)
		}
	}
	if err := ann.DeleteUserSecret(ctx, sdk.Me, "api-key"); err != nil {
		t.Fatal(err)
	}
	coderdtest.WantCode(t, "delete again", ann.DeleteUserSecret(ctx, sdk.Me, "api-key"), fault.NotFound)
	_, err = ann.UserSecret(ctx, sdk.Me, "api-key")
	coderdtest.WantCode(t, "read a deleted secret", err, fault.NotFound)
	_, err = ann.UpdateUserSecret(ctx, sdk.Me, "api-key", sdk.UpdateUserSecretRequest{Value: &value})
	coderdtest.WantCode(t, "change a deleted secret", err, fault.NotFound)
	if err := s.As("olga").DeleteUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	left, err := s.DB.ListUserSecrets(ctx, s.User("ann"))
	if err != nil || len(left) != 0 {
		t.Errorf("left of a deleted user: %v, %v", left, err)
	}
}

// TestOthersSecrets checks that no other user reaches a secret, whatever their role, and that a workspace's token reaches none.
func TestOthersSecrets(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ctx := t.Context()
	create(t, s.As("ann"), sdk.CreateUserSecretRequest{Name: "key", EnvName: "KEY"})
	inside, err := s.Users.SessionFor(ctx, s.DB.Queries, s.User("ann"), s.WorkspaceRow("ann", "dev"))
	if err != nil {
		t.Fatal(err)
	}
	attempts := map[string]struct {
		client *sdk.Client
		want   fault.Code
	}{
		"a member": {s.As("bob"), fault.NotFound}, "a template admin": {s.As("tom"), fault.NotFound}, "an owner": {s.As("olga"), fault.NotFound},
		"a workspace's token": {s.With(inside), fault.Forbidden}, "a visitor": {s.With(""), fault.Unauthenticated},
	}
	value := "stolen"
	for name, a := range attempts {
		for _, ann := range []string{"ann", s.User("ann").String()} {
			_, err := a.client.UserSecrets(ctx, ann)
			coderdtest.WantCode(t, name+" lists", err, a.want)
			_, err = a.client.UserSecret(ctx, ann, "key")
			coderdtest.WantCode(t, name+" reads", err, a.want)
			_, err = a.client.CreateUserSecret(ctx, ann, sdk.CreateUserSecretRequest{Name: "planted", Value: "x", EnvName: "PLANTED"})
			coderdtest.WantCode(t, name+" creates", err, a.want)
			_, err = a.client.CreateUserSecrets(ctx, ann, sdk.CreateUserSecretsRequest{Secrets: sdk.List[sdk.CreateUserSecretRequest]{{Name: "planted", Value: "x"}}})
			coderdtest.WantCode(t, name+" creates several", err, a.want)
			_, err = a.client.UpdateUserSecret(ctx, ann, "key", sdk.UpdateUserSecretRequest{Value: &value})
			coderdtest.WantCode(t, name+" changes", err, a.want)
			coderdtest.WantCode(t, name+" deletes", a.client.DeleteUserSecret(ctx, ann, "key"), a.want)
		}
	}
	got, err := s.Secrets.For(ctx, s.User("ann"))
	if err != nil || len(got) != 1 || got[0].Value.Reveal() != hidden {
		t.Errorf("after the attempts: %v, %v", got, err)
	}
	for _, name := range []string{"bob", "tom", "olga"} {
		if got, err := s.Secrets.For(ctx, s.User(name)); err != nil || len(got) != 0 {
			t.Errorf("%s got %v, %v", name, got, err)
		}
	}
}

// TestBadSecrets checks that bad input is refused and changes nothing.
func TestBadSecrets(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, ctx := s.As("ann"), t.Context()
	create(t, ann, sdk.CreateUserSecretRequest{Name: "key", EnvName: "KEY", FilePath: "~/key"})
	long := strings.Repeat("v", usersecret.MaxValue+1)
	for field, req := range map[string]sdk.CreateUserSecretRequest{
		"name": {Name: "a/b", Value: "x"}, "value": {Name: "x", Value: long}, "env_name": {Name: "x", Value: "x", EnvName: "PATH"},
		"file_path": {Name: "x", Value: "x", FilePath: "~/../x"}, "description": {Name: "x", Value: "x", Description: "a\nb"},
	} {
		_, err := ann.CreateUserSecret(ctx, sdk.Me, req)
		if f := fault.As(err); f == nil || f.Code != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Field != field {
			t.Errorf("bad %s: %#v", field, err)
		}
		_, err = ann.CreateUserSecrets(ctx, sdk.Me, sdk.CreateUserSecretsRequest{Secrets: sdk.List[sdk.CreateUserSecretRequest]{{Name: "good", Value: "x"}, req}})
		if f := fault.As(err); f == nil || f.Code != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Field != "secrets[1]."+field {
			t.Errorf("bad %s among others: %#v", field, err)
		}
	}
	for field, req := range map[string]sdk.CreateUserSecretRequest{
		"name": {Name: "key", Value: "x"}, "env_name": {Name: "x", Value: "x", EnvName: "KEY"}, "file_path": {Name: "x", Value: "x", FilePath: "~/key"},
	} {
		_, err := ann.CreateUserSecret(ctx, sdk.Me, req)
		if f := fault.As(err); f == nil || f.Code != fault.Conflict || f.Fields[0].Field != field {
			t.Errorf("taken %s: %#v", field, err)
		}
	}
	empty, reserved := "", "CODER_URL"
	for what, req := range map[string]sdk.UpdateUserSecretRequest{"nothing": {}, "an empty value": {Value: &empty}, "a reserved variable": {EnvName: &reserved}} {
		_, err := ann.UpdateUserSecret(ctx, sdk.Me, "key", req)
		coderdtest.WantCode(t, what, err, fault.Invalid)
	}
	_, err := ann.CreateUserSecrets(ctx, sdk.Me, sdk.CreateUserSecretsRequest{})
	coderdtest.WantCode(t, "an empty batch", err, fault.Invalid)
	_, err = ann.CreateUserSecrets(ctx, sdk.Me, sdk.CreateUserSecretsRequest{Secrets: sdk.List[sdk.CreateUserSecretRequest]{{Name: "good", Value: "x"}, {Name: "good", Value: "x"}}})
	coderdtest.WantCode(t, "a name twice", err, fault.Conflict)
	list, err := ann.UserSecrets(ctx, sdk.Me)
	if err != nil || len(list) != 1 || list[0].EnvName != "KEY" {
		t.Errorf("afterwards: %+v, %v", list, err)
	}
}

// TestLimits checks that a user's secrets fit into an environment and a message to an agent.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, ctx := s.As("ann"), t.Context()
	batch := func(n, size int, env string) error {
		var req sdk.CreateUserSecretsRequest
		for i := range n {
			r := sdk.CreateUserSecretRequest{Name: fmt.Sprintf("n%s%d", env, i), Value: strings.Repeat("v", size)}
			if env != "" {
				r.EnvName = fmt.Sprintf("%s_%d", env, i)
			}
			req.Secrets = append(req.Secrets, r)
		}
		_, err := ann.CreateUserSecrets(ctx, sdk.Me, req)
		return err
	}
	coderdtest.WantCode(t, "too much in variables", batch(usersecret.MaxEnvTotal/usersecret.MaxValue+1, usersecret.MaxValue, "A"), fault.Invalid)
	if err := batch(usersecret.MaxEnvTotal/usersecret.MaxValue, usersecret.MaxValue, "A"); err != nil {
		t.Errorf("as much as fits: %v", err)
	}
	value := strings.Repeat("v", usersecret.MaxValue)
	made := create(t, ann, sdk.CreateUserSecretRequest{Name: "elsewhere", Value: value})
	env := "ONE_MORE"
	_, err := ann.UpdateUserSecret(ctx, sdk.Me, made.Name, sdk.UpdateUserSecretRequest{EnvName: &env})
	coderdtest.WantCode(t, "one variable more", err, fault.Invalid)
	coderdtest.WantCode(t, "too many", batch(usersecret.MaxSecrets, 1, "B"), fault.Invalid)
	if err := batch(16, usersecret.MaxValue, ""); err != nil {
		t.Errorf("files: %v", err)
	}
	coderdtest.WantCode(t, "too much", batch(16, usersecret.MaxValue, "C"), fault.Invalid)
}

// TestKeysOfSecrets checks that secrets follow a new key, that a value cannot be opened in another place, and that a lost key takes the
// value only: the user sets it again.
func TestKeysOfSecrets(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann, ctx, user := s.As("ann"), t.Context(), s.User("ann")
	create(t, ann, sdk.CreateUserSecretRequest{Name: "key", EnvName: "KEY"})
	create(t, ann, sdk.CreateUserSecretRequest{Name: "other", EnvName: "OTHER", Value: "x"})
	another := coderdtest.Keyring(t)
	rotated := secrets.New(secrets.Options{DB: s.DB, Logger: s.Log, Keys: another, Accounts: s.Users})
	if _, err := another.Rotate(ctx, s.DB, s.Log); err != nil { // without the old key nothing happens
		t.Fatal(err)
	}
	if got, err := rotated.For(ctx, user); err != nil || len(got) != 0 {
		t.Errorf("with another key: %v, %v", got, err)
	}
	if got, err := s.Secrets.For(ctx, user); err != nil || len(got) != 2 {
		t.Errorf("with the key: %v, %v", got, err)
	}
	// Swapped in the database, neither opens.
	s.Exec(`UPDATE user_secrets u SET sealed = o.sealed FROM user_secrets o WHERE u.user_id = o.user_id AND u.id <> o.id`)
	if got, err := s.Secrets.For(ctx, user); err != nil || len(got) != 0 {
		t.Errorf("swapped: %v, %v", got, err)
	}
	shown, err := ann.UserSecret(ctx, sdk.Me, "key")
	if err != nil || !shown.Unreadable {
		t.Errorf("shown: %+v, %v", shown, err)
	}
	value := "set again"
	shown, err = ann.UpdateUserSecret(ctx, sdk.Me, "key", sdk.UpdateUserSecretRequest{Value: &value})
	if err != nil || shown.Unreadable {
		t.Errorf("set again: %+v, %v", shown, err)
	}
	if got, err := s.Secrets.For(ctx, user); err != nil || len(got) != 1 || got[0].Value.Reveal() != value {
		t.Errorf("set again: %v, %v", got, err)
	}
}

// TestAgentsAreTold checks that a change notifies the agents of the user's workspaces, and no others.
func TestAgentsAreTold(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	agent := func(owner, name string) uuid.UUID {
		id := s.AgentRow(s.BuildRow(s.WorkspaceRow(owner, name), sdk.TransitionStart, sdk.JobSucceeded))
		s.Exec(`UPDATE workspace_agents SET complete = true WHERE id = $1`, id)
		return id
	}
	mine, withheld, gone, bobs := agent("ann", "dev"), agent("ann", "sealed"), agent("ann", "stopped"), agent("bob", "dev")
	s.Exec(`UPDATE workspace_agents SET user_data = false WHERE id = $1`, withheld)
	s.Exec(`UPDATE workspace_agents SET token_hash = NULL WHERE id = $1`, gone)
	told := make(chan string, 100)
	defer s.PubSub.Subscribe("agents_manifest", func(payload string) { told <- payload })()
	ann, ctx := s.As("ann"), t.Context()
	value := "x"
	for what, change := range map[string]func() error{
		"create": func() error {
			_, err := ann.CreateUserSecret(ctx, sdk.Me, sdk.CreateUserSecretRequest{Name: "a", Value: "x"})
			return err
		},
		"update": func() error {
			create(t, ann, sdk.CreateUserSecretRequest{Name: "b"})
			<-told
			_, err := ann.UpdateUserSecret(ctx, sdk.Me, "b", sdk.UpdateUserSecretRequest{Value: &value})
			return err
		},
		"delete": func() error {
			create(t, ann, sdk.CreateUserSecretRequest{Name: "c"})
			<-told
			return ann.DeleteUserSecret(ctx, sdk.Me, "c")
		},
	} {
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := testwait.For(t, what, told); got != mine.String() {
			t.Errorf("%s: told %s, want %s alone (others: %s %s %s)", what, got, mine, withheld, gone, bobs)
		}
	}
	if len(told) > 0 {
		t.Errorf("others were told: %s", <-told)
	}
}
