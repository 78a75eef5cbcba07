package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestManySessions checks that the command lists all sessions, although one answer has 1000 at most.
func TestManySessions(t *testing.T) {
	t.Parallel()
	const many = 1201
	srv := newAPI(t, map[string]any{"GET users/grace/sessions": http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
			page := []sdk.UserSession{}
			for i := offset; i < min(offset+min(limit, 1000), many); i++ {
				page = append(page, sdk.UserSession{ID: fmt.Sprintf("%010d", i), Device: "Firefox on Linux"})
			}
			_ = json.NewEncoder(w).Encode(page)
		})})
	at := []string{"--url", srv.url, "--token", "t", "sessions", "list", "--user", "grace"}
	r := run(t, "", "", at...)
	if lines := strings.Split(strings.TrimSpace(r.out), "\n"); r.fault != nil || len(lines) != 1+many ||
		!strings.HasPrefix(lines[many], "0000001200 ") {
		t.Errorf("%d lines, %v", len(lines), r.fault)
	}
	var list []sdk.UserSession
	r = run(t, "", "", append(at, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.out), &list); r.fault != nil || err != nil || len(list) != many {
		t.Errorf("%d sessions, %v, %v", len(list), r.fault, err)
	}
}
