package users

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/sshoffer"
)

// Presentation is what the operator's settings tell users and their programs, beside the appearance that owners edit.
type Presentation struct {
	// DocsURL is where pages and programs find the documentation. Empty: this server.
	DocsURL string
	// SupportLinks are shown in the menu of each user's account.
	SupportLinks []sdk.LinkConfig
	// UpgradeMessage is what programs say if their version differs from the server's. Empty: their own words.
	UpgradeMessage string
	// HostnamePrefix and HostnameSuffix mark the hosts of workspaces in OpenSSH's configuration. Empty: "coder." and
	// "coder".
	HostnamePrefix, HostnameSuffix string
	// SSHOptions are options for those hosts.
	SSHOptions map[string]string
	// BrowserOnly says that users reach workspaces through pages and apps only.
	BrowserOnly bool
}

const (
	maxSupportLinks   = 10
	maxSupportName    = 64
	maxUpgradeMessage = 500 // bytes
)

// supportIcons are icons by name. Other icons are paths on the server.
var supportIcons = []string{"", "bug", "chat", "docs", "star"}

// Check refuses what pages could not show, and what clients would refuse.
func (p Presentation) Check() error {
	if p.DocsURL != "" && !webURL(p.DocsURL) {
		return fault.New(fault.Invalid, "--docs-url %q must start with http:// or https://", p.DocsURL)
	}
	if len(p.UpgradeMessage) > maxUpgradeMessage || strings.ContainsFunc(p.UpgradeMessage, httpapi.Hidden) {
		return fault.New(fault.Invalid, "--cli-upgrade-message must be one line of at most %d bytes", maxUpgradeMessage)
	}
	if p.HostnamePrefix != "" && !sshoffer.Prefix(p.HostnamePrefix) {
		return fault.New(fault.Invalid, "--ssh-hostname-prefix %q must begin with coder and end with . or -", p.HostnamePrefix).
			WithDetail("The command line takes no other from a server: hosts of others could begin with it. Users can choose one: coder config-ssh --ssh-host-prefix PREFIX")
	}
	if p.HostnameSuffix != "" && !sshoffer.Suffix(p.HostnameSuffix) {
		return fault.New(fault.Invalid, "--workspace-hostname-suffix %q must be one word that begins with coder, such as coder-acme", p.HostnameSuffix).
			WithDetail("The command line takes no other from a server: hosts of others could end with it. Users can choose one: coder config-ssh --hostname-suffix SUFFIX")
	}
	for name, text := range p.SSHOptions {
		if !sshoffer.Option(name, text) {
			return fault.New(fault.Invalid, "--ssh-config-options: a server may not set %q to %q on its users' machines", name, text).
				WithDetail("The command line accepts these options: %s. Users can add others: coder config-ssh --ssh-option KEY=VALUE", strings.Join(sshoffer.Options(), ", "))
		}
	}
	if len(p.SupportLinks) > maxSupportLinks {
		return fault.New(fault.Invalid, "--support-links can have at most %d links", maxSupportLinks)
	}
	for _, link := range p.SupportLinks {
		if err := checkSupportLink(link); err != nil {
			return err
		}
	}
	return nil
}

func checkSupportLink(link sdk.LinkConfig) error {
	if link.Name == "" || len(link.Name) > maxSupportName || strings.ContainsFunc(link.Name, httpapi.Hidden) {
		return fault.New(fault.Invalid, "--support-links: each name must be one line of 1 to %d bytes", maxSupportName)
	}
	if !webURL(link.Target) && !strings.HasPrefix(link.Target, "mailto:") {
		return fault.New(fault.Invalid, "--support-links: the target %q of %q must start with http://, https:// or mailto:", link.Target, link.Name)
	}
	if !slices.Contains(supportIcons, link.Icon) && !logoPath().MatchString(link.Icon) {
		return fault.New(fault.Invalid, "--support-links: the icon %q of %q must be bug, chat, docs, star, or a path on this server, such as /icon/docker.svg", link.Icon, link.Name)
	}
	return nil
}

// webURL reports whether text is the URL of a page.
func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// CheckTermsURL checks the URL of terms of service. Empty: there are none.
func CheckTermsURL(text string) error {
	if text != "" && !webURL(text) {
		return fault.New(fault.Invalid, "--terms-of-service-url %q must start with http:// or https://", text)
	}
	return nil
}

// ParseSupportLinks reads a JSON list of links.
func ParseSupportLinks(text string) ([]sdk.LinkConfig, error) {
	if text == "" {
		return nil, nil
	}
	var links []sdk.LinkConfig
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&links)
	if err == nil && decoder.More() {
		err = errors.New("text follows the list")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "--support-links is not valid: %w", err).
			WithDetail(`It looks like [{"name": "Ask for help", "target": "https://chat.example.com/help", "icon": "chat"}].`)
	}
	return links, nil
}

// SSHConfig returns what clients write into OpenSSH's configuration.
func (p Presentation) SSHConfig() sdk.SSHConfig {
	return sdk.SSHConfig{
		HostnamePrefix:   cmp.Or(p.HostnamePrefix, "coder."),
		HostnameSuffix:   cmp.Or(strings.TrimPrefix(p.HostnameSuffix, "."), "coder"),
		SSHConfigOptions: p.SSHOptions,
	}
}
