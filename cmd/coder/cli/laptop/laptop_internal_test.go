package laptop

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestResolverFile(t *testing.T) {
	t.Parallel()
	const original = "nameserver 192.0.2.1\noptions rotate edns0\nsearch example.com\n"
	const link = "../run/resolvconf/resolv.conf"
	got := withServer(original, link, NameServer)
	want := marker + "\n" + linkMark + link + "\nnameserver " + NameServer.String() +
		"\nnameserver 192.0.2.1\n" + wasMark + "options rotate edns0\noptions edns0\nsearch example.com\n"
	if got != want || !ours(got) || ours(original) {
		t.Errorf("got %q, want %q", got, want)
	}
	if text, to := withoutServer(got); text != original || to != link {
		t.Errorf("it was %q, a link to %q", text, to)
	}
}

// FuzzResolverFile: whatever the original says, our server is the first, and the original can be restored.
func FuzzResolverFile(f *testing.F) {
	f.Add("nameserver 192.0.2.1\r\noptions rotate", "")
	f.Add("options rotate timeout:1\nnameserver 192.0.2.1", "../run/resolv.conf")
	f.Add("options rotate\n"+wasMark+"options rotate", "a link")
	f.Fuzz(func(t *testing.T, original, link string) {
		got := withServer(original, "", NameServer)
		if !ours(got) || strings.Split(got, "\n")[1] != "nameserver "+NameServer.String() {
			t.Errorf("%q becomes %q", original, got)
		}
		if strings.Contains(original, wasMark) || strings.ContainsAny(original, "\r") || strings.ContainsAny(link, "\n") {
			return // not a file that exists
		}
		if original != "" {
			original = strings.TrimSuffix(original, "\n") + "\n"
		}
		if text, to := withoutServer(withServer(original, link, NameServer)); text != original || to != link {
			t.Errorf("%q, %q becomes %q, %q", original, link, text, to)
		}
	})
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	routes := `[{"dst":"default","dev":"eth0"},{"dst":"::/0","dev":"wg0"},{"dst":"fd00::/8","dev":"wg0","table":"51820"},{"dst":"fd3b:8e1f:47c2::1","dev":"tun0","table":1},
		{"dst":"fe80::/64","dev":"eth0"},{"dst":"fd3b:8e1f:47c2::/48","dev":"coder0"}]`
	got, err := overlaps([]byte(routes), tailnet.Prefix, "coder0")
	if want := []string{"fd00::/8 dev wg0", "fd3b:8e1f:47c2::1/128 dev tun0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// FuzzOverlaps: any output can be read.
func FuzzOverlaps(f *testing.F) {
	f.Add([]byte(`[{"dst":"fd00::/8","dev":"wg0"}]`))
	f.Fuzz(func(_ *testing.T, routes []byte) { _, _ = overlaps(routes, tailnet.Prefix, "coder0") })
}

// TestDirectory: the names of the user's own and shared workspaces lead to their agents while they run, and no others do, even if the user may
// see them.
func TestDirectory(t *testing.T) {
	t.Parallel()
	me := uuid.New()
	workspace := func(owner uuid.UUID, ownerName, name string, connect, running bool, agents ...sdk.WorkspaceAgent) sdk.Workspace {
		ws := sdk.Workspace{ID: uuid.New(), OwnerID: owner, OwnerName: ownerName, Name: name}
		ws.Permissions.Connect = connect
		ws.LatestBuild.Transition = sdk.TransitionStop
		if running {
			ws.LatestBuild.Transition = sdk.TransitionStart
		}
		ws.LatestBuild.Job.Status = sdk.JobSucceeded
		ws.LatestBuild.Resources = []sdk.WorkspaceResource{{Agents: agents}}
		return ws
	}
	agent := func(name string) sdk.WorkspaceAgent { return sdk.WorkspaceAgent{ID: uuid.New(), Name: name} }
	main, child, shared, other := agent("main"), agent("container"), agent("main"), agent("main")
	child.ParentID = &main.ID
	d := NewDirectory(me)
	d.Set([]sdk.Workspace{
		workspace(me, "ada", "dev", true, true, main, child),
		workspace(uuid.New(), "bob", "dev", true, true, shared),
		workspace(uuid.New(), "eve", "dev", false, true, other),
		workspace(me, "ada", "off", true, false, agent("main")),
		workspace(me, "ada", "two", true, true, agent("a"), agent("b")),
	})
	for name, want := range map[string]uuid.UUID{
		"dev": main.ID, "DEV": main.ID, "ada/dev": main.ID, "me/dev": main.ID, "ada/dev.main": main.ID, "ada/dev.container": child.ID, "bob/dev": shared.ID,
		"eve/dev": uuid.Nil, "off": uuid.Nil, "two": uuid.Nil, "ada/dev.none": uuid.Nil, "none": uuid.Nil, "": uuid.Nil, "/": uuid.Nil,
	} {
		addr, err := d.Find(t.Context(), name)
		if (want == uuid.Nil) != (err != nil) || err == nil && addr != tailnet.Addr(want) {
			t.Errorf("%q is %s, %v", name, addr, err)
		}
	}
	if _, err := d.Host(t.Context(), tailnet.Addr(other.ID)); err == nil {
		t.Error("a foreign workspace has a name")
	}
	if host, err := d.Host(t.Context(), tailnet.Addr(shared.ID)); err != nil || host != "main.dev.bob.coder" {
		t.Errorf("a shared workspace is %q, %v", host, err)
	}
	if gone := d.Set(nil); len(gone) != 5 {
		t.Errorf("%d agents are gone, want 5", len(gone))
	}
	if _, ok := d.At(netip.Addr{}); ok {
		t.Error("no address is an agent")
	}
}
