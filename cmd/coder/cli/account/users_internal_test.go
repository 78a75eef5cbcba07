package account

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestManyUsers checks that a list goes on after the most users that one answer has, and that a name is recognized that only a later
// answer has.
func TestManyUsers(t *testing.T) {
	t.Parallel()
	const all = 231
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v2/users/") {
			http.Error(w, `{"message": "no such user"}`, http.StatusNotFound)
			return
		}
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		page := sdk.UsersResponse{Count: all, Users: make([]sdk.User, max(0, min(limit, 100, all-offset)))}
		for i := range page.Users {
			page.Users[i].Username = "user"
		}
		if last := all - 1 - offset; last >= 0 && last < len(page.Users) {
			page.Users[last].Username = "zacharias"
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk.New(at, "", sdk.Options{})
	defer client.HTTP().CloseIdleConnections()
	for most, want := range map[int]int{math.MaxInt: all, 100: 100, 101: 200} {
		if users, err := listUsers(t.Context(), client, sdk.UsersQuery{}, most); err != nil || len(users) != want {
			t.Errorf("at most %d: %d users, %v; want %d", most, len(users), err, want)
		}
	}
	_, err = findUser(t.Context(), client, "zacharia")
	if hint, _ := exit.Hint(err); fault.CodeOf(err) != fault.NotFound || !strings.Contains(hint, "zacharias") {
		t.Errorf("a misspelled name: %v, %q", err, hint)
	}
}
