package scim_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "the provider's bearer token"

type object = map[string]any

// provider is an identity provider.
type provider struct {
	*coderdtest.Server
	token string
}

func newProvider(t *testing.T) provider {
	return provider{coderdtest.New(t, func(o *coderd.Options) { o.SCIMToken = token }), "Bearer " + token}
}

func (p provider) send(method, path, body string) (int, object) {
	p.T.Helper()
	r := httptest.NewRequest(method, "/scim/v2/"+path, strings.NewReader(body))
	r.Header.Set("Authorization", p.token)
	r.Header.Set("Content-Type", "application/scim+json")
	w := httptest.NewRecorder()
	p.Mux.ServeHTTP(w, r)
	var out object
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			p.T.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/scim+json") {
			p.T.Errorf("%s %s: content type %q", method, path, w.Header().Get("Content-Type"))
		}
	}
	return w.Code, out
}

func (p provider) want(status int, method, path, body string) object {
	p.T.Helper()
	got, out := p.send(method, path, body)
	if got != status {
		p.T.Fatalf("%s %s %s: got %d %v, want %d", method, path, body, got, out, status)
	}
	if status >= 400 && (out["status"] != http.StatusText(status) && out["status"] == nil || out["schemas"] == nil || out["detail"] == "") {
		p.T.Errorf("%s %s: not an error of SCIM: %v", method, path, out)
	}
	return out
}

func (p provider) create(userName string) string {
	p.T.Helper()
	return p.want(201, "POST", "Users", `{"userName":"`+userName+`","name":{"givenName":"Ann","familyName":"Lee"},"emails":[{"value":"`+userName+`","primary":true}],"active":true,"externalId":"x1"}`)["id"].(string)
}

func filter(text string) string { return "?filter=" + url.QueryEscape(text) }

func (p provider) found(path string) int {
	p.T.Helper()
	return int(p.want(200, "GET", path, "")["totalResults"].(float64))
}

// TestToken checks that nothing is answered without the provider's token, and that a server without one has no SCIM.
func TestToken(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.want(200, "GET", "Users", "")
	p.token = token // some providers send it alone
	p.want(200, "GET", "Users", "")
	for _, bad := range []string{"", "Bearer ", "Bearer x", "Bearer " + token + "x", "Basic " + token, "Bearer " + p.Token("olga"), p.Token("olga")} {
		p.token = bad
		for _, route := range []string{"GET Users", "POST Users", "PATCH Users/x", "DELETE Groups/x", "GET ServiceProviderConfig", "GET nothing"} {
			method, path, _ := strings.Cut(route, " ")
			p.want(401, method, path, "{}")
		}
	}
	off := provider{coderdtest.New(t), ""}
	off.want(404, "GET", "Users", "")
	off.token = "Bearer "
	off.want(404, "GET", "Users", "")
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	if c := p.want(200, "GET", "ServiceProviderConfig", ""); c["patch"].(object)["supported"] != true {
		t.Errorf("config: %v", c)
	}
	for _, path := range []string{"ResourceTypes", "Schemas"} {
		list := p.want(200, "GET", path, "")
		for _, r := range list["Resources"].([]any) {
			p.want(200, "GET", path+"/"+r.(object)["id"].(string), "")
		}
	}
	p.want(404, "GET", "Schemas/nothing", "")
	p.want(404, "GET", "Bulk", "")
}

// TestLifeOfAUser checks what a provider does with a user: create, find, rename, deactivate, activate and delete.
func TestLifeOfAUser(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga") // an owner, so that the deployment is set up
	id := p.create("Ann.Lee@example.com")
	account, err := p.As("olga").User(t.Context(), id)
	if err != nil || account.Username != "Ann-Lee" || account.LoginType != sdk.LoginOIDC || len(account.Roles) != 0 || account.Name != "Ann Lee" {
		t.Errorf("account: %+v, %v", account, err)
	}
	p.want(409, "POST", "Users", `{"userName":"ann.lee@EXAMPLE.com"}`)
	for _, f := range []string{`userName eq "ann.lee@example.com"`, `externalId eq "x1"`, `emails.value eq "ann.lee@example.com"`, `id eq "` + id + `" and active eq true`, `displayName eq "Ann Lee"`} {
		if n := p.found("Users" + filter(f)); n != 1 {
			t.Errorf("%s: %d", f, n)
		}
	}
	if n := p.found("Users" + filter(`userName eq "olga@example.com"`)); n != 0 {
		t.Error("an account with another login type is shown")
	}
	p.want(400, "GET", "Users"+filter(`userName co "a"`), "")
	p.want(200, "PATCH", "Users/"+id, `{"Operations":[{"op":"Replace","path":"name.familyName","value":"Ray"},{"op":"Replace","path":"userName","value":"ann.ray@example.com"}]}`)
	got := p.want(200, "GET", "Users/"+id, "")
	if got["userName"] != "ann.ray@example.com" || got["displayName"] != "Ann Ray" || got["emails"].([]any)[0].(object)["value"] != "ann.ray@example.com" {
		t.Errorf("renamed: %v", got)
	}
	name := "Ann-Lee"
	if _, err := p.As(name).User(t.Context(), sdk.Me); err != nil {
		t.Fatal(err)
	}
	p.want(200, "PATCH", "Users/"+id, `{"Operations":[{"op":"Replace","path":"active","value":"False"}]}`)
	if _, err := p.As(name).User(t.Context(), sdk.Me); err == nil {
		t.Error("a session survived the deactivation")
	}
	if got := p.want(200, "GET", "Users/"+id, ""); got["active"] != false {
		t.Errorf("deactivated: %v", got)
	}
	p.want(200, "PUT", "Users/"+id, `{"userName":"ann.ray@example.com","displayName":"A. Ray","active":true}`)
	if account, err = p.As("olga").User(t.Context(), id); err != nil || account.Status != sdk.UserActive || account.Name != "A. Ray" {
		t.Errorf("activated: %+v, %v", account, err)
	}
	p.want(204, "DELETE", "Users/"+id, "")
	p.want(404, "GET", "Users/"+id, "")
	p.want(404, "PATCH", "Users/"+id, `{"Operations":[{"op":"replace","value":{"active":true}}]}`)
	if account, err = p.As("olga").User(t.Context(), id); err != nil || account.Status != sdk.UserSuspended {
		t.Errorf("deleted: %+v, %v", account, err)
	}
	if again := p.want(201, "POST", "Users", `{"userName":"ann.ray@example.com","displayName":"Ann"}`)["id"]; again != id {
		t.Errorf("provisioned again as %v, want %s", again, id)
	}
}

// TestNoTakeOver checks that the provider gets no account with another login type, makes no owner and suspends not the last one.
func TestNoTakeOver(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	olga, ann := p.User("olga").String(), p.User("ann").String()
	for _, email := range []string{"olga@example.com", "ANN@example.com"} {
		out := p.want(409, "POST", "Users", `{"userName":"`+email+`"}`)
		if out["scimType"] != "uniqueness" || !strings.Contains(out["detail"].(string), "signs in in another way") {
			t.Errorf("%s: %v", email, out)
		}
	}
	for _, id := range []string{olga, ann} {
		p.want(404, "GET", "Users/"+id, "")
		p.want(404, "PUT", "Users/"+id, `{"userName":"x@example.com","active":false}`)
		p.want(404, "DELETE", "Users/"+id, "")
	}
	mallory := p.create("mallory@example.com")
	p.want(409, "PATCH", "Users/"+mallory, `{"Operations":[{"op":"replace","path":"emails","value":[{"value":"olga@example.com"}]}]}`)
	p.want(409, "PATCH", "Users/"+mallory, `{"Operations":[{"op":"replace","path":"userName","value":"olga@example.com"}]}`)
	p.want(200, "PATCH", "Users/"+mallory, `{"Operations":[{"op":"add","path":"roles","value":[{"value":"owner"}]},{"op":"replace","value":{"roles":["owner"],"displayName":"M"}}]}`)
	if account, err := p.As("olga").User(t.Context(), mallory); err != nil || len(account.Roles) != 0 {
		t.Errorf("roles: %+v, %v", account, err)
	}
	// An owner who signs in with the provider is its user, but the last owner stays.
	p.Exec("UPDATE users SET login_type = 'oidc' WHERE id = $1", olga)
	p.want(409, "PATCH", "Users/"+olga, `{"Operations":[{"op":"replace","value":{"active":false}}]}`)
	p.want(409, "DELETE", "Users/"+olga, "")
	for _, bad := range []string{``, `[]`, `{}`, `{"userName":""}`, `{"userName":"no-address"}`, `{"userName":7}`, `{"userName":"a@example.com","active":"maybe"}`} {
		p.want(400, "POST", "Users", bad)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga")
	for _, name := range []string{"a@example.com", "b@example.com", "c@example.com"} {
		p.create(name)
	}
	for query, want := range map[string]int{"": 3, "?count=2": 2, "?startIndex=3&count=2": 1, "?startIndex=9": 0, "?count=0": 0, "?startIndex=-1&count=1": 1} {
		list := p.want(200, "GET", "Users"+query, "")
		if len(list["Resources"].([]any)) != want || list["totalResults"] != 3.0 || list["itemsPerPage"] != float64(want) {
			t.Errorf("%q: %v", query, list)
		}
	}
	p.want(400, "GET", "Users?count=many", "")
}

// TestGroups checks what a provider does with groups, and that it gets none of others.
func TestGroups(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga")
	ann, bob := p.create("ann.lee@example.com"), p.create("bob@example.com")
	g := p.want(201, "POST", "Groups", `{"displayName":"Eng & Ops","externalId":"g1","members":[{"value":"`+ann+`"}]}`)["id"].(string)
	members := func() (names []string) {
		t.Helper()
		for _, m := range p.want(200, "GET", "Groups/"+g, "")["members"].([]any) {
			names = append(names, m.(object)["display"].(string))
		}
		return names
	}
	p.want(204, "PATCH", "Groups/"+g, `{"Operations":[{"op":"Add","path":"members","value":[{"value":"`+bob+`"}]},{"op":"remove","path":"members[value eq \"`+ann+`\"]"}]}`)
	if got := strings.Join(members(), " "); got != "bob@example.com" {
		t.Errorf("members: %s", got)
	}
	if groups := p.want(200, "GET", "Users/"+bob, "")["groups"].([]any); len(groups) != 1 || groups[0].(object)["display"] != "Eng & Ops" {
		t.Errorf("bob's groups: %v", groups)
	}
	p.want(200, "PUT", "Groups/"+g, `{"displayName":"Engineering","members":[{"value":"`+ann+`"}]}`)
	if got := strings.Join(members(), " "); got != "ann.lee@example.com" {
		t.Errorf("replaced members: %s", got)
	}
	if n := p.found("Groups" + filter(`displayName eq "engineering"`)); n != 1 {
		t.Errorf("found %d", n)
	}
	if list := p.want(200, "GET", "Groups?excludedAttributes=members", ""); list["Resources"].([]any)[0].(object)["members"] != nil {
		t.Errorf("with members: %v", list)
	}
	p.want(409, "POST", "Groups", `{"displayName":"ENGINEERING"}`)
	out := p.want(400, "PATCH", "Groups/"+g, `{"Operations":[{"op":"add","path":"members","value":[{"value":"`+p.User("olga").String()+`"}]}]}`)
	if !strings.Contains(out["detail"].(string), "members") {
		t.Errorf("a stranger as member: %v", out)
	}
	everyone := p.Org.String()
	p.want(404, "GET", "Groups/"+everyone, "")
	p.want(404, "DELETE", "Groups/"+everyone, "")
	p.want(409, "POST", "Groups", `{"displayName":"Everyone"}`)
	p.want(204, "DELETE", "Groups/"+g, "")
	p.want(404, "GET", "Groups/"+g, "")
	p.want(200, "GET", "Users/"+ann, "")
}
