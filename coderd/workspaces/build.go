package workspaces

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Priorities of build jobs, lower first.
const (
	priorityPerson    = 0
	priorityAutomatic = 1
)

// buildRequest describes a build to make.
type buildRequest struct {
	transition sdk.Transition
	version    uuid.UUID // zero: the previous build's, or the active one where the template requires it
	preset     uuid.UUID // zero: none
	given      []sdk.ParameterValue
	gone       map[string]bool // given parameters whose previous value the template no longer allows
	initiator  uuid.UUID
	reason     sdk.BuildReason
	because    string // why a policy asks for it, for the audit log: continues "because"
	logLevel   string
	state      []byte // nil: as the previous build left it; empty: nothing is managed any more
	forceState bool   // state need not follow from the previous build's
	priority   int16
	tags       map[string]string // required of the provisioner in addition to the template's; nil: as in the previous build
	anyVersion bool              // the initiator may use versions other than the active one where the template requires that one
	then       *startAgain       // the start that follows a stop; nil for none
	handover   *handover         // the transfer that follows a stop; nil for none
	claims     bool              // gives a prebuilt workspace to its user
	byHand     bool              // a start of it gives the owner's consent: see package consents
	account    *audit.Account    // who asked, if not the actor of a request of the API
	replacing  []string          // what the build may replace of what the workspace keeps; nil: the template decides
}

// reasons lists what a client may give as the reason; only the server uses the others.
var reasons = []sdk.BuildReason{
	sdk.ReasonInitiator, sdk.ReasonDashboard, sdk.ReasonCLI, sdk.ReasonSSH, sdk.ReasonVSCode, sdk.ReasonJetBrains,
}

// next is a build that passed every check and can be queued.
type next struct {
	req     buildRequest
	latest  dbsqlc.GetLatestBuildRow // zero for a workspace's first build
	version uuid.UUID
	file    uuid.UUID
	values  resolved
	tags    map[string]string
	asked   []byte // which of the tags the request asked for
}

// build makes a workspace's next build, with its parameters and its job. The caller's transaction must hold the
// workspace's row lock.
func (s *Service) build(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, req buildRequest,
) (uuid.UUID, error) {
	n, err := s.plan(ctx, q, w, req)
	if err != nil {
		return uuid.Nil, err
	}
	return s.queue(ctx, q, w, n)
}

// plan checks a build and finds its version, parameters and tags. It writes nothing.
func (s *Service) plan(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, req buildRequest) (next, error) {
	if w.DeletedAt != nil {
		return next{}, fault.New(fault.Conflict, "The workspace %q is deleted.", w.Name)
	}
	first := w.LatestBuildID == nil
	var latest dbsqlc.GetLatestBuildRow
	if !first {
		var err error
		if latest, err = q.GetLatestBuild(ctx, w.ID); err != nil {
			return next{}, fmt.Errorf("read latest build: %w", err)
		}
		if status := sdk.Transition(latest.Transition).Status(sdk.JobStatus(latest.JobStatus)); !sdk.JobStatus(latest.JobStatus).Ended() {
			return next{}, fault.New(fault.Conflict, "Another build of the workspace %q is active.", w.Name).
				WithDetail("Build %d (%s) is %s. Wait until it has finished, or cancel it.", latest.BuildNumber,
					latest.Transition, status)
		}
	}
	if unclaimed(w) && !first && req.transition != sdk.TransitionDelete {
		return next{}, refusePrebuilt(w)
	}
	if w.DormantAt != nil && req.transition == sdk.TransitionStart {
		return next{}, refuseDormant(w)
	}
	t, err := q.GetTemplate(ctx, w.TemplateID)
	if err != nil {
		return next{}, fmt.Errorf("read template: %w", err)
	}
	var before *uuid.UUID
	if !first {
		before = &latest.TemplateVersionID
	}
	version, file, err := chooseVersion(ctx, q, w, t, before, req)
	if err != nil {
		return next{}, err
	}
	if !unclaimed(w) { // no user's quota
		if err := affordable(ctx, q, w, version.ID, req); err != nil {
			return next{}, err
		}
	}
	if len(req.state) > 0 {
		if err := s.checkPushed(ctx, q, w.ID, latest.ID, req.state, req.forceState); err != nil {
			return next{}, err
		}
	}
	values, err := s.resolve(ctx, q, w, version.ID, latest.ID, req)
	if err != nil {
		return next{}, err
	}
	if req.transition == sdk.TransitionStart && !unclaimed(w) {
		consented := req.byHand
		if !consented {
			if consented, err = consents.Hold(ctx, q, w.OwnerID, w.TemplateID); err != nil {
				return next{}, err
			}
		}
		if consented { // the build gets no logins without
			if err := s.opts.ExternalAuth.Require(ctx, q, w.OwnerID, version.ID); err != nil {
				return next{}, err
			}
		}
	}
	tags, err := templates.Tags(ctx, q, version.ID, plain(values.now))
	if err != nil {
		return next{}, err
	}
	asked, err := addTags(ctx, q, tags, req.tags, latest.ID)
	if err != nil {
		return next{}, err
	}
	return next{
		req: req, latest: latest, version: version.ID, file: file, values: values, tags: tags, asked: asked,
	}, nil
}

// queue stores a planned build and queues its job.
func (s *Service) queue(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, n next) (uuid.UUID, error) {
	req, state := n.req, n.req.state
	if w.LatestBuildID != nil { // a build does not wait for a plan of its workspace
		if _, err := s.cancelPlans(ctx, q, w.ID); err != nil {
			return uuid.Nil, err
		}
	}
	if state != nil {
		state = s.opts.States.Seal(w.ID, state)
	}
	var preset *uuid.UUID
	if req.preset != uuid.Nil {
		preset = &req.preset
	}
	id := uuid.New()
	job, err := s.opts.Jobs.Insert(ctx, q, jobs.NewJob{
		Kind: string(sdk.JobWorkspaceBuild), Org: w.OrganizationID, Initiator: req.initiator, FileID: n.file,
		Tags: ownerTags(n.tags, w.OwnerID), Priority: req.priority,
		Input: buildInput{BuildID: id, Then: req.then, Handover: req.handover},
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("insert job: %w", err)
	}
	if _, err := q.InsertBuild(ctx, dbsqlc.InsertBuildParams{
		ID: id, WorkspaceID: w.ID, BuildNumber: n.latest.BuildNumber + 1, TemplateVersionID: n.version, JobID: job.ID,
		Transition: string(req.transition),
		Reason:     string(req.reason), InitiatorID: req.initiator, LogLevel: req.logLevel, State: state,
		ProvisionerTags:         n.asked,
		TemplateVersionPresetID: preset, ByOwner: req.byHand, AllowReplacing: req.replacing,
	}); err != nil {
		return uuid.Nil, fmt.Errorf("insert build: %w", err)
	}
	if req.byHand && req.transition == sdk.TransitionStart {
		if err := consents.Give(ctx, q, w.OwnerID, w.TemplateID); err != nil {
			return uuid.Nil, err
		}
	}
	if err := storeValues(ctx, q, id, n.values.now); err != nil {
		return uuid.Nil, err
	}
	if err := storeValues(ctx, q, n.latest.ID, n.values.found); err != nil {
		return uuid.Nil, err
	}
	if err := s.recordRequest(ctx, q, w, n, id); err != nil {
		return uuid.Nil, err
	}
	if req.priority == priorityPerson && w.LatestBuildID != nil { // the creation of a workspace is its first use
		if err := q.TouchWorkspaceNow(ctx, w.ID); err != nil {
			return uuid.Nil, fmt.Errorf("note use: %w", err)
		}
	}
	return id, nil
}

// chooseVersion returns the version to build with, and its source file.
func chooseVersion(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, t dbsqlc.Template, before *uuid.UUID, req buildRequest,
) (dbsqlc.TemplateVersion, uuid.UUID, error) {
	starting := req.transition == sdk.TransitionStart
	id := req.version
	if id == uuid.Nil {
		id = t.ActiveVersionID
		follow := starting && (t.RequireActiveVersion || w.AutomaticUpdates == string(sdk.UpdatesAlways))
		if before != nil && !follow {
			id = *before
		}
	}
	if starting && t.RequireActiveVersion && id != t.ActiveVersionID && !req.anyVersion {
		return dbsqlc.TemplateVersion{}, uuid.Nil, fault.New(fault.Forbidden, "The template %q allows its active version only.", t.Name).
			WithDetail("Omit the version, or update the workspace.").WithField("template_version_id",
			"is not the active version")
	}
	// Owners who lost access to the template keep their workspaces, which start with the version of the previous build.
	if starting && before != nil && id != *before && !req.anyVersion {
		shared, err := q.IsTemplateSharedWith(ctx, dbsqlc.IsTemplateSharedWithParams{ID: t.ID, UserID: w.OwnerID})
		switch {
		case err != nil:
			return dbsqlc.TemplateVersion{}, uuid.Nil, fmt.Errorf("look up access to template: %w", err)
		case !shared && (req.version != uuid.Nil || t.RequireActiveVersion):
			return dbsqlc.TemplateVersion{}, uuid.Nil, fault.New(fault.Forbidden, "The workspace's owner no longer has access to the template %q.", t.Name).
				WithDetail("The workspace cannot be updated to another version. Ask an admin of the template for access.")
		case !shared:
			id = *before
		}
	}
	v, file, err := templates.Ready(ctx, q, id, t.ID)
	return v, file, err
}

// resolve finds the values of the version's parameters. latest is the previous build, zero for none.
func (s *Service) resolve(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, version, latest uuid.UUID, req buildRequest,
) (resolved, error) {
	definitions, err := templates.Definitions(ctx, q, version)
	if err != nil {
		return resolved{}, err
	}
	from := templates.Values{
		Given: req.given, Ending: req.transition != sdk.TransitionStart, NewOwner: req.claims, Gone: req.gone,
	}
	var out resolved
	if latest != uuid.Nil {
		stored, found, err := s.valuesOf(ctx, q, w.ID, latest, definitions)
		if err != nil {
			return resolved{}, err
		}
		previous := slices.Concat(stored, found)
		out.found, from.Previous, from.Computed = found, plain(previous), computed(previous)
	}
	if req.preset != uuid.Nil {
		presets, err := templates.Presets(ctx, q, version)
		if err != nil {
			return resolved{}, err
		}
		i := slices.IndexFunc(presets, func(p sdk.Preset) bool { return p.ID == req.preset })
		if i < 0 {
			return resolved{}, fault.New(fault.Invalid, "The template version has no such preset.").
				WithField("template_version_preset_id", "does not exist")
		}
		for _, v := range presets[i].Parameters {
			from.Preset = append(from.Preset, sdk.ParameterValue(v))
		}
	}
	values, err := templates.Resolve(definitions, from)
	out.now = mark(values, from.Computed, slices.Concat(from.Given, from.Preset))
	return out, err
}

// addTags adds the tags that the request asks for to the template's, or else those that the previous build asked for
// (before is zero for the first build). It returns the requested tags in their stored form. A build can narrow down
// where its template may run but cannot lead elsewhere: it cannot replace tags of the template, nor the user whom the
// provisioner serves.
func addTags(ctx context.Context, q *dbsqlc.Queries, tags, given map[string]string, before uuid.UUID) ([]byte, error) {
	asked := maps.Clone(given)
	switch {
	case given != nil:
		if err := jobtags.Check(given); err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			if own, ok := tags[key]; ok && own != given[key] || key == jobtags.Scope || key == jobtags.Owner {
				return nil, fault.New(fault.Invalid, "The provisioner tag %s cannot be %q for a build of this template", key, given[key]).
					WithField("provisioner_tags", "the template sets "+key+"="+own)
			}
		}
	case before != uuid.Nil:
		data, err := q.GetBuildTags(ctx, before)
		if err != nil {
			return nil, fmt.Errorf("read the tags of the build before: %w", err)
		}
		if err := json.Unmarshal(data, &asked); err != nil {
			return nil, fmt.Errorf("decode the tags of the build before: %w", err)
		}
		// A newer version of the template may set the tag itself.
		maps.DeleteFunc(asked, func(key, value string) bool { own, ok := tags[key]; return ok && own != value })
	}
	maps.Copy(tags, asked)
	data, err := json.Marshal(sdk.Map[string](asked))
	if err != nil {
		return nil, fmt.Errorf("encode tags: %w", err)
	}
	return data, nil
}

// ownerTags names the workspace's owner to provisioners that serve one user only.
func ownerTags(tags map[string]string, owner uuid.UUID) map[string]string {
	if strings.EqualFold(tags["scope"], "user") {
		tags["owner"] = owner.String()
	}
	return tags
}
