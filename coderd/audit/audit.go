// Package audit owns the audit log: who did what to which object, when and from where; and the connection log: who
// reached which workspace. It writes rows for the other services, serves and exports the logs, and streams the audit
// log to a log collector. It knows objects only by kind, id, name and the fields that changed, and must not know what
// they mean.
//
// # How a change gets its row
//
// Every mutating route declares its event where it is registered:
//
//	mux.Handle("PATCH /api/v2/templates/{template}", update, s.updateTemplate, audit.On(audit.Write, audit.Template))
//
// The handler records the object and the difference in the transaction of the change:
//
//	err = db.InTx(ctx, func(q *dbsqlc.Queries) error {
//		before, err := q.LockTemplate(ctx, id)
//		...
//		after, err := q.UpdateTemplate(ctx, p)
//		...
//		return audit.Record(ctx, q, audit.OfTemplate(before, after))
//	})
//
// Record takes the rest from the context of the request: the actor, the declared action and kind, the client's address
// and program, and the request's id. If the transaction rolls back, so does the row.
//
// The mux watches over this (httpapi.Options.Record). When a mutating request is about to be answered with success and
// nothing was recorded, it fails in tests; a server records the request without a difference, logs an error and counts
// it. The mux also records what a signed-in user was forbidden to do. A route that changes nothing worth a row declares
// audit.Exempt with the reason. A test in package coderd walks all routes and fails for one that declares neither.
//
// A failed sign-in changes nothing, so its handler records it with the account that was named and the answer's status:
//
//	return audit.Record(ctx, s.db.Queries, audit.Entry{ID: user.ID, Name: req.Email, User: &audit.Account{...}, Status: 401})
//
// What the server does without a request (policies, the results of builds) and what an operator does on its host is
// recorded with a context that has no request. Entry.By then names who acted.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

// Action is what was done.
type Action string

const (
	Create Action = "create"
	Write  Action = "write"
	Delete Action = "delete"
	Start  Action = "start"
	Stop   Action = "stop"
	Login  Action = "login"
	Logout Action = "logout"
	Cancel Action = "cancel"
	// Transfer gives an object to another user.
	Transfer Action = "transfer"
)

// Kind is a kind of object, as clients filter by it.
type Kind string

const (
	APIKey                 Kind = "api_key"    // also sign-ins
	Appearance             Kind = "appearance" // of the deployment
	HealthSettings         Kind = "health_settings"
	CustomRole             Kind = "custom_role"
	EncryptionKey          Kind = "encryption_key" // a state key: rotated, or forgotten
	ExternalAuth           Kind = "external_auth"
	File                   Kind = "file"
	GitSSHKey              Kind = "git_ssh_key"
	NotificationTemplate   Kind = "notification_template"
	NotificationsSettings  Kind = "notifications_settings"
	Organization           Kind = "organization"
	OrganizationMember     Kind = "organization_member"
	OrganizationInvitation Kind = "organization_invitation"
	PrebuildsSettings      Kind = "prebuilds_settings"
	ProvisionerJob         Kind = "provisioner_job"
	ProvisionerKey         Kind = "provisioner_key"
	Template               Kind = "template"
	TemplateConsent        Kind = "template_consent" // of a user, to give a template's workspaces their credentials
	TemplateVersion        Kind = "template_version"
	Group                  Kind = "group"
	GroupSync              Kind = "idp_sync_settings_group"
	RoleSync               Kind = "idp_sync_settings_role"
	OrganizationSync       Kind = "idp_sync_settings_organization"
	User                   Kind = "user"
	UserDevice             Kind = "user_device" // of a user, with a WireGuard app
	UserSecret             Kind = "user_secret"
	UserSSHKey             Kind = "user_ssh_key" // a public key with which a user signs in
	SSHAuthority           Kind = "ssh_certificate_authority"
	IdentityKeys           Kind = "identity_keys"   // that sign ID tokens
	SSHCertificate         Kind = "ssh_certificate" // of a user's key
	Webhook                Kind = "webhook"
	Workspace              Kind = "workspace"
	WorkspaceBuild         Kind = "workspace_build"
	WorkspaceProxy         Kind = "workspace_proxy"
)

// Actors that are not users.
const (
	ByServer   = "coder"           // policies, and what provisioners report
	ByOperator = "server operator" // commands on the server's host
	// ByProvider is the OpenID provider, which signs users out.
	ByProvider = "identity provider"
)

// maxText bounds names and programs, in bytes.
const maxText = 256

// On declares that a route leaves a row: it does action to an object of the kind.
func On(action Action, kind Kind) httpapi.RouteOption {
	return httpapi.WithAudit(httpapi.Audit{Action: string(action), Kind: string(kind)})
}

// Exempt declares that a mutating route leaves no row, and why.
func Exempt(reason string) httpapi.RouteOption {
	return httpapi.WithAudit(httpapi.Audit{Exempt: reason})
}

// Account names a user.
type Account struct {
	ID   uuid.UUID
	Name string
}

// Entry describes one row. The zero values of Action and Kind mean those that the request's route declares.
type Entry struct {
	Action Action
	Kind   Kind
	ID     uuid.UUID // Nil if the object has no UUID
	Name   string
	// Organization is the organization that the object belongs to; Nil if it belongs to the deployment.
	Organization uuid.UUID
	Diff         Diff
	// Status is the HTTP status that fits: 0 means 201 for Create and 200 otherwise.
	Status int
	// User acted; nil means the request's actor.
	User *Account
	// By names who acted if no user did; "" means ByServer.
	By string
	// BuildReason is the reason of a build.
	BuildReason string
	// Fields holds further facts for readers. It must not hold secrets.
	Fields map[string]any
	// Created is the id of what the request creates, if that is not ID: a build of the workspace.
	Created uuid.UUID
}

// Record writes a row with q, in the caller's transaction. If the row is that of a request with an Idempotency-Key, it
// also notes what the request creates: the repetition of the request then creates nothing.
func Record(ctx context.Context, q *dbsqlc.Queries, e Entry) error {
	p, err := params(ctx, e)
	if err != nil {
		return err
	}
	if err := q.InsertAuditLog(ctx, p); err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	if err := useKey(ctx, q, p.ResourceType, e); err != nil {
		return err
	}
	if trail := httpapi.TrailOf(ctx); trail != nil {
		trail.Recorded()
	}
	return nil
}

func params(ctx context.Context, e Entry) (dbsqlc.InsertAuditLogParams, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return dbsqlc.InsertAuditLogParams{}, fmt.Errorf("make id of audit row: %w", err)
	}
	if trail := httpapi.TrailOf(ctx); trail != nil {
		declared := trail.Declared()
		if e.Action == "" {
			e.Action = Action(declared.Action)
		}
		if e.Kind == "" {
			e.Kind = Kind(declared.Kind)
		}
	}
	if e.Action == "" || e.Kind == "" {
		return dbsqlc.InsertAuditLogParams{}, fmt.Errorf("write audit log: %q is recorded without an action or a kind",
			e.Name)
	}
	if e.Status == 0 {
		e.Status = http.StatusOK
		if e.Action == Create {
			e.Status = http.StatusCreated
		}
	}
	p := dbsqlc.InsertAuditLogParams{
		ID: id, OrganizationID: optional(e.Organization), Action: string(e.Action), ResourceType: string(e.Kind),
		ResourceID:     optional(e.ID),
		ResourceTarget: bounded(e.Name), BuildReason: e.BuildReason, StatusCode: int32(e.Status),
		UserAgent: bounded(httpapi.UserAgent(ctx)),
	}
	p.UserID, p.Actor = actor(ctx, e)
	if addr := httpapi.ClientAddr(ctx); addr.IsValid() {
		p.Ip = addr.String()
	}
	if request, err := uuid.Parse(httpapi.RequestID(ctx)); err == nil {
		p.RequestID = &request
	}
	if p.Diff, err = object(e.Diff); err != nil {
		return p, err
	}
	if p.AdditionalFields, err = object(e.Fields); err != nil {
		return p, err
	}
	return p, nil
}

func actor(ctx context.Context, e Entry) (*uuid.UUID, string) {
	switch a := httpapi.ActorFrom(ctx); {
	case e.User != nil:
		return optional(e.User.ID), bounded(e.User.Name)
	case e.By != "":
		return nil, e.By
	case a.SignedIn():
		return &a.UserID, a.Username
	case onHost(ctx):
		return nil, ByOperator
	default:
		return nil, ByServer
	}
}

type hostKey struct{}

// OnHost returns a context for what an operator does on the server's host, without a session.
func OnHost(ctx context.Context) context.Context { return context.WithValue(ctx, hostKey{}, true) }

func onHost(ctx context.Context) bool { return ctx.Value(hostKey{}) != nil }

// RecordGap returns the recorder of a mux for requests that no handler recorded.
func RecordGap(db *database.DB) httpapi.Recorder {
	return func(ctx context.Context, gap httpapi.Gap) error {
		e := Entry{Action: Action(gap.Action), Kind: Kind(gap.Kind), Name: gap.Target, Status: gap.Status}
		if id, err := uuid.Parse(gap.Target); err == nil {
			e.ID = id
		}
		return Record(ctx, db.Queries, e)
	}
}

func optional(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return database.Visible(text)
}

// object encodes a map as a JSON object that PostgreSQL accepts.
func object[M ~map[string]V, V any](m M) ([]byte, error) {
	if m == nil {
		return []byte("{}"), nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode audit row: %w", err)
	}
	return data, nil
}
