package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// JSON returns jobs as the API shows them, by id. The number of queries does not depend on the number of jobs.
func (s *Service) JSON(
	ctx context.Context, q *dbsqlc.Queries, ids ...uuid.UUID,
) (map[uuid.UUID]sdk.ProvisionerJob, error) {
	shown, _, err := s.Show(ctx, q, ids...)
	return shown, err
}

// Matched counts, by job, the daemons that may take it.
func (s *Service) Matched(
	ctx context.Context, q *dbsqlc.Queries, ids ...uuid.UUID,
) (map[uuid.UUID]sdk.MatchedProvisioners, error) {
	_, matched, err := s.Show(ctx, q, ids...)
	return matched, err
}

// Show returns what JSON and Matched return, with the queries of one call.
func (s *Service) Show(
	ctx context.Context, q *dbsqlc.Queries, ids ...uuid.UUID,
) (map[uuid.UUID]sdk.ProvisionerJob, map[uuid.UUID]sdk.MatchedProvisioners, error) {
	rows, err := q.ListJobsByID(ctx, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("list jobs: %w", err)
	}
	daemons, err := s.daemons(ctx, q, rows)
	if err != nil {
		return nil, nil, err
	}
	shown, err := s.describe(ctx, q, rows, daemons)
	if err != nil {
		return nil, nil, err
	}
	return shown, daemons.matched(shown), nil
}

func (s *Service) show(
	ctx context.Context, q *dbsqlc.Queries, rows []dbsqlc.ProvisionerJob,
) (map[uuid.UUID]sdk.ProvisionerJob, error) {
	daemons, err := s.daemons(ctx, q, rows)
	if err != nil {
		return nil, err
	}
	return s.describe(ctx, q, rows, daemons)
}

func (s *Service) describe(
	ctx context.Context, q *dbsqlc.Queries, rows []dbsqlc.ProvisionerJob, daemons fleets,
) (map[uuid.UUID]sdk.ProvisionerJob, error) {
	ids := make([]uuid.UUID, len(rows))
	var pending []uuid.UUID
	for i, row := range rows {
		ids[i] = row.ID
		if row.Status == statusPending {
			pending = append(pending, row.ID)
		}
	}
	about := map[uuid.UUID]dbsqlc.ListJobMetadataRow{}
	metadata, err := q.ListJobMetadata(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list what jobs are for: %w", err)
	}
	for _, row := range metadata {
		about[row.ID] = row
	}
	places := map[uuid.UUID]dbsqlc.ListPendingPositionsRow{}
	if len(pending) > 0 {
		positions, err := q.ListPendingPositions(ctx, pending)
		if err != nil {
			return nil, fmt.Errorf("list queue positions: %w", err)
		}
		for _, p := range positions {
			places[p.ID] = p
		}
	}
	out := make(map[uuid.UUID]sdk.ProvisionerJob, len(rows))
	for _, row := range rows {
		tags, err := decodeTags(row.Tags)
		if err != nil {
			return nil, err
		}
		m, daemons := about[row.ID], daemons[row.OrganizationID]
		j := sdk.ProvisionerJob{
			ID: row.ID, OrganizationID: row.OrganizationID, InitiatorID: row.InitiatorID, CreatedAt: row.CreatedAt,
			StartedAt:   row.StartedAt,
			CompletedAt: row.CompletedAt, CanceledAt: row.CanceledAt, Status: sdk.JobStatus(row.Status),
			Error: row.Error, ErrorCode: sdk.JobErrorCode(row.ErrorCode),
			WorkerID: row.WorkerID, FileID: row.FileID, Tags: tags, Type: sdk.JobType(row.Kind),
			LogsOverflowed: row.LogOverflowed,
			QueuePosition:  int(places[row.ID].Position), QueueSize: int(places[row.ID].Size),
			Input: sdk.ProvisionerJobInput{
				TemplateVersionID: m.TemplateVersionID, WorkspaceBuildID: m.WorkspaceBuildID,
			},
			Metadata: sdk.ProvisionerJobMetadata{
				TemplateVersionName: m.TemplateVersionName, TemplateName: m.TemplateName,
				TemplateDisplayName: m.TemplateDisplayName, TemplateIcon: m.TemplateIcon,
				WorkspaceID: m.WorkspaceID, WorkspaceName: m.WorkspaceName,
			},
		}
		if m.TemplateID != nil {
			j.Metadata.TemplateID = *m.TemplateID
		}
		if row.WorkerID != nil {
			j.WorkerName = daemons.names[*row.WorkerID]
			if row.AbsentSince != nil && !ended(row.Status) && row.Status != statusPending {
				j.WaitingReason = offlineSince(j.WorkerName, *row.AbsentSince)
				j.WaitingRemedy = s.absenceRemedy(daemons.builtIn[*row.WorkerID])
			}
		}
		if row.InterruptedAt != nil && row.Status == statusRunning {
			j.WaitingReason, j.WaitingRemedy = stoppingServer(j.WorkerName, *row.InterruptedAt, time.Now())
			j.InterruptedAt = row.InterruptedAt
		}
		if row.Status == statusPending {
			j.WaitingReason = waitingReason(tags, daemons.online, daemons.offline, j.QueuePosition)
			j.WaitingRemedy = waitingRemedy(tags, daemons.online)
		}
		out[row.ID] = j
	}
	return out, nil
}

// fleet holds what the matching needs to know of the daemons.
type fleet struct {
	names           map[uuid.UUID]string
	builtIn         map[uuid.UUID]bool
	online, offline []candidate
}

// fleets are the daemons by organization. Built-in daemons are in each of them.
type fleets map[uuid.UUID]fleet

// daemons reads the daemons of the jobs' organizations.
func (s *Service) daemons(ctx context.Context, q *dbsqlc.Queries, jobs []dbsqlc.ProvisionerJob) (fleets, error) {
	all, loaded := fleets{}, map[uuid.UUID]dbsqlc.ListWorkerLoadsRow{} // daemons that run a job
	if slices.ContainsFunc(jobs, func(job dbsqlc.ProvisionerJob) bool { return job.Status == statusPending }) {
		loads, err := q.ListWorkerLoads(ctx)
		if err != nil {
			return nil, fmt.Errorf("count the jobs of provisioners: %w", err)
		}
		for _, load := range loads {
			loaded[load.WorkerID] = load
		}
	}
	for _, job := range jobs {
		if _, ok := all[job.OrganizationID]; ok {
			continue
		}
		f, err := s.fleet(ctx, q, job.OrganizationID, loaded)
		if err != nil {
			return nil, err
		}
		all[job.OrganizationID] = f
	}
	return all, nil
}

func (s *Service) fleet(
	ctx context.Context, q *dbsqlc.Queries, organization uuid.UUID, loaded map[uuid.UUID]dbsqlc.ListWorkerLoadsRow,
) (fleet, error) {
	f := fleet{names: map[uuid.UUID]string{}, builtIn: map[uuid.UUID]bool{}}
	rows, err := q.ListProvisioners(ctx, organization)
	if err != nil {
		return f, fmt.Errorf("list provisioners: %w", err)
	}
	for _, row := range rows {
		f.names[row.ID], f.builtIn[row.ID] = row.Name, row.BuiltIn
		tags, err := decodeTags(row.Tags)
		if err != nil {
			return f, err
		}
		if !row.Online {
			f.offline = append(f.offline, candidate{name: row.Name, tags: tags, seen: row.LastSeenAt})
			continue
		}
		load, runs := loaded[row.ID]
		c := candidate{id: row.ID, name: row.Name, tags: tags, busy: s.busy(row.ID, runs)}
		if load.Leaves {
			c.until = load.Until
		}
		f.online = append(f.online, c)
	}
	return f, nil
}

// busy reports whether a daemon has no free slot. Only the server that a daemon is connected to knows its slots: at
// another one it counts as busy if it is loaded, which means that it runs a job, because it would take a job that waits
// for longer than a moment.
func (s *Service) busy(id uuid.UUID, loaded bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[id]; x != nil {
		return x.slots == 0
	}
	return loaded
}

func decodeTags(data []byte) (map[string]string, error) {
	tags := map[string]string{}
	if string(data) == "{}" { // most have none
		return tags, nil
	}
	if err := json.Unmarshal(data, &tags); err != nil {
		return nil, fmt.Errorf("decode tags: %w", err)
	}
	return tags, nil
}

// matched counts, by job, the daemons that may take it. Few jobs have tags of their own, so each set is matched once.
func (all fleets) matched(shown map[uuid.UUID]sdk.ProvisionerJob) map[uuid.UUID]sdk.MatchedProvisioners {
	out := make(map[uuid.UUID]sdk.MatchedProvisioners, len(shown))
	matched := map[string]sdk.MatchedProvisioners{}
	now := time.Now()
	for id, job := range shown {
		key := fmt.Sprint(job.OrganizationID, map[string]string(job.Tags)) // in the order of the keys
		m, ok := matched[key]
		if !ok {
			m = all[job.OrganizationID].match(job.Tags, now)
			matched[key] = m
		}
		out[id] = m
	}
	return out
}

func (f fleet) match(job map[string]string, now time.Time) sdk.MatchedProvisioners {
	var m sdk.MatchedProvisioners
	for _, d := range f.online {
		if jobtags.Matches(job, d.tags) {
			m.Count++
			m.Available++
			m.MostRecentlySeen = &now
		}
	}
	for _, d := range f.offline {
		if !jobtags.Matches(job, d.tags) {
			continue
		}
		m.Count++
		if d.seen != nil && (m.MostRecentlySeen == nil || d.seen.After(*m.MostRecentlySeen)) {
			m.MostRecentlySeen = d.seen
		}
	}
	return m
}

// daemonJSON returns a daemon and what it is doing, as the API shows them.
func (s *Service) daemonJSON(
	d dbsqlc.ProvisionerDaemon, path string, current, previous *sdk.ProvisionerDaemonJob,
) (sdk.ProvisionerDaemon, error) {
	tags, err := decodeTags(d.Tags)
	if err != nil {
		return sdk.ProvisionerDaemon{}, err
	}
	out := sdk.ProvisionerDaemon{
		ID: d.ID, OrganizationID: d.OrganizationID, CreatedAt: d.CreatedAt, LastSeenAt: d.LastSeenAt, Name: d.Name,
		Version: d.Version, KeyName: d.KeyName,
		APIVersion: "1.0", Provisioners: []string{"terraform"}, Tags: tags, Status: sdk.ProvisionerOffline,
		CurrentJob: current, PreviousJob: previous,
	}
	if out.KeyName == "" { // last joined an older release
		out.KeyName = Daemon{BuiltIn: d.BuiltIn, Tags: tags}.keyName()
	}
	if d.KeyID != nil {
		out.KeyID = *d.KeyID
	}
	if d.Online {
		out.Path, out.ServerID = path, d.ServerID
		out.Status = sdk.ProvisionerIdle
		if current != nil {
			out.Status = sdk.ProvisionerBusy
		}
		now := time.Now()
		out.LastSeenAt = &now
	}
	return out, nil
}
