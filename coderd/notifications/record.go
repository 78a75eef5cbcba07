package notifications

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

// Methods by which messages are delivered.
const (
	MethodInbox   = "inbox"
	MethodSMTP    = "smtp"
	MethodWebhook = "webhook"
)

// Event is something that users are told. It must not hold secrets.
type Event struct {
	Template Template
	// Labels are the facts that the template names.
	Labels map[string]string
	// Targets are the objects that the event is about.
	Targets []uuid.UUID
	// To tells these users.
	To []uuid.UUID
	// Roles tells the users with one of these roles of the deployment.
	Roles []string
	// OrganizationRoles tells the users with one of these roles in Organization.
	OrganizationRoles []string
	Organization      uuid.UUID
	// Except are users who know of the event already: they caused it.
	Except []uuid.UUID
	// Suspended also tells suspended users.
	Suspended bool
	// Daily, if not empty, makes events of the template with equal texts one event a day (UTC).
	Daily string
	// Once, if not empty, makes events of the template with equal texts one event while its message is kept, for at
	// least 7 days.
	Once string
}

// Recorder adds events to the outbox. Safe for concurrent use; nil records nothing.
type Recorder struct {
	methods   []string
	available []string
	external  string
}

// NewRecorder returns a recorder for a deployment with an inbox or not, that can use the available external methods,
// and uses external for events without a method of their own. external may be empty.
func NewRecorder(inbox bool, available []string, external string) *Recorder {
	r := &Recorder{methods: []string{"external"}, available: append([]string{}, available...), external: external}
	if inbox {
		r.methods = append(r.methods, MethodInbox)
	}
	return r
}

// Record tells the users whom an event concerns, once the transaction of q commits.
func (r *Recorder) Record(ctx context.Context, q *dbsqlc.Queries, e Event) error {
	_, err := r.record(ctx, q, e)
	return err
}

// record returns the number of messages.
func (r *Recorder) record(ctx context.Context, q *dbsqlc.Queries, e Event) (int64, error) {
	if r == nil {
		return 0, nil
	}
	labels := make(map[string]string, len(e.Labels))
	for name, value := range e.Labels {
		labels[name] = visible(bounded(value)) // PostgreSQL stores no zero bytes
	}
	data, err := json.Marshal(labels)
	if err != nil {
		return 0, fmt.Errorf("encode labels: %w", err)
	}
	p := dbsqlc.RecordNotificationParams{
		TemplateID: e.Template.ID, Labels: data, Targets: list(e.Targets), Available: r.available, External: r.external,
		Methods:   r.methods,
		Suspended: e.Suspended, Users: list(e.To), Roles: append([]string{}, e.Roles...),
		OrganizationID:    e.Organization,
		OrganizationRoles: append([]string{}, e.OrganizationRoles...), Excluded: list(e.Except),
		Optional: e.Template.Optional,
	}
	if e.Daily != "" {
		p.Dedupe = e.Template.ID.String() + " " + time.Now().UTC().Format(time.DateOnly) + " " + e.Daily
	}
	if e.Once != "" {
		p.Dedupe = e.Template.ID.String() + " " + e.Once
	}
	n, err := q.RecordNotification(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("record notification: %w", err)
	}
	return n, nil
}

func list(ids []uuid.UUID) []uuid.UUID { return append([]uuid.UUID{}, ids...) }

// Initiator returns the user who makes the request of a context, and how texts call them. Without one, the server acts.
func Initiator(ctx context.Context) (uuid.UUID, string) {
	if actor := httpapi.ActorFrom(ctx); actor.SignedIn() {
		return actor.UserID, actor.Username
	}
	return uuid.Nil, audit.ByServer
}
