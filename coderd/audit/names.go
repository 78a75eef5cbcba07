package audit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxNamed bounds how many ids of a page get their names.
const maxNamed = 10_000

var anID = lazyregexp.New(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// name adds to rows the names of the objects that their differences mention by id.
func (s *Service) name(ctx context.Context, rows []sdk.AuditLog) error {
	mentioned := make([][]string, len(rows))
	var ids []uuid.UUID
	seen := map[string]bool{}
	for i, row := range rows {
		if len(row.Diff) == 0 {
			continue
		}
		text, err := json.Marshal(row.Diff)
		if err != nil {
			return fmt.Errorf("encode difference of audit row %s: %w", row.ID, err)
		}
		mentioned[i] = anID().FindAllString(string(text), -1)
		for _, id := range mentioned[i] {
			if parsed, err := uuid.Parse(id); err == nil && !seen[id] && len(ids) < maxNamed {
				seen[id], ids = true, append(ids, parsed)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := s.db.ListNames(ctx, ids)
	if err != nil {
		return fmt.Errorf("look up names: %w", err)
	}
	names := make(map[string]string, len(found))
	for _, f := range found {
		names[f.ID.String()] = f.Name
	}
	for i := range rows {
		for _, id := range mentioned[i] {
			if name, ok := names[id]; ok {
				if rows[i].Names == nil {
					rows[i].Names = sdk.Map[string]{}
				}
				rows[i].Names[id] = name
			}
		}
	}
	return nil
}
