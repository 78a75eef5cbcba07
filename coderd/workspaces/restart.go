package workspaces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// buildInput is the input of a build's job.
type buildInput struct {
	BuildID uuid.UUID `json:"workspace_build_id"`
	// Then is the start that follows the stop of a restart.
	Then *startAgain `json:"then,omitempty"`
	// Handover is the transfer that follows the stop.
	Handover *handover `json:"handover,omitempty"`
}

// startAgain is the second half of a restart. It is stored with the job of the first half, so that the workspace starts
// again even if the client that asked for it is gone.
type startAgain struct {
	Version    uuid.UUID            `json:"version"`
	Preset     uuid.UUID            `json:"preset"`
	Given      []sdk.ParameterValue `json:"given,omitempty"`
	Gone       map[string]bool      `json:"gone,omitempty"`
	Initiator  uuid.UUID            `json:"initiator"`
	Reason     sdk.BuildReason      `json:"reason"`
	LogLevel   string               `json:"log_level,omitempty"`
	Tags       map[string]string    `json:"tags"` // nil: as in the previous build
	AnyVersion bool                 `json:"any_version,omitempty"`
	Replacing  []string             `json:"replacing,omitzero"` // nil: the template decides
}

func (r buildRequest) again() *startAgain {
	return &startAgain{
		Version: r.version, Preset: r.preset, Given: r.given, Gone: r.gone, Initiator: r.initiator, Reason: r.reason,
		LogLevel: r.logLevel, Tags: r.tags, AnyVersion: r.anyVersion,
		Replacing: r.replacing,
	}
}

func (a startAgain) request() buildRequest {
	return buildRequest{
		transition: sdk.TransitionStart, version: a.Version, preset: a.Preset, given: a.Given, gone: a.Gone, initiator: a.Initiator, reason: a.Reason, logLevel: a.LogLevel,
		priority: priorityPerson, tags: a.Tags, anyVersion: a.AnyVersion, replacing: a.Replacing,
	}
}

// restart stops a workspace and starts it again once the stop has succeeded. It checks the start first: a refused
// request leaves the workspace as it is. It answers with the build that runs now: the stop, or the start of a stopped
// workspace.
func (s *Service) restart(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.buildable(r)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	if err := actor.InScope("workspace:stop"); err != nil {
		return err
	}
	if err := actor.InScope("workspace:start"); err != nil {
		return err
	}
	var req sdk.CreateBuildRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.Transition != "" && req.Transition != sdk.TransitionStart {
		return fault.New(fault.Invalid, "The restart request is invalid.").
			WithField("transition", "must be start or empty")
	}
	req.Transition = sdk.TransitionStart
	if len(req.ProvisionerState) > 0 {
		return fault.New(fault.Invalid, "The restart request is invalid.").
			WithField("state", "cannot be given with a restart")
	}
	start, err := s.buildRequestOf(r.Context(), actor, ws, req)
	if err != nil {
		return err
	}
	return s.createLocked(w, r, ws, func(ctx context.Context, q *dbsqlc.Queries, locked dbsqlc.Workspace) (uuid.UUID, error) {
		planned, err := s.plan(ctx, q, locked, start)
		if err != nil {
			return uuid.Nil, err
		}
		if stopped(planned.latest) {
			return s.queue(ctx, q, locked, planned)
		}
		if start.byHand { // the start may come when the user is gone
			if err := consents.Give(ctx, q, locked.OwnerID, locked.TemplateID); err != nil {
				return uuid.Nil, err
			}
		}
		return s.build(ctx, q, locked, buildRequest{
			transition: sdk.TransitionStop, initiator: start.initiator, reason: start.reason, logLevel: start.logLevel, priority: priorityPerson, then: start.again(),
			replacing: start.replacing,
		})
	})
}

func stopped(b dbsqlc.GetLatestBuildRow) bool {
	return sdk.Transition(b.Transition) == sdk.TransitionStop && sdk.JobStatus(b.JobStatus) == sdk.JobSucceeded
}

// stoppedFor does what a workspace was stopped for.
func (s *Service) stoppedFor(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, job dbsqlc.ProvisionerJob,
) error {
	var in buildInput
	if err := json.Unmarshal(job.Input, &in); err != nil {
		return fmt.Errorf("decode job input: %w", err)
	}
	switch {
	case in.Then != nil:
		return s.startAgain(ctx, q, w, *in.Then)
	case in.Handover != nil:
		return s.handOverStopped(ctx, q, w, *in.Handover)
	}
	return nil
}

// startAgain begins the second half of a restart after its stop has succeeded. If the start is refused now, because the
// template changed meanwhile, the workspace stays stopped.
func (s *Service) startAgain(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, then startAgain) error {
	_, err := s.build(ctx, q, w, then.request())
	if refused, ok := errors.AsType[*fault.Error](err); ok && refused.Code != fault.Internal {
		s.log.WarnContext(ctx, "cannot start workspace again", "workspace", w.ID, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	return nil
}
