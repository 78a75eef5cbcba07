package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// greeting is what a server says once it answers.
type greeting struct {
	url       *url.URL
	setupCode secret.Token // "" if there are users
	warnings  []string     // sentences about the confinement of templates, without a full stop
	outdated  string       // a warning of an old Terraform with its remedy, without a full stop; "" if there is none
}

// write writes the greeting. A person at a terminal gets all of it. A log gets one line: the setup code is there
// already, and what is to be warned of.
func (g greeting) write(w io.Writer, terminal bool) error {
	login := "coder login " + shell.Word(g.url.String())
	if !terminal {
		_, err := fmt.Fprintf(w, "The server answers on %s. In another terminal, run: %s\n", g.url, login)
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n  coder %s answers on %s\n\n", buildinfo.Version(), g.url)
	fmt.Fprintf(&text, "  Open that address in a browser, or run in another terminal: %s\n", login)
	if g.setupCode != "" {
		fmt.Fprintf(&text, "  There are no users yet. The browser asks the first one for this setup code: %s\n",
			g.setupCode.Reveal())
	}
	for _, warning := range g.warnings {
		fmt.Fprintf(&text, "  Warning: %s. What to do: %s\n", warning, g.url.JoinPath("docs/provisioners"))
	}
	if g.outdated != "" {
		fmt.Fprintf(&text, "  Warning: %s.\n", g.outdated)
	}
	text.WriteString("\n  From now on only warnings appear here; --verbose shows everything. Ctrl-C stops the server.\n\n")
	_, err := io.WriteString(w, text.String())
	return err
}
