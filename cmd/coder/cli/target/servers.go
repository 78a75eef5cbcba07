package target

import (
	"context"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Placement is where a participant of the mesh is connected: its server, and the server whose relay holds its
// connection. Both are nil while unknown.
type Placement struct {
	Server uuid.UUID
	Relay  uuid.UUID
}

// Placements returns where participants are connected. Those that the user may not see are omitted.
func Placements(ctx context.Context, client *sdk.Client, ids ...uuid.UUID) (map[uuid.UUID]Placement, error) {
	list, err := client.MeshPeers(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[uuid.UUID]Placement, len(ids))
	for _, p := range list.Peers {
		for _, id := range ids {
			if p.ID != id {
				continue
			}
			at := Placement{Server: p.ServerID}
			if p.RelayServerID != nil {
				at.Relay = *p.RelayServerID
			}
			found[id] = at
		}
	}
	return found, nil
}

// ShortID returns the beginning of a server's id, as the dashboard shows it; "unknown" for the nil id.
func ShortID(id uuid.UUID) string {
	if id == uuid.Nil {
		return "unknown"
	}
	return id.String()[:8]
}
