package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// elsewhere has the fields of a build's resources that change neither the API's objects nor the agent's manifest, and what uses them.
var elsewhere = map[string]string{
	"Resource.instance_type": "no attribute of the coder provider",
	"Agent.place":            "refusals name it: TestUnsafeAddresses in coderd/templates",
	"App.place":              "refusals name it: TestUnsafeAddresses in coderd/templates",
	"Agent.token":            "the agent signs in with it: TestAuthenticateAgent",
	"Agent.auth":             "the agent signs in with it: TestInstances",
	"Agent.instance_account": "machines of other accounts are refused: TestInstances",
	"Agent.complete":         "TestManifestIsWholeOrWithheld",
	"AgentMetadata.order":    "the provisioner sorts by it: TestMetadataIsSorted in provisionerd/terraform/result",
}

// allFields returns a resource in which every field has a value.
func allFields() *provisionerpb.Resource {
	id := func(n byte) []byte { return bytes.Repeat([]byte{n}, 16) }
	return &provisionerpb.Resource{
		Name: "vm", Type: "null_resource", Icon: "/icon/x.svg", DailyCost: 1, InstanceType: "small",
		Metadata: []*provisionerpb.ResourceMetadata{{Key: "k", Value: "v"}},
		Agents: []*provisionerpb.Agent{
			{
				Id: id(1), Name: "main", Token: "token", Os: "linux", Arch: "amd64", Directory: "/src", Env: map[string]string{"A": "1"},
				StartupScriptBehavior: "blocking", MotdFile: "/etc/motd", TroubleshootingUrl: "https://example.com", ConnectionTimeoutSeconds: 60, Order: 1,
				DisplayApps: []string{"vscode"}, Auth: "aws-instance-identity", InstanceId: "i-1", InstanceAccount: "1",
				Apps: []*provisionerpb.App{
					{
						Id: id(2), Slug: "web", DisplayName: "Web", Url: "http://localhost:1", Icon: "/icon/x.svg", Share: "owner", HealthcheckUrl: "http://localhost:1/up",
						HealthcheckInterval: 5, HealthcheckThreshold: 6, Order: 1, Group: "g", OpenIn: "slim-window", Tooltip: "t",
					},
					{Id: id(3), Slug: "code", Order: 2},
				},
				Scripts: []*provisionerpb.Script{{
					Id: id(4), DisplayName: "S", Icon: "/icon/x.svg", Script: "true", Cron: "0 0 * * * *", RunOnStart: true, TimeoutSeconds: 5, LogPath: "s.log",
				}},
				Metadata:      []*provisionerpb.AgentMetadata{{Key: "k", DisplayName: "K", Script: "true", Interval: 5, Timeout: 1, Order: 1}},
				Devcontainers: []*provisionerpb.Devcontainer{{Id: id(5), WorkspaceFolder: "/w", ConfigPath: "/c", Agent: &provisionerpb.Agent{Id: id(6), Name: "box"}}},
				Monitors:      []*provisionerpb.AgentMonitor{{Volume: "/", ThresholdPercent: 80}},
			},
			{Id: id(7), Name: "other", Token: "other", Order: 2},
		},
	}
}

// showing is a server that shows a workspace to its owner and to its agent.
type showing struct {
	*world
	rpc       *server
	url       *url.URL
	workspace uuid.UUID
}

// of builds the workspace with a resource, and returns all that its owner and the agent see of it.
func (s *showing) of(t *testing.T, r *provisionerpb.Resource) string {
	t.Helper()
	s.store(s.BuildRow(s.workspace, sdk.TransitionStart, sdk.JobSucceeded), true, r)
	ws, err := s.As("ann").Workspace(t.Context(), s.workspace)
	if err != nil {
		t.Fatal(err)
	}
	resources := ws.LatestBuild.Resources
	equalBuilds(resources)
	agent := uuid.UUID(r.GetAgents()[0].GetId())
	var metadata struct {
		Data []struct {
			Description sdk.AgentMetadataDescription `json:"description"`
		} `json:"data"`
	}
	ws2 := dialWS(t, s.url, s.Token("ann"), agent.String()+"/watch-metadata-ws")
	defer ws2.CloseNow()
	if err := ws2.ReadJSON(t.Context(), &metadata); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]any{resources, metadata})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := s.rpc.client(agent).Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	manifest.Msg.Incarnation = 0
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(manifest.Msg)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + string(wire)
}

// equalBuilds takes from resources what differs between two builds of the same.
func equalBuilds(resources []sdk.WorkspaceResource) {
	for i := range resources {
		r := &resources[i]
		r.ID, r.JobID, r.CreatedAt = uuid.Nil, uuid.Nil, time.Time{}
		for j := range r.Agents {
			a := &r.Agents[j]
			a.ResourceID, a.CreatedAt, a.UpdatedAt = uuid.Nil, time.Time{}, time.Time{}
			slices.SortFunc(a.LogSources, func(x, y sdk.AgentLogSource) int { return strings.Compare(x.DisplayName, y.DisplayName) })
			for k := range a.LogSources {
				a.LogSources[k].CreatedAt = time.Time{}
			}
		}
	}
}

// TestEveryFieldArrives changes each field of a build's resources: users or the agent must see the difference. The provisioner's TestReference
// checks that these fields have all attributes of the coder provider.
func TestEveryFieldArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.opts.Secrets = fakeSecrets{} // which an agent without its owner's data does not get
	w.opts.Mesh = &fakeMesh{dial: func(context.Context, uuid.UUID, uint16) (net.Conn, error) { return nil, errors.New("no agent") }}
	s := agents.New(w.opts)
	shown, example := &showing{w, serve(t, s), w.Serve(s), w.WorkspaceRow("ann", "dev")}, allFields()
	before := shown.of(t, example)
	others := map[string]string{"App.share": "public", "App.open_in": "tab", "Agent.startup_script_behavior": "non-blocking"}
	tried := map[string]bool{}
	for field, altered := range coderdtest.Altered(example, others) {
		tried[field] = true
		if reason, arrives := elsewhere[field], shown.of(t, altered) != before; arrives == (reason != "") {
			t.Errorf("%s: shown %t, and in elsewhere: %q", field, arrives, reason)
		}
	}
	for field := range elsewhere {
		if !tried[field] {
			t.Errorf("%s: the messages do not have it", field)
		}
	}
	if len(tried) < 60 {
		t.Errorf("%d fields", len(tried))
	}
}
