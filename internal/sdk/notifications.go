package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Icons of notifications in the inbox.
const (
	InboxIconWorkspace = "DEFAULT_ICON_WORKSPACE"
	InboxIconAccount   = "DEFAULT_ICON_ACCOUNT"
	InboxIconTemplate  = "DEFAULT_ICON_TEMPLATE"
	InboxIconOther     = "DEFAULT_ICON_OTHER"
)

// NotificationsSettings apply to the deployment.
type NotificationsSettings struct {
	// NotifierPaused means that events are recorded and not delivered until an administrator resumes notifications.
	NotifierPaused bool `json:"notifier_paused"`
}

// NotificationMethodsResponse lists the methods, besides the inbox, that the server is configured for.
type NotificationMethodsResponse struct {
	Available List[string] `json:"available"`
	Default   string       `json:"default"` // "" if it is not configured
}

// NotificationTemplate is the text of one kind of event.
type NotificationTemplate struct {
	ID               uuid.UUID `json:"id"`
	Name             string    `json:"name"`
	TitleTemplate    string    `json:"title_template"`
	BodyTemplate     string    `json:"body_template"`
	Actions          string    `json:"actions"` // a JSON array of {"label", "url"}
	Group            string    `json:"group"`
	Method           string    `json:"method"` // "" for the deployment's default
	Kind             string    `json:"kind"`   // system or custom
	EnabledByDefault bool      `json:"enabled_by_default"`
	// Required means that users cannot turn the event off.
	Required bool `json:"required"`
}

// UpdateNotificationTemplateMethod sets how an event is delivered besides the inbox. An empty method means the
// deployment's default.
type UpdateNotificationTemplateMethod struct {
	Method string `json:"method"`
}

// NotificationPreference tells whether a user turned an event off.
type NotificationPreference struct {
	ID        uuid.UUID `json:"id"` // of the template
	Disabled  bool      `json:"disabled"`
	UpdatedAt time.Time `json:"updated_at"`
}

// UpdateUserNotificationPreferences turns events off and on, by the ids of their templates. Others stay as they are.
type UpdateUserNotificationPreferences struct {
	TemplateDisabledMap Map[bool] `json:"template_disabled_map"`
}

// CustomNotificationContent is a text that a user chooses.
type CustomNotificationContent struct {
	Title   string `json:"title"`
	Message string `json:"message"`
}

// CustomNotificationRequest sends a notification to the caller.
type CustomNotificationRequest struct {
	Content *CustomNotificationContent `json:"content"`
}

// InboxNotificationAction is a link.
type InboxNotificationAction struct {
	Label string `json:"label"`
	URL   string `json:"url"`
}

// InboxNotification is a message in a user's inbox.
type InboxNotification struct {
	ID         uuid.UUID                     `json:"id"`
	UserID     uuid.UUID                     `json:"user_id"`
	TemplateID uuid.UUID                     `json:"template_id"`
	Targets    List[uuid.UUID]               `json:"targets"`
	Title      string                        `json:"title"`
	Content    string                        `json:"content"` // Markdown, or plain text if the request asks for it
	Icon       string                        `json:"icon"`
	Actions    List[InboxNotificationAction] `json:"actions"`
	ReadAt     *time.Time                    `json:"read_at"`
	CreatedAt  time.Time                     `json:"created_at"`
}

// ListInboxNotificationsResponse is one page of an inbox, newest first.
type ListInboxNotificationsResponse struct {
	Notifications List[InboxNotification] `json:"notifications"`
	UnreadCount   int                     `json:"unread_count"`
}

// InboxNotificationResponse is a new notification on a stream, or one that was marked.
type InboxNotificationResponse struct {
	Notification InboxNotification `json:"notification"`
	UnreadCount  int               `json:"unread_count"`
}

// UpdateInboxNotificationReadStatusRequest marks a notification as read or unread.
type UpdateInboxNotificationReadStatusRequest struct {
	IsRead bool `json:"is_read"`
}

func (c *Client) NotificationsSettings(ctx context.Context) (NotificationsSettings, error) {
	return get[NotificationsSettings](ctx, c, "notifications/settings")
}

func (c *Client) UpdateNotificationsSettings(
	ctx context.Context, req NotificationsSettings,
) (NotificationsSettings, error) {
	return send[NotificationsSettings](ctx, c, http.MethodPut, "notifications/settings", req)
}

func (c *Client) NotificationMethods(ctx context.Context) (NotificationMethodsResponse, error) {
	return get[NotificationMethodsResponse](ctx, c, "notifications/dispatch-methods")
}

func (c *Client) NotificationTemplates(ctx context.Context) ([]NotificationTemplate, error) {
	return get[[]NotificationTemplate](ctx, c, "notifications/templates/system")
}

func (c *Client) UpdateNotificationTemplateMethod(ctx context.Context, template uuid.UUID, method string) error {
	return c.do(ctx, http.MethodPut, "notifications/templates/"+seg(template.String())+"/method",
		UpdateNotificationTemplateMethod{Method: method}, nil)
}

// TestNotification sends a test notification to the caller.
func (c *Client) TestNotification(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "notifications/test", struct{}{}, nil)
}

// CustomNotification sends a notification to the caller.
func (c *Client) CustomNotification(ctx context.Context, content CustomNotificationContent) error {
	return c.do(ctx, http.MethodPost, "notifications/custom", CustomNotificationRequest{Content: &content}, nil)
}

func (c *Client) NotificationPreferences(ctx context.Context, user string) ([]NotificationPreference, error) {
	return get[[]NotificationPreference](ctx, c, "users/"+seg(user)+"/notifications/preferences")
}

func (c *Client) UpdateNotificationPreferences(
	ctx context.Context, user string, req UpdateUserNotificationPreferences,
) ([]NotificationPreference, error) {
	return send[[]NotificationPreference](ctx, c, http.MethodPut, "users/"+seg(user)+"/notifications/preferences", req)
}

// Inbox lists the caller's inbox. The query is as in the API: read_status, targets, templates, starting_before, format.
func (c *Client) Inbox(ctx context.Context, query string) (ListInboxNotificationsResponse, error) {
	return get[ListInboxNotificationsResponse](ctx, c, "notifications/inbox?"+query)
}

func (c *Client) SetInboxRead(ctx context.Context, id uuid.UUID, read bool) (InboxNotificationResponse, error) {
	return send[InboxNotificationResponse](ctx, c, http.MethodPut,
		"notifications/inbox/"+seg(id.String())+"/read-status", UpdateInboxNotificationReadStatusRequest{IsRead: read})
}

func (c *Client) MarkInboxRead(ctx context.Context) error {
	return c.do(ctx, http.MethodPut, "notifications/inbox/mark-all-as-read", struct{}{}, nil)
}
