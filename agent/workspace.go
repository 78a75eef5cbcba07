package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/login"
	"github.com/codermesh/codermesh/agent/proc"
	"github.com/codermesh/codermesh/agent/script"
	"github.com/codermesh/codermesh/agent/sshd"
	"github.com/codermesh/codermesh/agent/units"
	"github.com/codermesh/codermesh/internal/scratch"
)

// accept takes a manifest. The first whole one makes the agent ready for sessions; a pending one changes nothing.
func (d *daemon) accept(m *agentpb.ManifestResponse) error {
	workspace, err := uuid.FromBytes(m.GetWorkspaceId())
	if err != nil {
		return fmt.Errorf("read manifest: workspace id: %w", err)
	}
	if m.GetPending() {
		d.log.Info("waiting for the build to describe this agent completely", "incarnation", m.GetIncarnation())
		return nil
	}
	d.mu.Lock()
	same := proto.Equal(d.manifest, m)
	d.manifest = m
	d.mu.Unlock()
	defer d.renewed.Poke()
	if d.isReady() {
		if !same {
			d.refresh(m)
		}
		return nil
	}
	// By workspace and name, not by the agent's id, which every build may change.
	d.state = openState(filepath.Join(d.opt.StateDir, workspace.String()+"-"+fileName(m.GetAgentName())), d.log)
	d.scripts = script.New(script.Options{Logger: d.log, StateDir: d.state.dir, LogDir: d.opt.LogDir})
	if err := os.MkdirAll(d.scripts.BinDir(), 0o700); err != nil {
		d.log.Warn("make folder for programs of scripts", "err", err)
	}
	d.ssh, err = sshd.New(sshd.Options{Logger: d.log, Environment: d.environment, Session: d.stats.session})
	if err != nil {
		return err
	}
	d.openSocket(m)
	if d.git, err = newGitAgent(d.socketDir("gitkey"), d.gitKey); err != nil {
		d.log.Warn("git goes without the owner's key", "err", err)
	}
	logins, stopLogins := context.WithCancel(context.Background())
	d.stopLogins = stopLogins
	if d.logins, err = d.newLogins(logins); err != nil {
		d.log.Warn("git goes without the owner's logins", "err", err)
	}
	if d.opt.OwnProcess {
		if err := os.Chdir(d.directory(m)); err != nil {
			d.log.Info("workspace folder does not exist", "err", err)
		}
	}
	close(d.ready)
	d.refresh(m)
	d.wg.Go(func() {
		if err := d.ssh.Serve(d.sessionListener); err != nil {
			d.log.Error("serve ssh", "err", err)
		}
	})
	return nil
}

// refresh takes what of a manifest may change while the agent runs: what is collected and checked.
func (d *daemon) refresh(m *agentpb.ManifestResponse) {
	d.setMetadata(m)
	d.units.NextBuild(m.GetIncarnation())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopDuties != nil {
		d.stopDuties()
	}
	if d.closing {
		return
	}
	var ctx context.Context
	ctx, d.stopDuties = context.WithCancel(context.Background())
	d.wg.Go(func() { d.checkHealth(ctx, m.GetApps()) })
	d.wg.Go(func() { d.runSchedules(ctx, m) })
}

// openSocket lets the workspace's scripts ask for order among them. Without it everything else works.
func (d *daemon) openSocket(m *agentpb.ManifestResponse) {
	kept := ""
	if d.state.writable {
		kept = filepath.Join(d.state.dir, "units.json")
	}
	d.units = units.New(kept, m.GetIncarnation())
	path := filepath.Join(d.state.dir, "agent.sock")
	if len(path) > maxSocketPath {
		temp, err := socketFolder(d.state.dir)
		if err != nil {
			d.log.Warn("scripts cannot wait for each other", "err", err)
			return
		}
		d.socketTemp, path = temp, filepath.Join(temp.Path(), "agent.sock")
	}
	server, err := units.Serve(path, d.units, d.log)
	if err != nil {
		d.log.Warn("scripts cannot wait for each other", "err", err)
		return
	}
	d.socket, d.unitServer = path, server
}

// socketFolder is a temporary folder for a socket that does not fit into the state folder. The next agent of this state folder has it,
// too, for shells that outlive an agent, unless another process or account has a folder of that name.
func socketFolder(state string) (*scratch.Folder, error) {
	sum := sha256.Sum256([]byte(state))
	temp, err := scratch.Take(filepath.Join(os.TempDir(), "coder-agent-"+hex.EncodeToString(sum[:8])))
	if errors.Is(err, scratch.ErrTaken) {
		return scratch.Make("coder-agent-")
	}
	return temp, err
}

// maxSocketPath is what fits into a Unix socket's address (sun_path, 108 bytes with the end on Linux).
const maxSocketPath = 107

// fileName keeps what is safe in a file's name.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

func (d *daemon) current() *agentpb.ManifestResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.manifest
}

// environment is what a session starts with. It blocks until there is a manifest.
func (d *daemon) environment(ctx context.Context) (sshd.Environment, error) {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return sshd.Environment{}, ctx.Err()
	}
	m := d.current()
	env := d.variables(m)
	return sshd.Environment{
		User: d.user, Env: env.List(), Directory: d.user.Directory(m.GetDirectory(), env),
		MOTDFile: d.motd(m, env),
	}, nil
}

func (d *daemon) scriptEnvironment(m *agentpb.ManifestResponse) script.Environment {
	env := d.variables(m)
	return script.Environment{User: d.user, Env: env.List(), Directory: d.user.Directory(m.GetDirectory(), env)}
}

func (d *daemon) directory(m *agentpb.ManifestResponse) string {
	return d.user.Directory(m.GetDirectory(), d.variables(m))
}

func (d *daemon) motd(m *agentpb.ManifestResponse, env *proc.Env) string {
	if m.GetMotdFile() == "" {
		return ""
	}
	return d.user.Directory(m.GetMotdFile(), env)
}

// variables are those of sessions and scripts: the agent's own without its secrets, the account's, the workspace's, and
// last the template's, which may refer to all of them.
func (d *daemon) variables(m *agentpb.ManifestResponse) *proc.Env {
	env := proc.NewEnv(proc.Scrub(os.Environ()))
	env.Set("HOME", d.user.Home)
	env.Set("USER", d.user.Name)
	env.Set("LOGNAME", d.user.Name)
	env.Set("SHELL", d.user.Shell)
	env.Default("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	env.Default("LANG", "C.UTF-8")
	env.Set("CODER", "true")
	if id, err := uuid.FromBytes(m.GetWorkspaceId()); err == nil {
		env.Set("CODER_WORKSPACE_ID", id.String())
	}
	env.Set("CODER_WORKSPACE_NAME", m.GetWorkspaceName())
	env.Set("CODER_WORKSPACE_AGENT_NAME", m.GetAgentName())
	env.Set("CODER_WORKSPACE_OWNER_NAME", m.GetOwnerName())
	url := m.GetAccessUrl()
	if d.opt.URL != nil {
		url = d.opt.URL.String() // the one that works from here
	}
	env.Set("CODER_AGENT_URL", strings.TrimRight(url, "/")+"/") // modules append "api/v2/…"
	env.Set("CS_DISABLE_GETTING_STARTED_OVERRIDE", "1")         // code-server opens the folder, not its introduction
	if d.socket != "" {
		env.Set(units.SocketEnv, d.socket)
	}
	d.setGit(env)
	if uri := m.GetVscodeProxyUri(); uri != "" {
		env.Set("VSCODE_PROXY_URI", uri)
	}
	values := make(map[string]string, len(m.GetEnv()))
	for name, value := range m.GetEnv() {
		values[name] = env.Expand(value)
	}
	for name, value := range values {
		if strings.IndexByte(value, 0) < 0 && !strings.ContainsAny(name, "=\x00") && name != "" {
			env.Set(name, value)
		}
	}
	// Last, because a template may replace PATH. Programs of scripts come first: modules put wrappers there.
	path, _ := env.Get("PATH")
	env.Set("PATH", searchPath(path, d.scripts.BinDir(), programDir()))
	return env
}

// setGit makes git use the owner's key and logins. It says that it speaks ssh's command line, or git would ask it at every call.
func (d *daemon) setGit(env *proc.Env) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	if d.logins != nil {
		env.Set(login.SocketEnv, d.logins.path())
		env.Set("GIT_ASKPASS", self) // git runs it with a prompt and nothing else: the program knows those
	}
	if d.git == nil || strings.ContainsAny(self, `"$\`+"`") {
		return
	}
	env.Set(GitAgentEnv, d.git.path())
	env.Set("GIT_SSH_COMMAND", `"`+self+`" gitssh`)
	env.Set("GIT_SSH_VARIANT", "ssh")
	// Commits that are signed with SSH keys are signed with the owner's, which git cannot read: the program knows how git calls it.
	if count, ok := env.Get("GIT_CONFIG_COUNT"); !ok || count == "0" {
		env.Set("GIT_CONFIG_COUNT", "1")
		env.Set("GIT_CONFIG_KEY_0", "gpg.ssh.program")
		env.Set("GIT_CONFIG_VALUE_0", self)
	}
}

// programDir is where this program is, so that "coder" works in the workspace.
func programDir() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(self)
}

// searchPath puts a folder at the front of a search path and one at its end. Each is in the result once; "" adds nothing.
func searchPath(path, first, last string) string {
	dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return dir == first })
	if first != "" {
		dirs = slices.Insert(dirs, 0, first)
	}
	if last != "" && !slices.Contains(dirs, last) {
		dirs = append(dirs, last)
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}
