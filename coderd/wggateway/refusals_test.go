package wggateway_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/miekg/dns"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// refusal is what a row of the connection log says about a refused attempt.
type refusal struct{ User, Workspace, Type, Port, IP, Region, Reason string }

// wantRefusals waits until a search for refused attempts finds want, as often as were tried, and no others. Attempts of
// two minutes are two rows.
func (w *world) wantRefusals(t *testing.T, search string, tries int, want ...refusal) {
	t.Helper()
	testwait.Until(t, "the refused attempts are in the log", func() error {
		log, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:refused " + search, Limit: 100})
		if err != nil {
			return err
		}
		got, counted := map[refusal]bool{}, 0
		for _, l := range log.ConnectionLogs {
			got[refusal{
				l.Username, l.WorkspaceOwnerUsername + "/" + l.WorkspaceName, l.Type, l.SlugOrPort, l.IP, l.Region, l.DisconnectReason,
			}] = true
			counted += l.Refused
		}
		all := map[refusal]bool{}
		for _, one := range want {
			all[one] = true
		}
		diff := cmp.Diff(all, got)
		return testwait.Unless(diff == "" && counted >= tries, "%d attempts (-want +got):\n%s", counted, diff)
	})
}

// TestRefusedInLog checks that the connection log has what a device may not reach, as an attempt of its user, and neither
// what the user may do nor what no user may.
func TestRefusedInLog(t *testing.T) {
	t.Parallel()
	w := start(t)
	adas, bobs := w.add(t, "ada", "phone"), w.add(t, "bob", "tablet")
	adas.reaches(t, w.dev, 8000)
	adas.refused(t, w.dev, meshport.AgentRPC) // a port that no user may reach
	adas.refused(t, uuid.New(), 8000)         // no agent
	if answer := bobs.ask(t, "udp", question("work.coder.", dns.TypeAAAA)); len(answer.Answer) != 1 {
		t.Errorf("bob's own workspace: %v", answer)
	}
	bobs.refused(t, w.dev, 8000)
	bobs.refused(t, w.dev, meshport.SSH)
	want := refusal{"bob", "ada/dev", "port_forwarding", "", "127.0.0.1", "", "no access"}
	w.wantRefusals(t, "", 2, want)
	testwait.Until(t, "all rows name the device",
		w.Counts(0, `SELECT count(*) FROM connection_logs WHERE refused > 0 AND user_agent <> 'WireGuard (tablet)'`))

	t.Run("shared", func(t *testing.T) {
		w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object((SELECT id::text FROM users WHERE username = 'bob'), 'use') WHERE id = $1`, w.workspace)
		bobs.reaches(t, w.dev, 8000)
		adas.refused(t, w.bobs, 8000)
		w.wantRefusals(t, "", 3, want, refusal{"ada", "bob/work", "port_forwarding", "", "127.0.0.1", "", "no access"})
	})
	t.Run("readers", func(t *testing.T) {
		_, err := w.As("bob").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:refused"})
		coderdtest.WantCode(t, "bob reads the log", err, fault.Forbidden)
	})
}

// TestRefusedAtRegionInLog checks that a region's question about what a device may not reach is in the log with the region
// and the port, and that no other refused question is: such as one of a region about a device of another.
func TestRefusedAtRegionInLog(t *testing.T) {
	t.Parallel()
	w := start(t)
	eu, us := w.region(t, "eu"), w.region(t, "us")
	ada, bob := w.register(t, "ada", "phone", "eu"), w.register(t, "bob", "tablet", "eu")
	dev, node := tailnet.Addr(w.dev), uuid.New()
	from := netip.MustParseAddr("192.0.2.9")
	ask := func(p coderdtest.Region, last region.VisitResponse, asked region.DeviceVisit) (resp region.VisitResponse, err error) {
		req := region.VisitRequest{Device: &asked, Node: node, Visit: last.Visit, Addr: from}
		return resp, p.PostAsProxy(t.Context(), "device-visits", req, &resp)
	}
	var none region.VisitResponse
	to := func(d sdk.UserDevice, port uint16) region.DeviceVisit {
		return region.DeviceVisit{Device: d.ID, Network: "tcp", Addr: netip.AddrPortFrom(dev, port)}
	}
	_, err := ask(us, none, to(bob, 8000))
	coderdtest.WantCode(t, "another region's device", err, fault.Unauthenticated)
	_, err = ask(eu, none, to(bob, meshport.AgentRPC))
	coderdtest.WantCode(t, "a port that no user may reach", err, fault.Forbidden)
	_, err = ask(eu, none, region.DeviceVisit{Device: bob.ID, Network: "tcp", Addr: netip.AddrPortFrom(tailnet.Addr(uuid.New()), 8000)})
	coderdtest.WantCode(t, "no agent", err, fault.NotFound)
	if _, err := ask(eu, none, to(ada, 8000)); err != nil {
		t.Fatal(err)
	}
	// What ends because its user may no longer connect was a connection, and was not refused.
	w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::text, 'use') WHERE id = $1`, w.workspace, w.User("eve"))
	eve := w.register(t, "eve", "watch", "eu")
	visit, err := ask(eu, none, to(eve, 8000))
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(`UPDATE workspaces SET sharing = '{}' WHERE id = $1`, w.workspace)
	_, err = ask(eu, visit, region.DeviceVisit{Device: eve.ID})
	coderdtest.WantCode(t, "a renewal", err, fault.NotFound)

	for _, port := range []uint16{8000, meshport.SSH} {
		_, err = ask(eu, none, to(bob, port))
		coderdtest.WantCode(t, "another user's workspace", err, fault.NotFound)
	}
	w.wantRefusals(t, "", 2, refusal{"bob", "ada/dev", "port_forwarding", "8000", "192.0.2.9", "eu", "no access"},
		refusal{"bob", "ada/dev", "ssh", "", "192.0.2.9", "eu", "no access"})
}
