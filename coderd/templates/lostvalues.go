package templates

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// maxShownLost bounds how many values a warning quotes.
const maxShownLost = 5

// warnOfLostValues tells the author of a new version which values of existing workspaces it does not allow: their users
// cannot update before they choose others.
func (h importHandler) warnOfLostValues(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, template uuid.UUID, definitions []Definition,
) error {
	rows, err := q.CountParameterValues(ctx, template)
	if err != nil {
		return fmt.Errorf("count values of workspaces: %w", err)
	}
	for _, d := range definitions {
		text := lostValues(d, rows)
		if text == "" {
			continue
		}
		if err := h.opts.Jobs.Warn(ctx, q, job, "Checking the parameters of existing workspaces", text); err != nil {
			return err
		}
	}
	return nil
}

// lostValues describes the values in rows that a definition does not allow, or returns "" if there are none.
func lostValues(d Definition, rows []dbsqlc.CountParameterValuesRow) string {
	if d.Ephemeral {
		return ""
	}
	var total int64
	var quoted []string
	for _, row := range rows {
		if row.Name != d.Name || Check(d.checkable(), row.Value, "") == "" {
			continue
		}
		total += row.Workspaces
		quoted = append(quoted, strconv.Quote(row.Value))
	}
	if total == 0 {
		return ""
	}
	values := "the value"
	switch {
	case d.Masked():
	case len(quoted) > maxShownLost:
		values = strings.Join(quoted[:maxShownLost], ", ") + " and other values"
	default:
		values = strings.Join(quoted, ", ")
	}
	workspaces := "1 workspace"
	if total > 1 {
		workspaces = fmt.Sprintf("%d workspaces", total)
	}
	return fmt.Sprintf("The parameter %q does not allow %s of %s. An update needs another value: coder update WORKSPACE --parameter %s=VALUE", d.Name, values, workspaces, shell.POSIX(d.Name))
}
