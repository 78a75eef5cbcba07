package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/policy"
)

// countPrebuilds returns the metrics of prebuilt workspaces.
func countPrebuilds(ctx context.Context, q *dbsqlc.Queries) (out []prometheus.Metric, err error) {
	rows, err := q.CountPrebuilds(ctx, dbsqlc.CountPrebuildsParams{})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, r := range rows {
		pool := policy.Pool{Failures: int(r.Failures)}
		if err := json.Unmarshal(r.Prebuilds, &pool.Prebuilds); err != nil {
			return nil, fmt.Errorf("decode prebuilds of preset %s: %w", r.PresetName, err)
		}
		desired, limited := pool.Desired(now), 0
		if r.Deprecated {
			desired = 0
		}
		if _, ever := pool.Hold(); !ever {
			limited = 1
		}
		labels := []string{r.TemplateName, r.PresetName, r.OrganizationName}
		out = append(out,
			counter(prebuiltCreated, float64(r.Created), labels...), counter(prebuiltFailed, float64(r.Failed),
				labels...), counter(prebuiltClaimed, float64(r.Claimed), labels...),
			gauge(prebuiltDesired, float64(desired), labels...), gauge(prebuiltRunning, float64(r.Running),
				labels...), gauge(prebuiltEligible, float64(r.Eligible), labels...),
			gauge(prebuiltLimited, float64(limited), labels...))
	}
	return out, nil
}
