package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

// maxKeys is how many keys of a user are kept, the newest ones.
const maxKeys = 1000

// useKey notes in the transaction of a creation that the request's key was used for it. Of several rows of a request it
// is the first of the kind that the route declares.
func useKey(ctx context.Context, q *dbsqlc.Queries, kind string, e Entry) error {
	key, trail := httpapi.KeyOf(ctx), httpapi.TrailOf(ctx)
	if key == nil || trail == nil || trail.Declared().Kind != kind || e.Status >= http.StatusBadRequest {
		return nil
	}
	created := e.Created
	if created == uuid.Nil {
		created = e.ID
	}
	sum, err := key.Sum()
	if err != nil {
		return err
	}
	user := httpapi.ActorFrom(ctx).UserID
	n, err := q.UseCreationKey(ctx, dbsqlc.UseCreationKeyParams{
		UserID: user, KeyHash: key.Hash[:], RequestID: key.Request, RequestHash: sum[:], ObjectID: created,
	})
	if err != nil {
		return fmt.Errorf("note key of request: %w", err)
	}
	if n == 0 {
		return httpapi.KeyUsed()
	}
	if err := q.TrimCreationKeys(ctx, dbsqlc.TrimCreationKeysParams{UserID: user, Kept: maxKeys}); err != nil {
		return fmt.Errorf("remove old keys of requests: %w", err)
	}
	return nil
}

// KeysOf returns how a mux looks up what requests with keys have created.
func KeysOf(db *database.DB) httpapi.Keys {
	return func(ctx context.Context, user uuid.UUID, key [sha256.Size]byte) (*httpapi.Used, error) {
		row, err := db.GetCreationKey(ctx, dbsqlc.GetCreationKeyParams{UserID: user, KeyHash: key[:]})
		if database.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look up key of request: %w", err)
		}
		return &httpapi.Used{Request: [sha256.Size]byte(row.RequestHash), Created: row.ObjectID}, nil
	}
}
