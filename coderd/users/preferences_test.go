package users_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestPreferences(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, bob := owner.add("alice"), owner.add("bob")
	const path = "users/me/preferences"
	want := func(when string, got, want sdk.UserPreferences) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	read := func(p person, path string) sdk.UserPreferences {
		t.Helper()
		return call[sdk.UserPreferences](p, 200, "GET", path, nil)
	}
	want("before", read(alice, path), sdk.UserPreferences{SavedSearches: sdk.List[sdk.SavedSearch]{}})

	// Each request changes what it names: programs made for other servers know one field only.
	columns := sdk.List[string]{"status", "apps"}
	searches := sdk.List[sdk.SavedSearch]{{Name: "Müde", Query: "owner:me dormant:true"}, {Name: "Müde", Query: "action:delete", Page: "audit"}}
	alice.want(200, "PUT", path, sdk.UpdateUserPreferencesRequest{WorkspaceColumns: &columns})
	alice.want(200, "PUT", path, sdk.UpdateUserPreferencesRequest{SavedSearches: &searches})
	alice.want(200, "PUT", path, map[string]bool{"task_notification_alert_dismissed": true})
	all := sdk.UserPreferences{TaskNotificationAlertDismissed: true, WorkspaceColumns: &columns, SavedSearches: searches}
	want("changed", read(alice, path), all)
	want("read by an owner", read(owner, "users/alice/preferences"), all)
	want("another user's", read(bob, path), sdk.UserPreferences{SavedSearches: sdk.List[sdk.SavedSearch]{}})
	bob.want(404, "GET", "users/alice/preferences", nil)
	bob.want(404, "PUT", "users/alice/preferences", sdk.UpdateUserPreferencesRequest{SavedSearches: &searches})

	long := strings.Repeat("x", 65)
	for name, bad := range map[string]any{
		"a column that is markup":  map[string]any{"workspace_columns": []string{"<b>"}},
		"many columns":             map[string]any{"workspace_columns": strings.Split(strings.Repeat("a,", 21)+"a", ",")},
		"a search without a name":  map[string]any{"saved_searches": []sdk.SavedSearch{{Name: " ", Query: "x"}}},
		"a long name":              map[string]any{"saved_searches": []sdk.SavedSearch{{Name: long}}},
		"a name twice":             map[string]any{"saved_searches": []sdk.SavedSearch{{Name: "a"}, {Name: "a"}}},
		"an unknown page":          map[string]any{"saved_searches": []sdk.SavedSearch{{Name: "a", Page: "mesh"}}},
		"a name twice on a page":   map[string]any{"saved_searches": []sdk.SavedSearch{{Name: "a", Page: "users"}, {Name: "a", Page: "users"}}},
		"a long search":            map[string]any{"saved_searches": []sdk.SavedSearch{{Name: "a", Query: strings.Repeat("x", 1001)}}},
		"an escape sequence":       map[string]any{"saved_searches": []sdk.SavedSearch{{Name: "a\x1b[2J"}}},
		"searches of another type": map[string]any{"saved_searches": "all"},
		"many searches":            map[string]any{"saved_searches": make([]sdk.SavedSearch, 51)},
	} {
		if status, body := alice.send("PUT", path, bad); status != 400 {
			t.Errorf("%s: %d %s, want 400", name, status, body)
		}
	}
	want("after what was refused", read(alice, path), all)
}

// TestUserAppearance checks that a look is kept beside preferences, and changes only what a request names.
func TestUserAppearance(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, bob := owner.add("alice"), owner.add("bob")
	const path = "users/me/appearance"
	want := func(when string, p person, path string, want sdk.UserAppearance) {
		t.Helper()
		if got := call[sdk.UserAppearance](p, 200, "GET", path, nil); got != want {
			t.Errorf("%s: got %+v, want %+v", when, got, want)
		}
	}
	want("before", alice, path, sdk.UserAppearance{})
	alice.want(200, "PUT", path, map[string]string{"theme_preference": "dark"})
	columns := sdk.List[string]{"status"}
	alice.want(200, "PUT", "users/me/preferences", sdk.UpdateUserPreferencesRequest{WorkspaceColumns: &columns})
	chosen := sdk.UserAppearance{ThemePreference: sdk.ThemeDark, TerminalFont: sdk.FontFiraCode}
	if got := call[sdk.UserAppearance](alice, 200, "PUT", path, map[string]string{"terminal_font": "fira-code", "unknown": "x"}); got != chosen {
		t.Errorf("the answer is %+v, want %+v", got, chosen)
	}
	want("changed", alice, path, chosen)
	want("read by an owner", owner, "users/alice/appearance", chosen)
	want("another user's", bob, path, sdk.UserAppearance{})
	bob.want(404, "GET", "users/alice/appearance", nil)
	bob.want(404, "PUT", "users/alice/appearance", map[string]string{"theme_preference": "light"})
	for _, bad := range []any{map[string]string{"theme_preference": "pink"}, map[string]string{"terminal_font": "Comic Sans\"; }"}, map[string]int{"theme_preference": 1}} {
		if status, body := alice.send("PUT", path, bad); status != 400 {
			t.Errorf("%v: %d %s, want 400", bad, status, body)
		}
	}
	if _, body := alice.send("PUT", path, map[string]string{"theme_preference": "pink"}); !strings.Contains(string(body), "must be empty or auto, light or dark") {
		t.Errorf("the answer does not name the choices: %s", body)
	}
	want("after what was refused", alice, path, chosen)
	if got := call[sdk.UserPreferences](alice, 200, "GET", "users/me/preferences", nil); got.WorkspaceColumns == nil {
		t.Errorf("the preferences are lost: %+v", got)
	}
	alice.want(200, "PUT", path, map[string]string{"theme_preference": "", "terminal_font": ""})
	want("reset", alice, path, sdk.UserAppearance{})
}
