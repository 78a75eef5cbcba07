package workspaces

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// A workspace keeps some resources while it is stopped, such as a volume with the home folder. A start or stop that
// would replace or delete one of them is refused by the provisioner, which knows the plan, unless the request allows
// each of them by its address. Without such a list in the request, as in automatic builds, the template's setting
// allow_replacing_resources decides.
//
// A refused build is a failed build that has changed nothing. So that the workspace stays what it was, the build gets
// the version and the parameters of the build before it: the next one uses those, and an update is still due. If the
// workspace ran, its agents stay after a refused start. After a refused stop they have run their stop scripts already,
// and return with the next start, as after other stops that fail.
//
// Prebuilt workspaces hold no data of a user, and neither do those that a user claims now.

// maxReplacing bounds the addresses in a request.
const maxReplacing = 1000

// mayReplace returns a fault if the actor may not allow a build to replace what the workspace keeps. What it loses, a
// deletion loses.
func mayReplace(actor rbac.Actor, ws dbsqlc.Workspace) error {
	if err := actor.InScope("workspace:delete"); err != nil {
		return err
	}
	if actor.May(rbac.Delete, object(ws)) != nil {
		return fault.New(fault.Forbidden, "You do not have permission to replace what the workspace %q keeps.", ws.Name).
			WithDetail("Its data would be lost. Ask the workspace's owner to do it.").WithField("allow_replacing",
			"needs permission to delete the workspace")
	}
	return nil
}

// replacement returns what a provisioner may replace of what the workspace keeps; nil for everything.
func replacement(b dbsqlc.GetBuildOfferRow) *provisionerpb.Replacement {
	if sdk.Transition(b.Transition) == sdk.TransitionDelete || b.OwnerID == sdk.PrebuildsOwnerID || b.Claims ||
		b.AllowReplacing == nil && b.TemplateAllowsReplacing {
		return nil
	}
	return &provisionerpb.Replacement{
		Allowed: b.AllowReplacing, Stopped: b.StoppedBefore, Fresh: b.CreatedBefore, Same: b.SameAsBefore,
	}
}

// refusedReplacing reports whether a build ended because of what it would have replaced.
func refusedReplacing(b dbsqlc.GetBuildByJobRow, result *provisionerpb.Result) bool {
	return sdk.Transition(b.Transition) != sdk.TransitionDelete && !result.GetCanceled() &&
		result.GetErrorCode() == string(sdk.JobErrorReplaces) &&
		len(result.GetWorkspaceBuild().GetReplaces()) > 0
}

// refusal is the end of a build that was refused because of what it would have replaced.
type refusal struct {
	before  uuid.UUID // the newest build that was not refused
	starts  bool      // the refused build is a start
	running bool      // the build before started the workspace, and its agents run
	would   []string  // the addresses of what the build would have replaced or deleted
}

// sentence returns why the build was refused, for the workspace's owner, or "" if it was not.
func (r *refusal) sentence() string {
	if r == nil {
		return ""
	}
	verb := "Stop"
	if r.starts {
		verb = "Start"
	}
	return fmt.Sprintf("It would replace or delete what the workspace keeps, and its data would be lost: %s. %s the workspace yourself to decide.",
		strings.Join(r.would, ", "), verb)
}

// refuse returns the refusal of a build, or nil for a workspace's first build, which replaces nothing.
func (h buildHandler) refuse(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, built *provisionerpb.BuildResult,
) (*refusal, error) {
	before, err := q.GetBuildBefore(ctx, dbsqlc.GetBuildBeforeParams{
		WorkspaceID: b.WorkspaceID, BuildNumber: b.BuildNumber,
	})
	if database.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read build before: %w", err)
	}
	starts := sdk.Transition(b.Transition) == sdk.TransitionStart
	running := starts && sdk.Transition(before.Transition) == sdk.TransitionStart &&
		sdk.JobStatus(before.JobStatus) == sdk.JobSucceeded
	return &refusal{before: before.ID, starts: starts, running: running, would: visible(built.GetReplaces())}, nil
}

// store stores what the build would have replaced, and that the workspace keeps its version and parameters.
func (r *refusal) store(ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow) error {
	if err := q.RefuseBuild(ctx, dbsqlc.RefuseBuildParams{
		ID: b.ID, Before: r.before, WouldReplace: r.would,
	}); err != nil {
		return fmt.Errorf("mark refused build: %w", err)
	}
	if err := q.DeleteBuildParameters(ctx, b.ID); err != nil {
		return fmt.Errorf("delete refused parameters: %w", err)
	}
	if err := q.CopyBuildParameters(ctx, dbsqlc.CopyBuildParametersParams{
		IntoBuild: b.ID, FromBuild: r.before,
	}); err != nil {
		return fmt.Errorf("restore parameters: %w", err)
	}
	return nil
}
