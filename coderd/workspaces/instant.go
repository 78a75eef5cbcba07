package workspaces

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// An instant claim gives a prebuilt workspace's agents to its new owner in the transaction of the claim, before a
// provisioner has seen the claim's build. The build of the prebuilt workspace has told what the agents get
// (provisionerpb.ClaimPlan); the build of the claim follows and confirms it.
//
//	claim's transaction:  owner, name, build, agents of that build, awaited_build
//	agent:                fetches its manifest, and says which it has; only then may its owner connect
//	claim's build:        runs as any other; its result replaces what the plan said
//
// Whatever happens to servers, the agents are either the pool's, which no user reaches, or entirely the new owner's. If
// the claim's build fails, is canceled or is lost with its provisioner, the workspace has failed, and its agents lose
// their tokens as after any start that fails.

// giveAgents makes the workspace's agents await the claim's build, and gives them to the new owner if a plan of the
// claim says how.
func (s *Service) giveAgents(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, build uuid.UUID, planned []byte,
) error {
	b, err := q.GetBuild(ctx, build)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	if err := q.AwaitManifests(ctx, dbsqlc.AwaitManifestsParams{
		WorkspaceID: &w.ID, BuildNumber: b.BuildNumber,
	}); err != nil {
		return fmt.Errorf("await manifests: %w", err)
	}
	if len(planned) == 0 {
		return nil
	}
	var plan provisionerpb.ClaimPlan
	if err := proto.Unmarshal(planned, &plan); err != nil {
		s.log.WarnContext(ctx, "cannot read plan of a claim", "workspace", w.ID, "err", err)
		return nil
	}
	owner, err := q.GetUser(ctx, w.OwnerID)
	if err != nil {
		return fmt.Errorf("read owner: %w", err)
	}
	live, err := q.ListWorkspaceAgentIDs(ctx, &w.ID)
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	if !ownedBy(&plan, owner, w.Name) || !slices.Equal(live, plannedAgents(&plan)) {
		return nil // only the build can tell
	}
	if _, err := agents.Store(ctx, q, agents.Batch{
		JobID: b.JobID, Transition: sdk.TransitionStart, WorkspaceID: w.ID, BuildNumber: b.BuildNumber,
		Resources: plan.GetResources(), Planned: true,
	}); err != nil {
		return fmt.Errorf("give agents to their owner: %w", err)
	}
	if err := q.SetBuildInstant(ctx, b.ID); err != nil {
		return fmt.Errorf("mark build: %w", err)
	}
	return nil
}

// ownedBy completes a plan's agents for an owner. It reports false if the owner has not all facts that the plan needs.
func ownedBy(plan *provisionerpb.ClaimPlan, owner dbsqlc.User, workspace string) bool {
	facts := provisionerpb.OwnerFacts(&provisionerpb.Metadata{
		OwnerName: owner.Username, OwnerFullName: owner.Name, OwnerEmail: owner.Email, WorkspaceName: workspace,
	}, owner.ID.String())
	all := map[string]*provisionerpb.Agent{}
	for _, r := range plan.GetResources() {
		for _, a := range r.GetAgents() {
			all[string(a.GetId())] = a
		}
	}
	for _, v := range plan.GetVariables() {
		a := all[string(v.GetAgentId())]
		value, ok := v.GetValue().Value(facts)
		if a == nil || !ok {
			return false
		}
		if a.Env == nil {
			a.Env = map[string]string{}
		}
		a.Env[v.GetName()] = value
	}
	for _, a := range all {
		a.Complete = true
	}
	return true
}

// plannedAgents returns the ids of a plan's agents, sorted as PostgreSQL sorts them. There are none in dev containers.
func plannedAgents(plan *provisionerpb.ClaimPlan) (ids []uuid.UUID) {
	for _, r := range plan.GetResources() {
		for _, a := range r.GetAgents() {
			if id, err := uuid.FromBytes(a.GetId()); err == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// maxClaimPlan bounds what is kept of a provisioner's plan of a claim, in bytes.
const maxClaimPlan = 1 << 20

// maxClaimWaits bounds how many reasons of a provisioner are kept, and maxClaimWait their length in bytes.
const (
	maxClaimWaits = 10
	maxClaimWait  = 1000
)

// storePrebuilt records how the first build of a prebuilt workspace ended, with its plan of the claim or why there is
// none.
func (s *Service) storePrebuilt(
	ctx context.Context, q *dbsqlc.Queries, workspace uuid.UUID, built *provisionerpb.BuildResult, succeeded bool,
) error {
	p := dbsqlc.SetPrebuiltResultParams{WorkspaceID: workspace, Succeeded: succeeded}
	if plan := built.GetClaimPlan(); succeeded && plan != nil {
		planned, err := proto.Marshal(plan)
		if err != nil {
			return fmt.Errorf("encode plan of a claim: %w", err)
		}
		if len(planned) <= maxClaimPlan {
			p.ClaimPlan, p.ClaimWaits = planned, []string{}
		}
	}
	if reasons := built.GetClaimWaits(); succeeded && p.ClaimPlan == nil && len(reasons) > 0 {
		for _, reason := range reasons[:min(len(reasons), maxClaimWaits)] {
			p.ClaimWaits = append(p.ClaimWaits, database.Visible(reason[:min(len(reason), maxClaimWait)]))
		}
	}
	if err := q.SetPrebuiltResult(ctx, p); err != nil {
		return fmt.Errorf("store result of prebuilt workspace: %w", err)
	}
	return nil
}

// givenWithin bounds how long an answer waits for the agents of an instant claim. They need a few milliseconds.
const givenWithin = time.Second

// given returns a workspace of an instant claim when its owner can connect, or as it is after givenWithin.
func (s *Service) given(ctx context.Context, viewer rbac.Actor, w sdk.Workspace) (sdk.Workspace, error) {
	var ids []uuid.UUID
	for _, a := range w.LatestBuild.Agents() {
		ids = append(ids, a.ID)
	}
	if err := s.opts.Agents.AwaitManifests(ctx, givenWithin, ids...); err != nil {
		s.log.DebugContext(ctx, "agents are not ready for their owner yet", "workspace", w.ID, "err", err)
	}
	return s.one(ctx, viewer, w.ID)
}
