package workspaces

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// TestAwaitLogins: on a terminal, creating a workspace waits until the account is linked, but not for logins that the server does not know.
func TestAwaitLogins(t *testing.T) {
	t.Parallel()
	needs, nobodys := uuid.New(), uuid.New()
	const page = "http://server/external-auth/forge"
	var looked atomic.Int32
	mux := http.NewServeMux()
	answer := func(version uuid.UUID, logins func() []sdk.TemplateVersionExternalAuth) {
		mux.HandleFunc("GET /api/v2/templateversions/"+version.String()+"/external-auth", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(logins())
		})
	}
	answer(needs, func() []sdk.TemplateVersionExternalAuth {
		return []sdk.TemplateVersionExternalAuth{
			{ID: "forge", Type: "custom", DisplayName: "The Forge", AuthenticateURL: page, Authenticated: looked.Add(1) > 2},
			{ID: "other", DisplayName: "Another", Optional: true},
		}
	})
	answer(nobodys, func() []sdk.TemplateVersionExternalAuth {
		return []sdk.TemplateVersionExternalAuth{{ID: "nobodys", DisplayName: "nobodys"}}
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	base, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk.New(base, "abcdefghij-0123456789012345678901", sdk.Options{})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	var out, errs bytes.Buffer
	streams := &tty.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, InTTY: true, ErrTTY: true}
	if err := awaitLogins(t.Context(), client, streams, needs); err != nil || !strings.Contains(errs.String(), page) || looked.Load() != 3 {
		t.Errorf("on a terminal: %v after %d looks, %q", err, looked.Load(), errs.String())
	}
	if err := awaitLogins(t.Context(), client, streams, nobodys); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "does not offer") {
		t.Errorf("a login that is not configured: %v", err)
	}
}
