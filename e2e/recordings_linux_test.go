package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

var record = flag.Bool("record", false, "write docs/recordings")

// recording is a terminal session in the format asciicast v2, which asciinema plays. It has the program's output; the prompt and the command
// before it are added.
type recording struct {
	t      *testing.T
	d      *deployment
	name   string
	events []event
	last   time.Time     // when the last event came
	clock  time.Duration // of the recording, which cuts long waits
	said   []string      // what the program must print

	secrets []string // what it must not print
}

type event struct {
	at   time.Duration
	text string
}

const (
	longest = time.Second            // between two events
	reading = 800 * time.Millisecond // how long a question stays on the screen before it is answered
	keys    = 60 * time.Millisecond  // between two keys of a command
)

func newRecording(t *testing.T, d *deployment, name string) *recording {
	return &recording{t: t, d: d, name: name, last: time.Now()}
}

// Write takes output of the program.
func (r *recording) Write(text []byte) (int, error) {
	now := time.Now()
	r.clock += min(now.Sub(r.last), longest)
	r.last = now
	if n := len(r.events); n > 0 && r.clock-r.events[n-1].at < 10*time.Millisecond {
		r.events[n-1].text += string(text)
	} else {
		r.events = append(r.events, event{r.clock, string(text)})
	}
	return len(text), nil
}

func (r *recording) show(text string, pause time.Duration) {
	r.clock += pause
	r.events = append(r.events, event{r.clock, text})
	r.last = time.Now()
}

// take is a command on the recording's terminal.
type take struct {
	*console
	r *recording
}

// run types a command behind a prompt and starts it. Its arguments name the server as users would.
func (r *recording) run(args ...string) *take {
	r.t.Helper()
	r.show("$ ", 0)
	r.clock += longest
	for _, key := range "coder " + strings.Join(args, " ") {
		r.show(string(key), keys)
	}
	r.show("\r\n", keys)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, publicURL, r.d.url())
	}
	cmd := r.d.command(r.t.Context(), args...)
	cmd.Env = append(cmd.Env, "USER=ada")
	c := newConsole(r.t, cmd)
	c.out = bufio.NewReader(io.TeeReader(c.ptmx, r))
	return &take{c, r}
}

const publicURL = "https://coder.example.com"

// sees waits for a text that the recording must have.
func (k *take) sees(text string) {
	k.t.Helper()
	k.expect(text)
	k.r.said = append(k.r.said, text)
}

func (k *take) answer(text string) {
	k.t.Helper()
	k.r.clock += reading
	k.r.last = time.Now()
	k.say(text)
}

// secret answers a question when the terminal hides what is typed. The recording must not have it.
func (k *take) secret(text string) {
	k.t.Helper()
	testwait.Until(k.t, "the terminal hides what is typed", hidesInput(k.ptmx))
	k.r.secrets = append(k.r.secrets, text)
	k.answer(text + "\r")
}

// end reads the rest and compares the exit status.
func (k *take) end(want int) {
	k.t.Helper()
	_, _ = io.Copy(io.Discard, k.out) // ends with EIO
	if got := status(k.cmd.Wait()); got != want {
		k.t.Errorf("%v: exit status %d, want %d", k.cmd.Args, got, want)
	}
}

// builtIn matches the name of the server's own provisioner.
var builtIn = regexp.MustCompile(`built-in-\d+@[\w.-]+:\d+`)

// ofThisMachine matches what a recording must not show.
var ofThisMachine = regexp.MustCompile(`127\.0\.0\.1|localhost|/(tmp|root|home|var|usr|opt|srv|work[a-z]*)\b`)

// cut ends the recording: it is written, or the one in docs/recordings must show the same texts.
func (r *recording) cut() {
	r.t.Helper()
	r.show("$ ", 0)
	var file bytes.Buffer
	line := func(v any) {
		encoder := json.NewEncoder(&file)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(v); err != nil {
			r.t.Fatal(err)
		}
	}
	line(map[string]any{"version": 2, "width": 90, "height": 30, "title": r.name, "env": map[string]string{"TERM": "xterm-256color"}})
	for _, e := range r.events {
		text := builtIn.ReplaceAllString(strings.ReplaceAll(e.text, r.d.url(), publicURL), "built-in-0@server:3000")
		line([]any{float64(e.at.Milliseconds()) / 1000, "o", text})
	}
	if found := ofThisMachine.FindString(file.String()); found != "" {
		r.t.Errorf("%s: the recording shows %s", r.name, found)
	}
	for _, text := range r.secrets {
		if strings.Contains(file.String(), text) {
			r.t.Errorf("%s: the recording shows the secret %q", r.name, text)
		}
	}
	name := filepath.Join("../docs/recordings", r.name+".cast")
	if *record {
		if err := os.WriteFile(name, file.Bytes(), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	var shown strings.Builder
	for i, text := range bytes.Split(bytes.TrimSpace(committed), []byte("\n")) {
		var e [3]any
		if i == 0 {
			continue // the header
		}
		if err := json.Unmarshal(text, &e); err != nil || e[1] != "o" {
			r.t.Fatalf("%s:%d: %s, %v", name, i+1, text, err)
		}
		fmt.Fprint(&shown, e[2])
	}
	for _, text := range r.said {
		if !strings.Contains(shown.String(), text) {
			r.t.Errorf("%s does not show %q any more: run make recordings", name, text)
		}
	}
	if len(committed) > 64<<10 || ofThisMachine.Match(committed) {
		r.t.Errorf("%s is too large, or shows this machine", name)
	}
}

// TestRecordings plays what docs/recordings shows: signing in, creating a workspace, the first one as the README shows it, and a failed import.
func TestRecordings(t *testing.T) {
	t.Parallel()
	d := prepare(t)
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.token = recordLogin(t, d)
	recordCreate(t, d)
	recordFirst(t, d)
	recordFailedImport(t, d)
}

// recordLogin creates the first user, signs out and in again. It returns the user's token.
func recordLogin(t *testing.T, d *deployment) (token string) {
	t.Helper()
	r := newRecording(t, d, "login")
	k := r.run("login", publicURL)
	k.sees("has no users yet. Create the first one, who owns the server.")
	k.sees("Username")
	k.answer("\r")
	k.sees("Email")
	k.answer("ada@example.com\r")
	k.sees("Password\x1b[0m: ")
	k.secret("2short")
	k.sees("The password must have at least 8 characters.")
	k.sees("Password\x1b[0m: ")
	k.secret(password)
	k.sees("Password again\x1b[0m: ")
	k.secret(password)
	k.sees("Welcome, ada.")
	k.end(0)
	k = r.run("logout", "-y")
	k.end(0)
	k = r.run("login") // the last server is remembered
	k.sees("/cli-auth")
	k.sees("Token\x1b[0m: ")
	token, err := signIn(d.url(), "ada@example.com")
	if err != nil {
		t.Fatal(err)
	}
	k.secret(token)
	k.sees("Welcome, ada.")
	k.end(0)
	r.cut()
	return token
}

// recordCreate creates a workspace whose template has every kind of parameter.
func recordCreate(t *testing.T, d *deployment) {
	t.Helper()
	forms := filepath.Join(d.dir, "forms")
	d.coder("templates", "init", "--id", "process", forms)
	if err := os.WriteFile(filepath.Join(forms, "asked.tf"), []byte(askedFor), 0o600); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "forms", "-d", forms, "-y")
	d.pushProcess()
	r := newRecording(t, d, "create")
	k := r.run("create", "dev")
	k.sees("typing filters")
	k.answer("for")
	k.answer("\r")
	k.sees("> European")
	k.answer("\x1b[B")
	k.answer("\r")
	k.sees("> bash")
	k.answer("\r")
	k.sees("> Europe")
	k.answer("\r")
	k.sees("[x] Vim")
	k.answer("\x1b[B")
	k.answer(" ")
	k.answer("\r")
	k.sees("key\x1b[0m: ")
	k.secret("sk-secret")
	k.sees("terraform_data.record")
	k.sees("Create the workspace dev from forms?")
	k.answer("\r")
	k.sees("Connect: coder ssh dev") // before it: that the workspace is ready, or that its start scripts are still running
	k.end(0)
	r.cut()
}

// recordFirst creates, uses and stops a workspace.
func recordFirst(t *testing.T, d *deployment) {
	t.Helper()
	r := newRecording(t, d, "first")
	k := r.run("create", "web", "-t", "process", "-y")
	k.sees("Connect: coder ssh web")
	k.end(0)
	k = r.run("ssh", "web")
	k.expect("$ ")
	k.answer("echo in $CODER_WORKSPACE_NAME on $(uname -s)\r")
	k.sees("in web on Linux")
	k.answer("exit\r")
	k.end(0)
	k = r.run("stop", "web", "-y")
	k.sees("The workspace ada/web has been stopped.")
	k.end(0)
	r.cut()
}

// recordFailedImport pushes a template with a mistake.
func recordFailedImport(t *testing.T, d *deployment) {
	t.Helper()
	broken := filepath.Join(d.dir, "broken")
	if err := os.MkdirAll(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	const template = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}

resource "coder_agent" "main" {
  os     = "linux"
  arch   = "amd64"
  colour = "red"
}
`
	if err := os.WriteFile(filepath.Join(broken, "main.tf"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRecording(t, d, "failed-import")
	k := r.run("templates", "push", "broken", "-d", "broken")
	k.sees("Upload broken as broken?")
	k.answer("\r")
	k.sees("main.tf:10")
	k.sees("Try: ")
	k.end(1)
	r.cut()
}
