package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestPresentationFlags: what is wrong names its flag, and what is right arrives.
func TestPresentationFlags(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) *presentationOptions {
		var o presentationOptions
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return &o
	}
	for _, arg := range []string{
		"--docs-url=x", "--support-links={}", "--terms-of-service-url=javascript:x", "--cli-upgrade-message=a\nb", "--ssh-config-options=ProxyCommand=sh",
		"--ssh-config-options=ServerAliveInterval", "--ssh-hostname-prefix=g", "--workspace-hostname-suffix=com",
	} {
		flag, _, _ := strings.Cut(arg, "=")
		if _, err := parse(arg).build(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%q: %v", arg, err)
		}
	}
	p, err := parse("--ssh-config-options=ServerAliveInterval=30,SetEnv=LANG=C", "--workspace-hostname-suffix=coder-acme").build()
	if err != nil || len(p.SSHOptions) != 2 || p.SSHOptions["SetEnv"] != "LANG=C" || p.SSHConfig().HostnameSuffix != "coder-acme" {
		t.Errorf("%+v, %v", p, err)
	}
}
