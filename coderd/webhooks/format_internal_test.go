package webhooks

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

// TestFormats checks messages for chats, with values that would be markup there.
func TestFormats(t *testing.T) {
	t.Parallel()
	at := &url.URL{Scheme: "https", Host: "coder.example.com"}
	build := sdk.LifecycleEvent{Type: "build.failed", Data: sdk.LifecycleData{OwnerName: "ann", WorkspaceName: "dev", BuildNumber: 3, Transition: "start"}}
	hostile := sdk.LifecycleEvent{Type: "template.updated", Data: sdk.LifecycleData{TemplateName: "<!channel> [x](https://evil) *b*", Actor: "a_b"}}
	for _, c := range []struct {
		as   string
		e    sdk.LifecycleEvent
		want string
	}{
		{sdk.WebhookSlack, build, `{"text":"Build 3 of workspace ann/dev (start): failed \u003chttps://coder.example.com/@ann/dev/builds/3|Open\u003e"}`},
		{sdk.WebhookSlack, hostile, `{"text":"Template \u0026lt;!channel\u0026gt; [x](https://evil) *b*: updated by a_b"}`},
		{sdk.WebhookTeams, hostile, `"text":"Template \u0026lt;!channel\u0026gt; \\[x\\](https://evil) \\*b\\*: updated by a\\_b"`},
		{sdk.WebhookTeams, build, `{"title":"Open","type":"Action.OpenUrl","url":"https://coder.example.com/@ann/dev/builds/3"}`},
		{sdk.WebhookStandard, build, `"type":"build.failed","timestamp":"0001-01-01T00:00:00Z","data":{"workspace_name":"dev","owner_name":"ann","build_number":3,"transition":"start"}`},
	} {
		got, err := format(c.as, c.e, at)
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s of %s:\ngot  %s, %v\nwant %s", c.as, c.e.Type, got, err, c.want)
		}
	}
	for _, kind := range sdk.LifecycleTypes {
		if got := sentence(sdk.LifecycleEvent{Type: kind}); strings.Contains(got, "Test of") || strings.Contains(got, "_") {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

// TestSchedule checks that attempts are spread over hours, with growing pauses.
func TestSchedule(t *testing.T) {
	t.Parallel()
	var all float64
	for i := range schedule {
		wait, again := pause(int32(i + 1))
		if !again || wait != schedule[i] || i > 0 && wait <= schedule[i-1] {
			t.Errorf("pause %d: %s, %v", i+1, wait, again)
		}
		all += wait.Hours()
	}
	if all < 12 || all > 24 || persistent.Hours() > all {
		t.Errorf("attempts are spread over %.1f hours", all)
	}
	for _, n := range []int32{0, -1, int32(len(schedule)) + 1} {
		if _, again := pause(n); again {
			t.Errorf("attempt %d is repeated", n)
		}
	}
}

// FuzzOrigin checks that what is shown of a URL is its scheme and host only.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{"https://example.com/secret?x=y", "http://[::1]:80/", "https://a@b/", "HTTP://x", "https://example.com:99999/"} {
		f.Add(seed)
	}
	s := &Service{guard: webhook.NewGuard(nil)}
	f.Fuzz(func(t *testing.T, address string) {
		origin, problem := s.origin(address)
		if problem != "" {
			return
		}
		u, err := url.Parse(origin)
		if err != nil || u.Path != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" || u.Host == "" {
			t.Errorf("%q: shown as %q", address, origin)
		}
	})
}

// TestSigningSecrets: the old secret signs until its time ends, and not at that time.
func TestSigningSecrets(t *testing.T) {
	t.Parallel()
	end := time.Date(2030, 1, 1, 8, 0, 0, 0, time.UTC)
	what := secrets{Secret: "new", Previous: "old", PreviousUntil: end}
	for at, want := range map[time.Time][]string{end.Add(-time.Second): {"new", "old"}, end: {"new"}, end.Add(time.Hour): {"new"}} {
		if got := what.signing(at); !slices.Equal(got, want) {
			t.Errorf("at %s: got %q, want %q", at, got, want)
		}
	}
	if got := (secrets{Secret: "only"}).signing(end); !slices.Equal(got, []string{"only"}) {
		t.Errorf("without an old one: got %q", got)
	}
}
