package notifications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	netmail "net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/mail"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

// Mail sends a mail. It is implemented by *mail.Sender.
type Mail interface {
	Send(ctx context.Context, m mail.Message) error
}

func (s *Service) sendMail(ctx context.Context, m message) error {
	var text, markup strings.Builder
	text.WriteString(m.Text + "\n")
	markup.WriteString(m.HTML + "\n")
	for _, link := range m.Links {
		text.WriteString("\n" + link.Label + ": " + link.URL + "\n")
		markup.WriteString(`<p><a href="` + html.EscapeString(link.URL) + `">` + html.EscapeString(link.Label) + "</a></p>\n")
	}
	footer := "Notification settings: "
	preferences := strings.TrimSuffix(s.opts.AccessURL.String(), "/") + "/account"
	text.WriteString("\n-- \n" + footer + preferences + "\n")
	markup.WriteString("<hr>\n<p><small>" + footer + `<a href="` + html.EscapeString(preferences) + `">` + html.EscapeString(preferences) + "</a></small></p>\n")
	err := s.opts.Config.Mail.Send(ctx, mail.Message{
		ID: m.row.ID.String(), To: netmail.Address{Name: m.row.Name, Address: m.row.Email}, Subject: m.Title,
		Text: text.String(),
		HTML: page(m.Title, markup.String()), Date: m.row.CreatedAt,
	})
	if final, ok := errors.AsType[*mail.Refused](err); ok {
		return refused{final}
	}
	return err
}

// page returns an HTML document without external resources.
func page(title, body string) string {
	title = html.EscapeString(title)
	return "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>" + title + "</title></head>\n" +
		"<body style=\"font-family: sans-serif; max-width: 36em; margin: 1em auto; padding: 0 1em\">\n<h1 style=\"font-size: 1.25em\">" + title + "</h1>\n" + body + "</body>\n</html>\n"
}

// Passcodes mails one-time passcodes without recording them: the outbox must not hold secrets.
type Passcodes struct {
	DB   *database.DB
	Mail Mail
}

// Send implements signin.Mailer.
func (p Passcodes) Send(ctx context.Context, user uuid.UUID, subject, text string) error {
	u, err := p.DB.GetUser(ctx, user)
	if err != nil {
		return fmt.Errorf("read user: %w", err)
	}
	return p.Mail.Send(ctx, mail.Message{ID: uuid.NewString(), To: netmail.Address{
		Name: u.Name, Address: u.Email,
	}, Subject: subject, Text: text, Date: time.Now()})
}

// webhookVersion is the version of the payload.
const webhookVersion = "1.1"

// webhookBody is what is posted.
type webhookBody struct {
	Version       string         `json:"_version"`
	ID            uuid.UUID      `json:"msg_id"`
	Payload       webhookPayload `json:"payload"`
	Title         string         `json:"title"`
	TitleMarkdown string         `json:"title_markdown"`
	Body          string         `json:"body"`
	BodyMarkdown  string         `json:"body_markdown"`
}

type webhookPayload struct {
	Version      string            `json:"_version"`
	Name         string            `json:"notification_name"`
	TemplateID   uuid.UUID         `json:"notification_template_id"`
	UserID       uuid.UUID         `json:"user_id"`
	UserEmail    string            `json:"user_email"`
	UserName     string            `json:"user_name"`
	UserUsername string            `json:"user_username"`
	Actions      []Link            `json:"actions"`
	Labels       map[string]string `json:"labels"`
	Data         any               `json:"data"` // always null
	Targets      []uuid.UUID       `json:"targets"`
}

// hook posts messages to the endpoint that the operator has configured.
type hook struct {
	endpoint string
	client   *webhook.Client
}

func newHook(endpoint *url.URL) *hook {
	return &hook{endpoint: endpoint.String(), client: webhook.NewClient(nil)} // operators may name any address
}

func (h *hook) send(ctx context.Context, m message) error {
	links := m.Links
	if links == nil {
		links = []Link{}
	}
	data, err := json.Marshal(webhookBody{
		Version: webhookVersion, ID: m.row.ID, Title: m.Title, TitleMarkdown: m.TitleMarkdown, Body: m.Text,
		BodyMarkdown: m.Markdown,
		Payload: webhookPayload{
			Version: webhookVersion, Name: m.of.Name, TemplateID: m.of.ID, UserID: m.row.UserID, UserEmail: m.row.Email,
			UserName:     m.row.Name,
			UserUsername: m.row.Username, Actions: links, Labels: m.labels, Targets: m.row.Targets,
		},
	})
	if err != nil {
		return refused{err}
	}
	answer, err := h.client.Post(ctx, h.endpoint, http.Header{"X-Message-Id": {m.row.ID.String()}}, data)
	if err != nil {
		return err
	}
	if !answer.Accepted() {
		return fmt.Errorf("the webhook answered with status %d", answer.Status)
	}
	return nil
}
