package workspaces_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// names lists a page as owner/name.
func names(t *testing.T, w *coderdtest.Server, who string, q sdk.WorkspacesQuery) ([]string, int) {
	t.Helper()
	got, err := w.As(who).Workspaces(t.Context(), q)
	if err != nil {
		t.Fatalf("%s %+v: %v", who, q, err)
	}
	out := []string{}
	for _, ws := range got.Workspaces {
		out = append(out, ws.OwnerName+"/"+ws.Name)
	}
	return out, got.Count
}

// TestPages checks that pages of every size and offset are the slices of the whole list: the viewer's favorites first, then
// running ones, then by owner and name, with the count of all.
func TestPages(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	for _, owner := range []string{"bob", "ann"} {
		for _, name := range []string{"c", "A", "b"} {
			w.BuildRow(w.WorkspaceRow(owner, name), sdk.TransitionStop, sdk.JobSucceeded)
		}
		w.RunningRow(owner, "z")
	}
	w.Exec(`INSERT INTO workspace_favorites (user_id, workspace_id) SELECT $1, id FROM workspaces WHERE name = 'c'`, w.User("olga"))
	w.Exec(`INSERT INTO workspace_favorites (user_id, workspace_id) SELECT $1, id FROM workspaces WHERE name = 'b'`, w.User("tom")) // not olga's
	for q, want := range map[string][]string{
		"":               {"ann/c", "bob/c", "ann/z", "bob/z", "ann/A", "ann/b", "bob/A", "bob/b"},
		"owner:bob":      {"bob/c", "bob/z", "bob/A", "bob/b"},
		"name:b":         {"ann/b", "bob/b"},
		"status:running": {"ann/z", "bob/z"},
		"name:c":         {"ann/c", "bob/c"},
		"name:none":      {},
	} {
		for limit := 1; limit <= len(want)+1; limit++ {
			for offset := range len(want) + 3 {
				got, count := names(t, w, "olga", sdk.WorkspacesQuery{Q: q, Limit: limit, Offset: offset})
				from := min(offset, len(want))
				if diff := cmp.Diff(want[from:min(from+limit, len(want))], got); diff != "" || count != len(want) {
					t.Errorf("%q, %d from %d: count %d, want %d (-want +got):\n%s", q, limit, offset, count, len(want), diff)
				}
			}
		}
	}
}

// TestSortedPages checks that each order holds across pages, that pages neither repeat nor leave out a workspace, that favorites have no
// place of their own, and that an order shows nobody more than the list's own.
func TestSortedPages(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	for i, name := range []string{"web-10", "web-9", "Api"} {
		for j, owner := range []string{"bob", "ann"} {
			id := w.WorkspaceRow(owner, name)
			w.BuildRow(id, sdk.TransitionStop, sdk.JobSucceeded)
			w.Exec(`UPDATE workspaces SET created_at = timestamptz '2026-01-02' - $2 * interval '1 hour', last_used_at = timestamptz '2026-01-02' - $3 * interval '1 hour' WHERE id = $1`, id, i, j)
		}
	}
	w.RunningRow("bob", "z")
	w.Exec(`UPDATE workspaces SET created_at = '2026-01-01', last_used_at = '2026-01-01' WHERE name = 'z'`)
	w.Exec(`UPDATE templates t SET display_name = CASE w.name WHEN 'web-10' THEN 'alpha' ELSE 'Beta' END FROM workspaces w WHERE w.template_id = t.id`)
	w.Exec(`INSERT INTO workspace_favorites (user_id, workspace_id) SELECT $1, id FROM workspaces WHERE name = 'web-9'`, w.User("olga"))
	for order, want := range map[sdk.WorkspaceOrder][]string{
		sdk.OrderName:     {"ann/Api", "bob/Api", "ann/web-9", "bob/web-9", "ann/web-10", "bob/web-10", "bob/z"},
		sdk.OrderUsed:     {"bob/Api", "bob/web-10", "bob/web-9", "ann/Api", "ann/web-10", "ann/web-9", "bob/z"},
		sdk.OrderCreated:  {"ann/web-10", "bob/web-10", "ann/web-9", "bob/web-9", "ann/Api", "bob/Api", "bob/z"},
		sdk.OrderStatus:   {"bob/z", "ann/Api", "ann/web-10", "ann/web-9", "bob/Api", "bob/web-10", "bob/web-9"},
		sdk.OrderOwner:    {"ann/Api", "ann/web-10", "ann/web-9", "bob/Api", "bob/web-10", "bob/web-9", "bob/z"},
		sdk.OrderTemplate: {"ann/web-10", "bob/web-10", "ann/Api", "ann/web-9", "bob/Api", "bob/web-9", "bob/z"},
	} {
		for limit := 1; limit <= len(want); limit++ {
			var got []string
			for offset := 0; offset < len(want); offset += limit {
				page, count := names(t, w, "olga", sdk.WorkspacesQuery{Sort: order, Limit: limit, Offset: offset})
				if got = append(got, page...); count != len(want) {
					t.Errorf("%s, %d from %d: count %d, want %d", order, limit, offset, count, len(want))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, pages of %d (-want +got):\n%s", order, limit, diff)
			}
		}
		if got, count := names(t, w, "ann", sdk.WorkspacesQuery{Sort: order}); len(got) != 3 || count != 3 {
			t.Errorf("%s: ann sees %q of %d, want her own three", order, got, count)
		}
	}
	for _, order := range []sdk.WorkspaceOrder{"colour", "name;", "owner_key", "Name"} {
		if _, err := w.As("olga").Workspaces(t.Context(), sdk.WorkspacesQuery{Sort: order}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("sort=%s: %v, want invalid", order, err)
		}
	}
}

// TestRenamedOwners checks that lists are in the order of the owners' present names and find only these.
func TestRenamedOwners(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	for _, owner := range []string{"ann", "bob"} {
		w.BuildRow(w.WorkspaceRow(owner, "dev"), sdk.TransitionStop, sdk.JobSucceeded)
	}
	if _, err := w.As("ann").UpdateUserProfile(t.Context(), sdk.Me, sdk.UpdateUserProfileRequest{Username: "Zoe"}); err != nil {
		t.Fatal(err)
	}
	w.Exec("INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) SELECT gen_random_uuid(), organization_id, owner_id, template_id, 'later' FROM workspaces WHERE owner_id = $1", w.User("ann"))
	w.Exec("UPDATE workspaces SET latest_build_id = gen_random_uuid() WHERE name = 'later'")
	w.Exec(`UPDATE workspaces w SET latest_build_id = b.id FROM workspace_builds b, workspaces o WHERE w.name = 'later' AND o.owner_id = w.owner_id AND o.name = 'dev' AND b.workspace_id = o.id`)
	for q, want := range map[string][]string{
		"":          {"bob/dev", "Zoe/dev", "Zoe/later"},
		"owner:zoe": {"Zoe/dev", "Zoe/later"},
		"owner:ann": {},
	} {
		if got, _ := names(t, w, "olga", sdk.WorkspacesQuery{Q: q}); cmp.Diff(want, got) != "" {
			t.Errorf("%q: %q, want %q", q, got, want)
		}
	}
}

// TestPagesOfOddSearches checks that searches which select little, and pages far beyond the end, are answered with an empty
// page and the right count, and limits and offsets out of range are refused.
func TestPagesOfOddSearches(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStop, sdk.JobSucceeded)
	for _, tt := range []struct {
		q      string
		offset int
		count  int
	}{
		{"", 1 << 30, 1},
		{"", 1 << 29, 1},
		{"name:%", 1 << 30, 0},
		{"name:_", 0, 0},
		{"owner:" + fmt.Sprintf("%0200d", 1), 0, 0},
	} {
		got, count := names(t, w, "olga", sdk.WorkspacesQuery{Q: tt.q, Offset: tt.offset, Limit: 1 << 30})
		if len(got) != 0 || count != tt.count {
			t.Errorf("%q from %d: %q of %d, want none of %d", tt.q, tt.offset, got, count, tt.count)
		}
	}
}
