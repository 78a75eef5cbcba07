package workspaces

import (
	"context"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/workspaces/statefile"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// checkPushed returns a fault if a state that a user gives cannot be used, or, unless forced, does not follow from the
// state of a workspace's latest build.
func (s *Service) checkPushed(
	ctx context.Context, q *dbsqlc.Queries, workspace, latest uuid.UUID, state []byte, forced bool,
) error {
	given, err := statefile.Read(state)
	if err != nil {
		return fault.New(fault.Invalid, "This is not a Terraform state: %w.", err).
			WithField("state", "must be a state file of version 4").
			WithDetail("Give a file from coder state pull, or choose a state of an earlier build: coder state restore.")
	}
	if forced || latest == uuid.Nil {
		return nil
	}
	text, err := s.state(ctx, q, workspace, latest)
	if fault.CodeOf(err) == fault.Conflict {
		return nil // its key is lost, or it is damaged: the push is the remedy
	}
	if err != nil {
		return err
	}
	now, err := statefile.Read(text)
	if err != nil {
		return nil //nolint:nilerr // there is nothing from which it could follow
	}
	switch {
	case given.Lineage != now.Lineage:
		return fault.New(fault.Conflict, "This state is not of this workspace: its lineage is %s, and the workspace's is %s.", given.Lineage, now.Lineage).
			WithField("state", "has another lineage").
			WithDetail("With it, builds would change and delete the %d resources of that state, which another workspace may use, and forget the %d resources of this workspace, which stay behind. To use it nevertheless, add --force.",
				given.Resources, now.Resources)
	case given.Serial < now.Serial:
		return fault.New(fault.Conflict, "This state is older than the workspace's: its serial is %d, and the workspace's is %d.", given.Serial, now.Serial).
			WithField("state", "has a lower serial").
			WithDetail("With it, builds would forget what was created since. To use it nevertheless, add --force.")
	}
	return nil
}
