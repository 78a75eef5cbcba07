package main

import (
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/coderd/users"
)

// presentationOptions are the flags of `coder server` that say what pages and programs tell their users.
type presentationOptions struct {
	docsURL, termsURL, upgradeMessage, supportLinks string
	hostPrefix, hostSuffix                          string
	sshOptions                                      []string
	browserOnly                                     bool
}

func (o *presentationOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.docsURL, "docs-url", "",
		"URL of the documentation that the account menu and programs link to (default this server's)")
	f.StringVar(&o.supportLinks, "support-links", "", `JSON list of links in the menu of each user's account, each with name, target, and an icon: bug, chat, docs, star or a path on this server`)
	f.StringVar(&o.termsURL, "terms-of-service-url", "",
		"URL of terms that users accept on the sign-in page before they sign in")
	f.StringVar(&o.upgradeMessage, "cli-upgrade-message", "", "what command lines of another version than the server's say about how to get the server's (default their own words)")
	f.StringSliceVar(&o.sshOptions, "ssh-config-options", nil, "options that coder config-ssh writes for workspaces' hosts, such as ServerAliveInterval=30; only those that can do no harm on users' machines")
	f.BoolVar(&o.browserOnly, "browser-only", false,
		"let users reach workspaces through the dashboard and apps only, and refuse command lines, editors and SSH "+
			"clients")
	f.StringVar(&o.hostPrefix, "ssh-hostname-prefix", "",
		"prefix of workspaces' hosts in OpenSSH's configuration (default coder.)")
	f.StringVar(&o.hostSuffix, "workspace-hostname-suffix", "",
		"suffix of workspaces' hosts in OpenSSH's configuration, such as coder-acme (default coder)")
}

// build checks the settings.
func (o *presentationOptions) build() (users.Presentation, error) {
	p := users.Presentation{
		DocsURL: o.docsURL, UpgradeMessage: o.upgradeMessage, HostnamePrefix: o.hostPrefix,
		HostnameSuffix: o.hostSuffix,
	}
	if err := users.CheckTermsURL(o.termsURL); err != nil {
		return p, err
	}
	var err error
	if p.SupportLinks, err = users.ParseSupportLinks(o.supportLinks); err != nil {
		return p, err
	}
	if p.SSHOptions, err = flags.Pairs("ssh-config-options", o.sshOptions); err != nil {
		return p, err
	}
	return p, p.Check()
}
