package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	maxMonitors = 17 // the memory and 16 volumes
	// changePause is how long a monitor stays as it is. It bounds what an agent can make the server write. Honest
	// agents change a monitor every 20 seconds at most.
	changePause = 10 * time.Second
	// noticePause is how long a workspace's owner is not notified again of the same volume, or of the memory. It
	// outlives agents and builds.
	noticePause = time.Hour
)

// monitor is what an agent watches, with the state that it reported last.
type monitor struct {
	Volume     string     `json:"volume"`    // "" is the memory
	Threshold  int32      `json:"threshold"` // percent
	Over       bool       `json:"over,omitempty"`
	Percent    int32      `json:"percent,omitempty"` // in use at ChangedAt
	ChangedAt  *time.Time `json:"changed_at,omitempty"`
	NotifiedAt *time.Time `json:"notified_at,omitempty"`
}

// monitors returns the monitors of a build's agent, in JSON. The states of an agent that this build has stored before
// are kept.
func (s *storing) monitors(ctx context.Context, a *provisionerpb.Agent, before *dbsqlc.WorkspaceAgent) ([]byte, error) {
	all := []monitor{}
	for _, m := range a.GetMonitors() {
		volume, threshold := database.Text(m.GetVolume()), m.GetThresholdPercent()
		if len(volume) > maxText || threshold < 0 || threshold > 100 || len(all) == maxMonitors ||
			find(all, volume) != nil {
			s.omit(a.GetPlace(), "The agent %q does not watch the volume %q: the path is too long or watched already, the threshold is no percentage, or the agent watches too many.",
				database.Text(a.GetName()), short(volume, 200))
			continue
		}
		all = append(all, monitor{Volume: volume, Threshold: threshold})
	}
	if len(all) > 0 && s.batch.WorkspaceID != uuid.Nil {
		if err := s.keepMonitors(ctx, all, before); err != nil {
			return nil, err
		}
	}
	return marshal(all)
}

// keepMonitors fills in what is known of an agent's monitors, and when the workspace's owner was notified of them.
func (s *storing) keepMonitors(ctx context.Context, all []monitor, before *dbsqlc.WorkspaceAgent) error {
	var had []monitor
	if before != nil && before.BuildNumber == s.batch.BuildNumber {
		if err := json.Unmarshal(before.Monitors, &had); err != nil {
			return fmt.Errorf("decode agent's monitors: %w", err)
		}
	}
	notices, err := s.ListMonitorNotices(ctx, &s.batch.WorkspaceID)
	if err != nil {
		return fmt.Errorf("read when monitors notified: %w", err)
	}
	for i := range all {
		m := &all[i]
		if h := find(had, m.Volume); h != nil && h.Threshold == m.Threshold {
			*m = *h
		}
		for _, n := range notices {
			if n.Volume == m.Volume {
				m.NotifiedAt = &n.NotifiedAt
			}
		}
	}
	return nil
}

func find(all []monitor, volume string) *monitor {
	if i := slices.IndexFunc(all, func(m monitor) bool { return m.Volume == volume }); i >= 0 {
		return &all[i]
	}
	return nil
}

// apply changes the monitors whose reported state differs from the stored one, and returns whether there were any, and
// those of which the owner must be notified. It ignores unknown monitors, and those that changed a moment ago.
func apply(all []monitor, levels []*agentpb.MonitorLevel, at time.Time) (changed bool, passed []monitor) {
	for _, l := range levels {
		m := find(all, l.GetVolume())
		if m == nil || m.Over == l.GetOver() || m.ChangedAt != nil && at.Sub(*m.ChangedAt) < changePause {
			continue
		}
		changed = true
		m.Over, m.Percent, m.ChangedAt = l.GetOver(), int32(min(l.GetPercent(), 100)), &at
		if m.Over && (m.NotifiedAt == nil || at.Sub(*m.NotifiedAt) >= noticePause) {
			m.NotifiedAt = &at
			passed = append(passed, *m)
		}
	}
	return changed, passed
}

// Monitors stores which of the agent's own monitors have passed their thresholds, and notifies the workspace's owner. A
// report that changes nothing writes nothing.
func (r *rpc) Monitors(
	ctx context.Context, req *connect.Request[agentpb.MonitorsRequest],
) (*connect.Response[agentpb.MonitorsResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	levels := req.Msg.GetLevels()
	if len(levels) > maxMonitors {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("%d monitors, at most %d are possible", len(levels), maxMonitors))
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	all, err := r.storeLevels(ctx, id, levels)
	if err != nil {
		return nil, r.fail(ctx, id, "store monitors", err)
	}
	out := &agentpb.MonitorsResponse{}
	for _, m := range all {
		out.Levels = append(out.Levels, &agentpb.MonitorLevel{
			Volume: m.Volume, Over: m.Over, Percent: uint32(m.Percent),
		})
	}
	return connect.NewResponse(out), nil
}

func (r *rpc) storeLevels(
	ctx context.Context, id uuid.UUID, levels []*agentpb.MonitorLevel,
) (all []monitor, err error) {
	at := now()
	a, err := r.opts.DB.GetAgentManifest(ctx, id) // not for revoked agents
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.WorkspaceAgent.Monitors, &all); err != nil {
		return nil, fmt.Errorf("decode agent's monitors: %w", err)
	}
	if changed, _ := apply(slices.Clone(all), levels, at); !changed {
		return all, nil
	}
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		locked, err := q.GetAgentForUpdate(ctx, id)
		if err != nil {
			return err
		}
		if locked.TokenHash == nil {
			return pgx.ErrNoRows
		}
		all = nil
		if err := json.Unmarshal(locked.Monitors, &all); err != nil {
			return fmt.Errorf("decode agent's monitors: %w", err)
		}
		changed, passed := apply(all, levels, at)
		if !changed {
			return nil
		}
		data, err := marshal(all)
		if err != nil {
			return err
		}
		if err := q.UpdateAgentMonitors(ctx, dbsqlc.UpdateAgentMonitorsParams{ID: id, Monitors: data}); err != nil {
			return err
		}
		if err := r.notifyPassed(ctx, q, a, passed); err != nil {
			return err
		}
		return announce(ctx, q, id, a.WorkspaceAgent.WorkspaceID)
	})
	return all, err
}

// notifyPassed tells a workspace's owner what has passed its threshold: at most one notification of the memory, and one
// of all volumes.
func (r *rpc) notifyPassed(
	ctx context.Context, q *dbsqlc.Queries, a dbsqlc.GetAgentManifestRow, passed []monitor,
) error {
	var volumes []string
	record := func(t notifications.Template, labels map[string]string) error {
		labels["workspace"], labels["owner"], labels["agent"] = a.WorkspaceName, a.OwnerName, a.WorkspaceAgent.Name
		return r.opts.Notifications.Record(ctx, q, notifications.Event{
			Template: t, To: []uuid.UUID{a.OwnerID}, Targets: []uuid.UUID{*a.WorkspaceAgent.WorkspaceID},
			Labels: labels,
		})
	}
	for _, m := range passed {
		percent, threshold := strconv.Itoa(int(m.Percent)), strconv.Itoa(int(m.Threshold))
		if m.Volume != "" {
			volumes = append(volumes, m.Volume+" is "+percent+" % full (threshold "+threshold+" %)")
			continue
		}
		if err := record(notifications.WorkspaceOutOfMemory, map[string]string{
			"percent": percent, "threshold": threshold,
		}); err != nil {
			return err
		}
	}
	if len(volumes) == 0 {
		return nil
	}
	slices.Sort(volumes)
	return record(notifications.WorkspaceOutOfDisk, map[string]string{"volumes": strings.Join(volumes, ", ")})
}

// monitorsJSON returns an agent's monitors as the API shows them.
func monitorsJSON(data []byte) ([]sdk.AgentMonitor, error) {
	if string(data) == "[]" { // most have none
		return nil, nil
	}
	var all []monitor
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("decode agent's monitors: %w", err)
	}
	out := make([]sdk.AgentMonitor, len(all))
	for i, m := range all {
		out[i] = sdk.AgentMonitor{
			Resource: sdk.MonitorVolume, Path: m.Volume, Threshold: m.Threshold, Over: m.Over, Percent: m.Percent,
			ChangedAt: m.ChangedAt,
		}
		if m.Volume == "" {
			out[i].Resource = sdk.MonitorMemory
		}
	}
	return out, nil
}
