// Package devcontainer runs dev containers: it calls the programs devcontainer (of the npm package @devcontainers/cli)
// and docker, and runs an agent in a container. It knows neither the server nor the mesh.
package devcontainer

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	programDir  = "/.coder-agent" // in containers
	maxOutput   = 1 << 20         // bytes of a program's answer that are read
	maxProblem  = 512             // bytes of a program's last words
	callTimeout = 30 * time.Second
	stopGrace   = "10" // seconds that a container's programs have to end
	// outputDelay is how long the end of a program waits for output of programs that it left behind.
	outputDelay = 2 * time.Second
)

// Host is where dev containers run.
type Host struct {
	Env    []string  // of the programs; its PATH finds them
	Output io.Writer // receives what the programs print for people
}

// Spec describes a dev container.
type Spec struct {
	Folder string // of the project; absolute
	Config string // path of devcontainer.json; "" means the usual places below Folder
	Fresh  bool   // replaces an existing container
}

// Container is an existing container.
type Container struct {
	ID, Name, Image string
	Running         bool
	User            string // who uses it; "" means the container's default
	Directory       string // of the project, in the container
}

// Up creates or starts a dev container and waits until it runs.
func (h Host) Up(ctx context.Context, s Spec) (Container, error) {
	if info, err := os.Stat(s.Folder); err != nil || !info.IsDir() {
		return Container{},
			fmt.Errorf("the folder %s does not exist: create it in a start script, for example by cloning a repository",
				s.Folder)
	}
	if _, err := h.find("docker"); err != nil {
		return Container{}, err
	}
	args := []string{"up", "--workspace-folder", s.Folder}
	if s.Config != "" {
		config := s.Config
		if !filepath.IsAbs(config) {
			config = filepath.Join(s.Folder, config)
		}
		args = append(args, "--config", config)
	}
	if s.Fresh {
		args = append(args, "--remove-existing-container")
	}
	cmd, err := h.command(ctx, "devcontainer", args...)
	if err != nil {
		return Container{}, err
	}
	cmd.Dir = s.Folder
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, h.Output
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return Container{}, ctx.Err()
	}
	c, err := parseUp(out.data)
	if err == nil && runErr != nil {
		err = fmt.Errorf("devcontainer up: %w", runErr)
	}
	if err != nil {
		return Container{}, err
	}
	found, err := h.Inspect(ctx, c.ID)
	if err != nil {
		return Container{}, err
	}
	found.User, found.Directory = c.User, c.Directory
	return found, nil
}

// parseUp reads the answer of devcontainer up: the last line of its output, in JSON.
func parseUp(output []byte) (Container, error) {
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	var answer struct {
		Outcome     string `json:"outcome"`
		Message     string `json:"message"`
		Description string `json:"description"`
		ContainerID string `json:"containerId"`
		User        string `json:"remoteUser"`
		Folder      string `json:"remoteWorkspaceFolder"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &answer); err != nil {
		return Container{}, errors.New("devcontainer up has not said how it ended: see the log")
	}
	if answer.Outcome != "success" {
		text := firstLine(answer.Message)
		if text == "" {
			text = firstLine(answer.Description)
		}
		return Container{}, fmt.Errorf("devcontainer up: %s", text)
	}
	if !isID(answer.ContainerID) {
		return Container{}, fmt.Errorf("devcontainer up has returned the container id %q", answer.ContainerID)
	}
	if !path.IsAbs(answer.Folder) || strings.ContainsRune(answer.Folder, 0) {
		answer.Folder = ""
	}
	if strings.HasPrefix(answer.User, "-") || strings.ContainsRune(answer.User, 0) {
		answer.User = ""
	}
	return Container{ID: answer.ContainerID, User: answer.User, Directory: path.Clean("/" + answer.Folder)}, nil
}

// isID reports whether text is an id or a name of a container, and not an option.
func isID(text string) bool {
	return text != "" && len(text) <= 128 && text[0] != '-' && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// Inspect returns a container by its id. A container that does not exist is not running, and has no id.
func (h Host) Inspect(ctx context.Context, id string) (Container, error) {
	out, err := h.docker(ctx, nil, "inspect", "--type", "container", id)
	if err != nil {
		if strings.Contains(strings.ToLower(err.Error()), "no such container") {
			return Container{}, nil
		}
		return Container{}, err
	}
	return parseInspect(out)
}

func parseInspect(output []byte) (Container, error) {
	var all []struct {
		ID     string `json:"Id"`
		Name   string
		State  struct{ Running bool }
		Config struct{ Image string }
	}
	if err := json.Unmarshal(output, &all); err != nil || len(all) != 1 || !isID(all[0].ID) {
		return Container{}, errors.New("docker inspect has not described the container")
	}
	return Container{ID: all[0].ID, Name: strings.TrimPrefix(all[0].Name, "/"), Image: all[0].Config.Image,
		Running: all[0].State.Running}, nil
}

// Install copies a program into a container, for RunAgent.
func (h Host) Install(ctx context.Context, id string, program *os.File) error {
	info, err := program.Stat()
	if err != nil {
		return fmt.Errorf("read own program: %w", err)
	}
	read, write := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := tar.NewWriter(write)
		err := errors.Join(
			t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: programDir[1:] + "/", Mode: 0o755}),
			t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: programDir[1:] + "/coder", Mode: 0o755,
				Size: info.Size()}))
		if err == nil {
			_, err = io.Copy(t, io.NewSectionReader(program, 0, info.Size()))
		}
		write.CloseWithError(errors.Join(err, t.Close()))
	}()
	_, err = h.docker(ctx, read, "cp", "-", id+":/")
	read.Close()
	<-done
	if err != nil {
		return fmt.Errorf("copy the agent into the container: %w", err)
	}
	return nil
}

// Agent is what an agent in a container starts with.
type Agent struct {
	URL   string
	Token secret.Token
}

// RunAgent runs an agent in a container until it ends. If ctx ends first, the agent stays: it ends with its container,
// or when its token does.
func (h Host) RunAgent(ctx context.Context, c Container, a Agent) error {
	args := []string{"exec", "-i", "-e", "CODER_AGENT_URL=" + a.URL}
	env := proc.NewEnv(h.Env)
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"} {
		if value, ok := env.Get(name); ok && value != "" {
			args = append(args, "-e", name) // docker reads the value from its own environment
		}
	}
	if c.User != "" {
		args = append(args, "-u", c.User)
	}
	// The token is neither in arguments nor in environments, which other programs can read.
	cmd, err := h.command(ctx, "docker", append(args, c.ID, programDir+"/coder", "agent", "--agent-token-file",
		"/dev/stdin")...)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(a.Token.Reveal())
	cmd.Stdout, cmd.Stderr = h.Output, h.Output
	return cmd.Run()
}

// Find returns the id of the container that devcontainer up has made for a project's folder, or "" without one.
func (h Host) Find(ctx context.Context, folder string) (string, error) {
	out, err := h.docker(ctx, nil, "ps", "-a", "-q", "--no-trunc", "--filter",
		"label=devcontainer.local_folder="+folder)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if id != "" && !isID(id) {
		return "", errors.New("docker ps has not returned an id")
	}
	return id, nil
}

// Stop stops a container.
func (h Host) Stop(ctx context.Context, id string) error {
	_, err := h.docker(ctx, nil, "stop", "-t", stopGrace, id)
	return err
}

// Remove stops and removes a container.
func (h Host) Remove(ctx context.Context, id string) error {
	_, err := h.docker(ctx, nil, "rm", "-f", id)
	return err
}

// docker runs a short command of docker and returns what it prints.
func (h Host) docker(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd, err := h.command(ctx, "docker", args...)
	if err != nil {
		return nil, err
	}
	out, problem := &tail{}, &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, out, problem
	if err := cmd.Run(); err != nil {
		if text := firstLine(string(problem.data)); text != "" {
			return nil, fmt.Errorf("docker %s: %s", args[0], text)
		}
		return nil, fmt.Errorf("docker %s: %w", args[0], err)
	}
	return out.data, nil
}

// hints say what to do about a missing program.
var hints = map[string]string{
	"devcontainer": "install @devcontainers/cli in its image or a start script, for example with npm install -g @devcontainers/cli",
	"docker":       "install Docker's command line in its image, and give the workspace access to a Docker engine",
}

// find returns the path of a program.
func (h Host) find(program string) (string, error) {
	search, _ := proc.NewEnv(h.Env).Get("PATH")
	for _, dir := range filepath.SplitList(search) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("this workspace has no program %s on its PATH: %s", program, hints[program])
}

// command prepares a program in a session of its own, which ends with ctx.
func (h Host) command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	found, err := h.find(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, found, args...)
	cmd.Env = h.Env
	cmd.WaitDelay = outputDelay
	ownSession(cmd)
	return cmd, nil
}

// tail keeps the end of what is written.
type tail struct{ data []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.data = append(t.data, b...)
	if over := len(t.data) - maxOutput; over > 0 {
		t.data = t.data[:copy(t.data, t.data[over:])]
	}
	return len(b), nil
}

// firstLine returns the first line of a text, at most maxProblem bytes of it, as valid UTF-8.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(line[:min(len(line), maxProblem)], "")
}
