package coderd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// portShare is a workspace of ann's with an app at a port, and its visitors: ann, bob of the same organization, eve of none, and one without a session.
type portShare struct {
	*coderdtest.Server
	t        *testing.T
	template uuid.UUID
	person   *person
	visitors map[string]*visitor
}

func newPortShare(t *testing.T) *portShare {
	t.Helper()
	s := &portShare{t: t, visitors: map[string]*visitor{}}
	s.Server = coderdtest.Start(t, func(o *coderd.Options) { o.WildcardHost = appHosts })
	s.template = s.Template("process", nil).ID
	s.person = newPerson(t, s.Server, "ann", s.template)
	s.User("bob")
	s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, s.User("eve"))
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.URL.Host)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	for _, name := range []string{"ann", "bob", "eve", ""} {
		v := &visitor{&http.Client{Transport: transport}, "http://" + strings.Replace(appHosts, "*", fmt.Sprintf("%d--main--dev--ann", appPort), 1), nil}
		if name != "" {
			v.header = http.Header{sdk.SessionHeader: {s.Token(name)}}
		}
		s.visitors[name] = v
	}
	return s
}

// opensFor waits until the allowed visitors open the port, and the others do not.
func (s *portShare) opensFor(level sdk.AppShare, allowed ...string) {
	s.t.Helper()
	for name, v := range s.visitors {
		want := slices.Contains(allowed, name)
		testwait.Until(s.t, fmt.Sprintf("%q opens a port shared with %q", name, level), func() error { return testwait.Equal(v.reaches(s.t), want) })
	}
}

func (s *portShare) share(level sdk.AppShare) error {
	_, err := s.As("ann").SharePort(s.t.Context(), s.person.workspace, sdk.UpsertPortShareRequest{AgentName: "MAIN", Port: appPort, ShareLevel: level})
	return err
}

func (s *portShare) unshare(user string) error {
	return s.As(user).DeletePortShare(s.t.Context(), s.person.workspace, sdk.DeletePortShareRequest{AgentName: "main", Port: appPort})
}

// TestSharedPorts: who opens a port at each level, who may set it, and that the sharing ends.
func TestSharedPorts(t *testing.T) {
	s := newPortShare(t)
	p, ann := s.person, s.As("ann")
	s.opensFor("", "ann")
	for level, allowed := range map[sdk.AppShare][]string{
		sdk.ShareOwner: {"ann"}, sdk.ShareOrganization: {"ann", "bob"}, sdk.ShareAuthenticated: {"ann", "bob", "eve"}, sdk.SharePublic: {"ann", "bob", "eve", ""},
	} {
		if err := s.share(level); err != nil {
			t.Fatal(err)
		}
		s.opensFor(level, allowed...)
	}
	if shares, err := ann.PortShares(t.Context(), p.workspace); err != nil || len(shares.Shares) != 1 || shares.Shares[0].AgentName != "main" || shares.Shares[0].Protocol != sdk.PortHTTP {
		t.Errorf("shares: %+v, %v", shares, err)
	}
	// Only those who may share the workspace share its ports.
	for _, user := range []string{"bob", "eve", "tom"} {
		_, err := s.As(user).SharePort(t.Context(), p.workspace, sdk.UpsertPortShareRequest{AgentName: "main", Port: echoPort, ShareLevel: sdk.SharePublic})
		if code := fault.CodeOf(err); code != fault.NotFound && code != fault.Forbidden {
			t.Errorf("%s shares a port of ann's: %v", user, err)
		}
		if err := s.unshare(user); fault.CodeOf(err) != fault.NotFound && fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s deletes ann's share: %v", user, err)
		}
	}
	if err := s.unshare("ann"); err != nil {
		t.Fatal(err)
	}
	s.opensFor("deleted", "ann")
	if err := s.unshare("ann"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted twice: %v, want not found", err)
	}
}

// TestRefusedPorts: only valid values share a port, and only so many ports of a workspace.
func TestRefusedPorts(t *testing.T) {
	s := newPortShare(t)
	p, ann := s.person, s.As("ann")
	if err := s.share(sdk.ShareOwner); err != nil {
		t.Fatal(err)
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
	if err := s.share(sdk.ShareOwner); err != nil {
		t.Errorf("change one of 100 shared ports: %v", err)
	}
	if _, err := ann.SharePort(t.Context(), p.workspace, sdk.UpsertPortShareRequest{AgentName: "main", Port: 1, ShareLevel: sdk.ShareOwner}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("share port 101: %v, want a conflict", err)
	}
}

// TestPortsSinkWithTheCeiling: what a visitor without a session has open ends when the template's ceiling sinks below the share, which is gone then.
func TestPortsSinkWithTheCeiling(t *testing.T) {
	s := newPortShare(t)
	if err := s.share(sdk.SharePublic); err != nil {
		t.Fatal(err)
	}
	s.opensFor(sdk.SharePublic, "ann", "bob", "eve", "")
	resp := s.visitors[""].get(t, "/stream", "none")
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if line, err := stream.ReadString('\n'); err != nil || line != "begins\n" {
		t.Fatalf("%q %v %s", line, err, resp.Status)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); io.Copy(io.Discard, stream) }()
	ceiling := sdk.ShareOrganization
	limited, err := s.As("tom").UpdateTemplate(t.Context(), s.template, sdk.UpdateTemplateRequest{FixedTemplateSettings: sdk.FixedTemplateSettings{MaxPortShareLevel: &ceiling}})
	if err != nil || limited.MaxPortShareLevel != ceiling {
		t.Fatalf("ceiling: %+v, %v", limited.MaxPortShareLevel, err)
	}
	testwait.For(t, "the end of a public stream above the lower ceiling", ended)
	s.opensFor("ceiling", "ann")
	if err := s.share(sdk.ShareAuthenticated); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("above the ceiling: %v, want invalid", err)
	}
	if err := s.share(ceiling); err != nil {
		t.Fatal(err)
	}
	s.opensFor(ceiling, "ann", "bob")
}
