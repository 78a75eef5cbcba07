package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/archive"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// TestArchiveOpener checks that the agent asks the server with its own token, and tells what is final from what is not.
func TestArchiveOpener(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Coder-Session-Token") != "of-the-agent" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch name := r.URL.EscapedPath(); name {
		case "/api/v2/workspaceagents/me/archives/tools":
			_, _ = io.WriteString(w, "the tools")
		case "/api/v2/workspaceagents/me/archives/endless":
			_ = http.NewResponseController(w).Flush()
		case "/api/v2/workspaceagents/me/archives/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message":"There is no `+name[strings.LastIndex(name, "/")+1:]+`.","detail":"Ask."}`)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	open := archiveOpener(Options{URL: u, Token: secret.Token("of-the-agent")})
	content, size, err := open(t.Context(), "tools")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(content)
	if err != nil || string(got) != "the tools" || size != int64(len(got)) {
		t.Errorf("got %q, size %d, %v", got, size, err)
	}
	content.Close()
	stranger := archiveOpener(Options{URL: u, Token: secret.Token("of-another")})
	for name, tc := range map[string]struct {
		open  func(context.Context, string) (io.ReadCloser, int64, error)
		name  string
		final bool
		says  string
	}{
		"absent":             {open, "absent", true, "There is no absent. Ask."},
		"a path":             {open, "../../users/me", true, "There is no ..%2F..%2Fusers%2Fme."},
		"without a size":     {open, "endless", false, "how large"},
		"too many":           {open, "busy", false, ""},
		"another token":      {stranger, "tools", true, ""},
		"an agent in a test": {archiveOpener(Options{}), "tools", true, "address"},
	} {
		content, _, err := tc.open(t.Context(), tc.name)
		if err == nil {
			content.Close()
			t.Errorf("%s: there is one", name)
			continue
		}
		if _, final := errors.AsType[archive.Refusal](err); final != tc.final || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, final %t", name, err, final)
		}
	}
}
