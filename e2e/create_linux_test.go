package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

const askedFor = `
data "coder_parameter" "region" {
  name    = "region"
  mutable = true
  order   = 1
  option {
    name  = "Europe"
    value = "eu"
  }
  option {
    name  = "America"
    value = "us"
  }
}
data "coder_parameter" "editors" {
  name      = "editors"
  type      = "list(string)"
  form_type = "multi-select"
  default   = jsonencode(["vim"])
  mutable   = true
  order     = 2
  option {
    name  = "Vim"
    value = "vim"
  }
  option {
    name  = "Emacs"
    value = "emacs"
  }
}
data "coder_parameter" "key" {
  name    = "key"
  mutable = true
  order   = 3
  styling = jsonencode({ mask_input = true })
}
data "coder_workspace_preset" "european" {
  name       = "European"
  default    = true
  parameters = { region = "eu" }
}
resource "terraform_data" "record" {
  input = "${data.coder_parameter.region.value} ${data.coder_parameter.editors.value} ${data.coder_parameter.key.value}"
}
`

// hidesInput checks that a terminal does not show what is typed.
func hidesInput(terminal *os.File) func() error {
	return func() error {
		mode, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil {
			return err
		}
		return testwait.Unless(mode.Lflag&unix.ECHO == 0, "the terminal echoes: local modes %#x", mode.Lflag)
	}
}

// TestCreateOnATerminal creates a workspace with the arrow keys: template, preset and parameters are asked for, the plan is shown, and
// "ready" is printed when the agent is.
func TestCreateOnATerminal(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	forms := filepath.Join(d.dir, "forms")
	d.coder("templates", "init", "--id", "process", forms)
	if err := os.WriteFile(filepath.Join(forms, "asked.tf"), []byte(askedFor), 0o600); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "forms", "-d", forms, "-y")

	c := newConsole(t, d.command(t.Context(), "create"))
	c.expect("typing filters")
	c.say("forms\r")
	c.expect("Template:\x1b[0m forms")
	c.expect("Name of the workspace")
	c.expect("[forms]") // a name that is free
	c.say("\r")
	c.expect("> European") // the default
	c.say("\x1b[B\r")
	c.expect("Preset:\x1b[0m None")
	c.expect("> bash") // the starter's own question
	c.say("\r")
	c.expect("> Europe")
	c.say("\x1b[B\r")
	c.expect("region:\x1b[0m America")
	c.expect("[x] Vim")
	c.say("\x1b[B \r")
	c.expect("editors:\x1b[0m Vim, Emacs")
	c.expect("key")
	testwait.Until(t, "the terminal hides what is typed", hidesInput(c.ptmx))
	c.say("sk-secret\r")
	c.expect("terraform_data.record")
	c.expect("Create the workspace forms from forms?")
	if strings.Contains(c.all.String(), "sk-secret") {
		t.Error("the masked value was shown")
	}
	c.say("\r")
	c.expect("Connect: coder ssh forms") // before it: that the workspace is ready, or that its start scripts are still running
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("coder create: %v", err)
	}
	if state := d.coder("state", "pull", "forms"); !strings.Contains(state, `us [\"vim\",\"emacs\"] sk-secret`) {
		t.Errorf("the workspace was made with other values: %s", state)
	}

	// Ctrl-C ends the command without a workspace.
	c = newConsole(t, d.command(t.Context(), "create", "other"))
	c.expect("typing filters")
	c.say("\x03")
	if exit, ok := errors.AsType[*exec.ExitError](c.cmd.Wait()); !ok || exit.ExitCode() != 130 {
		t.Errorf("Ctrl-C: got %v, want exit status 130", exit)
	}
	if list := d.coder("list"); strings.Contains(list, "other") {
		t.Errorf("Ctrl-C left a workspace: %s", list)
	}
}
