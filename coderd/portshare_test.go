package coderd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/coderd"
	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/testwait"
)

// TestSharedPorts: who opens a port at each level, up to the template's ceiling, and that what is open ends with the sharing.
func TestSharedPorts(t *testing.T) {
	s := coderdtest.Start(t, func(o *coderd.Options) { o.WildcardHost = appHosts })
	template := s.Template("process", nil)
	p := newPerson(t, s, "ann", template.ID)
	ann := s.As("ann")
	s.User("bob")
	s.User("eve")
	s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, s.User("eve"))
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.URL.Host)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	visitors := map[string]*visitor{}
	for _, name := range []string{"ann", "bob", "eve", ""} {
		v := &visitor{&http.Client{Transport: transport}, "http://" + strings.Replace(appHosts, "*", fmt.Sprintf("%d--main--dev--ann", appPort), 1), nil}
		if name != "" {
			v.header = http.Header{sdk.SessionHeader: {s.Token(name)}}
		}
		visitors[name] = v
	}
	check := func(level sdk.AppShare, allowed ...string) {
		t.Helper()
		for name, v := range visitors {
			want := false
			for _, a := range allowed {
				want = want || a == name
			}
			testwait.Until(t, fmt.Sprintf("%q opens a port shared with %q", name, level), func() error { return testwait.Equal(v.reaches(t), want) })
		}
	}
	share := func(level sdk.AppShare) error {
		_, err := ann.SharePort(t.Context(), p.workspace, sdk.UpsertPortShareRequest{AgentName: "MAIN", Port: appPort, ShareLevel: level})
		return err
	}
	remove := sdk.DeletePortShareRequest{AgentName: "main", Port: appPort}
	check("", "ann")
	for level, allowed := range map[sdk.AppShare][]string{
		sdk.ShareOwner: {"ann"}, sdk.ShareOrganization: {"ann", "bob"}, sdk.ShareAuthenticated: {"ann", "bob", "eve"}, sdk.SharePublic: {"ann", "bob", "eve", ""},
	} {
		if err := share(level); err != nil {
			t.Fatal(err)
		}
		check(level, allowed...)
	}
	if shares, err := ann.PortShares(t.Context(), p.workspace); err != nil || len(shares.Shares) != 1 || shares.Shares[0].AgentName != "main" || shares.Shares[0].Protocol != sdk.PortHTTP {
		t.Errorf("shares: %+v, %v", shares, err)
	}
	// Only those who may share the workspace share its ports, and only with valid values.
	for _, user := range []string{"bob", "eve", "tom"} {
		_, err := s.As(user).SharePort(t.Context(), p.workspace, sdk.UpsertPortShareRequest{AgentName: "main", Port: echoPort, ShareLevel: sdk.SharePublic})
		if code := fault.CodeOf(err); code != fault.NotFound && code != fault.Forbidden {
			t.Errorf("%s shares a port of ann's: %v", user, err)
		}
		if err := s.As(user).DeletePortShare(t.Context(), p.workspace, remove); fault.CodeOf(err) != fault.NotFound && fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s deletes ann's share: %v", user, err)
		}
	}
	for _, req := range []sdk.UpsertPortShareRequest{
		{AgentName: "main", Port: 0, ShareLevel: sdk.SharePublic}, {AgentName: "main", Port: 65536, ShareLevel: sdk.SharePublic}, {AgentName: "main", Port: 1, ShareLevel: "all"},
		{AgentName: "none", Port: 1, ShareLevel: sdk.SharePublic}, {AgentName: "main", Port: 1, ShareLevel: sdk.SharePublic, Protocol: "ftp"},
	} {
		if _, err := ann.SharePort(t.Context(), p.workspace, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%+v: %v, want invalid", req, err)
		}
	}
	// A workspace that shares as many ports as it may can still change them.
	s.Exec(`INSERT INTO workspace_port_shares (workspace_id, agent_name, port, share_level, protocol)
		SELECT $1, 'main', 20000 + n, 'owner', 'http' FROM generate_series(1, 99) AS n`, p.workspace)
	if err := share(sdk.ShareOwner); err != nil {
		t.Errorf("change one of 100 shared ports: %v", err)
	}
	if _, err := ann.SharePort(t.Context(), p.workspace, sdk.UpsertPortShareRequest{AgentName: "main", Port: 1, ShareLevel: sdk.ShareOwner}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("share port 101: %v, want a conflict", err)
	}
	s.Exec(`DELETE FROM workspace_port_shares WHERE workspace_id = $1 AND port > 20000`, p.workspace)
	// What a visitor without a session has open ends when the ceiling sinks below the share, which is gone then.
	if err := share(sdk.SharePublic); err != nil {
		t.Fatal(err)
	}
	resp := visitors[""].get(t, "/stream", "none")
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if line, err := stream.ReadString('\n'); err != nil || line != "begins\n" {
		t.Fatalf("%q %v %s", line, err, resp.Status)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); io.Copy(io.Discard, stream) }()
	ceiling := sdk.ShareOrganization
	limited, err := s.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{FixedTemplateSettings: sdk.FixedTemplateSettings{MaxPortShareLevel: &ceiling}})
	if err != nil || limited.MaxPortShareLevel != ceiling {
		t.Fatalf("ceiling: %+v, %v", limited.MaxPortShareLevel, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("a public stream outlived the lower ceiling")
	}
	check("ceiling", "ann")
	if err := share(sdk.ShareAuthenticated); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("above the ceiling: %v, want invalid", err)
	}
	if err := share(ceiling); err != nil {
		t.Fatal(err)
	}
	check(ceiling, "ann", "bob")
	if err := ann.DeletePortShare(t.Context(), p.workspace, remove); err != nil {
		t.Fatal(err)
	}
	check("deleted", "ann")
	if err := ann.DeletePortShare(t.Context(), p.workspace, remove); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted twice: %v, want not found", err)
	}
}
