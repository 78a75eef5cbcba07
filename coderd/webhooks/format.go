package webhooks

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// format returns the body of an event for a webhook.
func format(as string, e sdk.LifecycleEvent, accessURL *url.URL) ([]byte, error) {
	var body any = e
	switch as {
	case sdk.WebhookSlack:
		text := slackEscaper.Replace(sentence(e))
		if link := page(e, accessURL); link != "" {
			text += " <" + link + "|Open>"
		}
		body = map[string]string{"text": text}
	case sdk.WebhookTeams:
		card := map[string]any{
			"type": "AdaptiveCard", "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "version": "1.4",
			"body": []any{map[string]any{"type": "TextBlock", "text": teamsEscaper.Replace(sentence(e)), "wrap": true}},
		}
		if link := page(e, accessURL); link != "" {
			card["actions"] = []any{map[string]any{"type": "Action.OpenUrl", "title": "Open", "url": link}}
		}
		body = map[string]any{"type": "message", "attachments": []any{map[string]any{
			"contentType": "application/vnd.microsoft.card.adaptive", "content": card,
		}}}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return data, nil
}

// What the receivers take for markup: Slack takes three characters, and the cards of Teams take a part of Markdown.
var (
	slackEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	teamsEscaper = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", ">", "&gt;", "#", `\#`)
)

// sentence returns an event as a sentence without markup.
func sentence(e sdk.LifecycleEvent) string {
	d := e.Data
	kind, what, _ := strings.Cut(e.Type, ".")
	what = strings.ReplaceAll(what, "_", " ")
	by := ""
	if d.Actor != "" {
		by = " by " + d.Actor
	}
	switch kind {
	case "build":
		what = strings.NewReplacer("created", "requested").Replace(what)
		return fmt.Sprintf("Build %d of workspace %s/%s (%s): %s%s", d.BuildNumber, d.OwnerName, d.WorkspaceName,
			d.Transition, what, by)
	case "agent":
		return fmt.Sprintf("Agent %s of workspace %s/%s: %s", d.AgentName, d.OwnerName, d.WorkspaceName, what)
	case "workspace":
		return fmt.Sprintf("Workspace %s/%s: %s%s", d.OwnerName, d.WorkspaceName, what, by)
	case "user":
		return fmt.Sprintf("User %s: %s%s", d.Username, what, by)
	case "template":
		return fmt.Sprintf("Template %s: %s%s", d.TemplateName, what, by)
	default:
		return fmt.Sprintf("Test of the webhook %s", d.Webhook)
	}
}

// page returns the dashboard's page of a workspace or build; "" for the rest.
func page(e sdk.LifecycleEvent, accessURL *url.URL) string {
	d := e.Data
	if d.WorkspaceName == "" || e.Type == "workspace.deleted" {
		return ""
	}
	parts := []string{"@" + d.OwnerName, d.WorkspaceName}
	if d.BuildNumber > 0 {
		parts = append(parts, "builds", fmt.Sprint(d.BuildNumber))
	}
	return accessURL.JoinPath(parts...).String()
}
