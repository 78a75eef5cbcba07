package coderd

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/provisioners"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/secrets"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// The types here fit services to the interfaces that others declare, where the two have words of their own for a thing.
// Everything else fits as it is.

// reachableAgents are the agents as users' own programs reach them, through the mesh and the gateways.
type reachableAgents struct {
	*agents.Service
	browserOnly bool
}

func (s *Server) reachable() reachableAgents { return reachableAgents{s.Agents, s.opts.BrowserOnly} }

// MayConnect is like that of agents. It refuses those who may connect if the deployment lets users in through the
// browser only: others learn no more than elsewhere.
func (a reachableAgents) MayConnect(ctx context.Context, actor rbac.Actor, agent uuid.UUID) error {
	err := a.Service.MayConnect(ctx, actor, agent)
	if err == nil && a.browserOnly {
		return fault.New(fault.Forbidden,
			"This deployment lets users reach workspaces in the browser only. Open the workspace in the dashboard.")
	}
	return err
}

// refusedByMesh records what a user's own program was refused. The mesh does not know what it is for.
func (s *Server) refusedByMesh(user, agent uuid.UUID, name string, from netip.Addr, reason error) {
	_ = s.Connections.Refused(audit.Connection{ // it returns the reason
		Type: audit.SSH, Mesh: true, User: user, Agent: agent, Name: name, Addr: from,
	}, reason)
}

// meshAgents are the agents as the mesh knows them.
type meshAgents struct{ reachableAgents }

func (a meshAgents) AuthenticateAgent(ctx context.Context, token secret.Token) (mesh.Agent, error) {
	agent, err := a.Service.AuthenticateAgent(ctx, token)
	known := mesh.Agent{ID: agent.ID, Name: agent.Name, Owner: agent.OwnerID}
	if known.Owner == sdk.PrebuildsOwnerID {
		known.Owner = uuid.Nil // prebuilt workspaces will belong to several users
	}
	return known, err
}

// meshRegions are the region proxies as the mesh knows them.
type meshRegions struct{ *regions.Service }

func (r meshRegions) AuthenticateProxy(ctx context.Context, token secret.Token) (mesh.RegionProxy, error) {
	p, err := r.Authenticate(ctx, token)
	return mesh.RegionProxy{ID: p.ID, Name: p.Name, Fingerprint: p.Fingerprint}, err
}

func (r meshRegions) MayVisit(ctx context.Context, p mesh.RegionProxy, node, agent uuid.UUID) error {
	return r.Service.MayVisit(ctx, regions.Proxy{ID: p.ID, Name: p.Name, Fingerprint: p.Fingerprint}, node, agent)
}

// meshKeys are the provisioners' keys as the mesh knows them.
type meshKeys struct{ *provisioners.Service }

func (k meshKeys) Authenticate(ctx context.Context, key secret.Token) (mesh.ProvisionerKey, error) {
	found, err := k.Service.Authenticate(ctx, key)
	return mesh.ProvisionerKey{ID: found.ID, Name: found.Name, Tags: found.Tags, Organization: found.Organization}, err
}

// meshDaemons are the participants of the mesh as the queue and the agents know them.
type meshDaemons struct{ *mesh.Service }

// calling is the daemon that holds a mesh address.
func (d meshDaemons) calling(addr netip.Addr) (jobs.Daemon, bool) {
	p, ok := d.CallingProvisioner(addr)
	return jobs.Daemon{
		ID: p.ID, Name: p.Name, Tags: p.Tags, Owner: p.Owner, Organization: p.Organization, BuiltIn: p.BuiltIn,
		KeyID: p.KeyID, KeyName: p.KeyName,
	}, ok
}

// agentOwners are the users as their agents know them.
type agentOwners struct {
	*users.Service
	db *database.DB
}

func (o agentOwners) GitSSHKey(ctx context.Context, user uuid.UUID) (public string, private secret.Token, err error) {
	key, err := o.SSHKey(ctx, o.db.Queries, user)
	return key.Public, key.Private, err
}

// peer is a participant of the mesh as agents' connections know it.
func (d meshDaemons) peer(addr netip.Addr) (agents.Peer, bool) {
	p, ok := d.Peer(addr)
	return agents.Peer(p), ok
}

// agentSecrets are users' secrets as their agents know them.
type agentSecrets struct{ *secrets.Service }

func (a agentSecrets) SecretsOf(ctx context.Context, user uuid.UUID) ([]agents.Secret, error) {
	found, err := a.For(ctx, user)
	out := make([]agents.Secret, 0, len(found))
	for _, secret := range found {
		out = append(out, agents.Secret(secret))
	}
	return out, err
}

// announcer makes notifications of what policy announces.
type announcer struct{ recorder *notifications.Recorder }

func (a announcer) Announce(ctx context.Context, q *dbsqlc.Queries, what workspaces.Announcement) error {
	var t notifications.Template
	switch {
	case what.Done && what.Action == sdk.ScheduledDormancy:
		t = notifications.WorkspaceDormant
	case what.Done: // users see that a workspace started or stopped; a deletion is announced when it succeeded
		return nil
	case what.Action == sdk.ScheduledStop:
		t = notifications.WorkspaceStopsSoon
	case what.Action == sdk.ScheduledDormancy:
		t = notifications.WorkspaceDormantSoon
	case what.Action == sdk.ScheduledDelete:
		t = notifications.WorkspaceMarkedForDeletion
	default:
		return nil
	}
	owner, err := q.GetUsername(ctx, what.UserID)
	if err != nil {
		return fmt.Errorf("read owner's name: %w", err)
	}
	return a.recorder.Record(ctx, q, notifications.Event{
		Template: t, To: []uuid.UUID{what.UserID}, Targets: []uuid.UUID{what.WorkspaceID, what.TemplateID},
		Labels: map[string]string{"workspace": what.WorkspaceName, "owner": owner, "reason": what.Explanation},
	})
}
