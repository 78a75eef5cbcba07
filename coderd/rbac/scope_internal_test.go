package rbac

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

func mustScope(t testing.TB, scopes, allow []string) Scope {
	t.Helper()
	s, err := NewScope(scopes, allow)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestScopeOfEveryRow checks that the scope of every action on every kind of object is one that a token can have, that the scope of
// reading allows nothing else, and that no bundle names what does not exist.
func TestScopeOfEveryRow(t *testing.T) {
	t.Parallel()
	known, me := Scopes(), uuid.New()
	for resource, actions := range table {
		for action := range actions {
			for _, name := range neededFor(action, resource) {
				if !slices.Contains(known, name) {
					t.Errorf("%s %s: scope %q is not listed", action, resource, name)
				}
				if !mustScope(t, []string{name}, nil).covers(me, action, Object{Resource: resource, Owner: me}) {
					t.Errorf("the scope %s does not allow to %s %s", name, action, resource)
				}
			}
			reading := mustScope(t, []string{"workspace:read"}, nil)
			isRead := action == Read && kindOf(resource) == "workspace" && resource != Mesh || findsOwner(action, resource)
			if got := reading.covers(me, action, Object{Resource: resource, Owner: me}); got != isRead {
				t.Errorf("workspace:read: %s %s: %t", action, resource, got)
			}
			if reading.somewhere(action, resource) != isRead {
				t.Errorf("workspace:read: a route to %s %s: %t", action, resource, !isRead)
			}
		}
	}
	for name, parts := range bundles {
		for _, part := range parts {
			if !slices.Contains(known, part) {
				t.Errorf("%s has %s, which does not exist", name, part)
			}
		}
	}
}

func TestRefusalsInWords(t *testing.T) {
	t.Parallel()
	for action, want := range map[Action]string{Connect: "connect to this workspace.", OpenApp: "open apps of this workspace.", Delete: "delete this workspace."} {
		if err := (Scope{}).outOfScope(action, Workspace); fault.As(err).Message != "This token may not "+want {
			t.Errorf("token: %v, want %s", err, want)
		}
	}
}

func TestNewScope(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	for _, none := range [][2][]string{{nil, nil}, {{"all"}, nil}, {{"coder:all"}, {"*:*"}}, {nil, {"*"}}, {{"all", "workspace:read"}, {"workspace:" + id, "*:*"}}} {
		if mustScope(t, none[0], none[1]).Limited() {
			t.Errorf("%v %v is limited", none[0], none[1])
		}
	}
	for _, some := range [][2][]string{{{"workspace:read"}, nil}, {nil, {"workspace:" + id}}, {{"all"}, {"template:*"}}, {{"application_connect"}, {"*:*"}}} {
		if !mustScope(t, some[0], some[1]).Limited() {
			t.Errorf("%v %v is not limited", some[0], some[1])
		}
	}
	for _, bad := range []string{"", "ALL", "workspace", "workspace:", "workspace:fly", ":read", "*", "*:*", "*:read", "workspace:read ", "nothing:*", "workspace:read,template:read"} {
		s, err := NewScope([]string{"workspace:read", bad}, nil)
		f := fault.As(err)
		if f == nil || f.Code != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Field != "scopes" || !strings.Contains(f.Fields[0].Detail, "workspace:read") {
			t.Errorf("scope %q: %v", bad, err)
		}
		if !s.Limited() || s.permits("workspace:read") {
			t.Errorf("scope %q: the scope beside the fault allows something", bad)
		}
	}
	// The fault names what may be meant, not everything there is.
	for name, want := range map[string][2]string{"workspace:fly": {"workspace:ssh", "template"}, "fly": {"workspace, ", "workspace:ssh"}} {
		_, err := NewScope([]string{name}, nil)
		if f := fault.As(err); f == nil || !strings.Contains(f.Fields[0].Detail, want[0]) || strings.Contains(f.Fields[0].Detail, want[1]) {
			t.Errorf("scope %q: %v, want it to name %s and not %s", name, err, want[0], want[1])
		}
	}
	for _, bad := range []string{"", "workspace", "workspace:", ":", "*:x", "nothing:*", "user:" + id, "workspace:" + id + "0", "workspace:" + strings.ToUpper(id[:8]), "*:" + id, "workspace:" + uuid.Nil.String(), "workspace:{" + id[:34] + "}"} {
		_, err := NewScope(nil, []string{bad})
		if f := fault.As(err); f == nil || f.Code != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Field != "allow_list" {
			t.Errorf("allow-list %q: %v", bad, err)
		}
	}
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	me, mine, other := uuid.New(), uuid.New(), uuid.New()
	s := mustScope(t, []string{"workspace:*", "template:read", "file:read"}, []string{"workspace:" + mine.String(), "template:*"})
	for _, c := range []struct {
		action Action
		object Object
		want   bool
	}{
		{Update, Object{Resource: Workspace, ID: mine}, true},
		{Create, Object{Resource: WorkspaceBuild, ID: mine}, true},
		{Connect, Object{Resource: Agent, ID: mine}, true},
		{Read, Object{Resource: Workspace, ID: other}, false},
		{Read, Object{Resource: Workspace}, false},
		{Create, Object{Resource: Workspace}, false},
		{Read, Object{Resource: Template, ID: other}, true},
		{Update, Object{Resource: Template, ID: other}, false},
		{Read, Object{Resource: File}, false}, // not on the list
		{Read, Object{Resource: User, Owner: me}, true},
		{Read, Object{Resource: User, Owner: other}, false},
		{Read, Object{Resource: WorkspaceState, ID: mine}, false},
	} {
		if got := s.covers(me, c.action, c.object); got != c.want {
			t.Errorf("%s %s %s: %t", c.action, c.object.Resource, c.object.ID, got)
		}
	}
	if ids, limited := s.ids(Workspace); !limited || !slices.Equal(ids, []uuid.UUID{mine}) {
		t.Errorf("workspaces: %v, %t", ids, limited)
	}
	if ids, limited := s.ids(Template); limited || len(ids) > 0 {
		t.Errorf("templates: %v, %t", ids, limited)
	}
	if ids, limited := s.ids(ProvisionerJob); !limited || len(ids) > 0 {
		t.Errorf("jobs: %v, %t", ids, limited)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	a, b := "workspace:"+uuid.NewString(), "workspace:"+uuid.NewString()
	scope := func(text string) Scope { // "scopes | allow-list"
		scopes, allow, _ := strings.Cut(text, "|")
		return mustScope(t, strings.Fields(scopes), strings.Fields(allow))
	}
	for _, c := range []struct {
		inner, outer string
		want         bool
	}{
		{"workspace:read", "", true}, {"", "", true}, {"", "workspace:read", false}, {"all", "workspace:*", false}, {"workspace:read", "workspace:*", true},
		{"workspace:*", "workspace:read", false}, {"workspace:read template:read", "workspace:read", false}, {"coder:workspaces.delete", "workspace:*", true},
		{"workspace:read", "workspace:read |" + a, false}, {"workspace:read |" + a, "workspace:read |" + a + " " + b, true}, {"workspace:read |" + b, "workspace:read |" + a, false},
		{"workspace:read |" + a, "workspace:read", true}, {"workspace:read | *:*", "workspace:read |" + a, false}, {"workspace:read | workspace:*", "workspace:read |" + a, false},
		{"workspace:read |" + a, "all | workspace:*", true}, {"|" + a, "all | workspace:*", true}, {"api_key:create", "api_key:*", true},
	} {
		if got := scope(c.inner).Within(scope(c.outer)); got != c.want {
			t.Errorf("%q within %q: %t", c.inner, c.outer, got)
		}
	}
}

// FuzzNewScope checks that no text makes a token more powerful than what it names: whatever is accepted and is not "all" cannot create
// users, and an accepted list does not have an object that it does not name.
func FuzzNewScope(f *testing.F) {
	f.Add("workspace:read", "workspace:11111111-1111-4111-8111-111111111111")
	f.Add("all", "*:*")
	f.Add("template:*", "template:*")
	f.Add("workspace:*:*", "*:")
	f.Fuzz(func(t *testing.T, name, entry string) {
		me := uuid.New()
		if s, err := NewScope([]string{name}, nil); err == nil && name != "all" && name != "coder:all" && !strings.HasPrefix(name, "user:") {
			if s.covers(me, Create, Object{Resource: User}) {
				t.Errorf("%q creates users", name)
			}
		}
		if s, err := NewScope(nil, []string{entry}); err == nil && !strings.Contains(entry, "*") && s.covers(me, Read, Object{Resource: Workspace, ID: me}) {
			t.Errorf("%q has another workspace", entry)
		}
	})
}
