package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/script"
	"github.com/codermesh/codermesh/v2/agent/sshd"
	"github.com/codermesh/codermesh/v2/agent/units"
)

// workspace is the part of the agent that needs a manifest: which workspace this is, and what it runs.
type workspace struct {
	*daemon
	state   *state
	scripts *script.Runner
	ssh     *sshd.Server
	units   *units.Graph
	files   *secretFiles

	// Sockets for programs in the workspace. Each is nil where it cannot be opened.
	unitSocket, gitSocket, loginSocket *privateSocket
	stopAnswers                        context.CancelFunc // cancels the sockets' unanswered requests
}

// accept applies a manifest. The first complete one makes the agent ready for sessions; a pending one changes nothing.
func (d *daemon) accept(m *agentpb.ManifestResponse) error {
	id, err := uuid.FromBytes(m.GetWorkspaceId())
	if err != nil {
		return fmt.Errorf("read manifest: workspace id: %w", err)
	}
	if m.GetPending() {
		d.log.Info("waiting for the build to describe this agent completely", "incarnation", m.GetIncarnation())
		return nil
	}
	w, before := d.current()
	first := w == nil
	if first {
		if w, err = d.boot(id, m); err != nil {
			return err
		}
	}
	w.files.apply(m.GetSecrets()) // before scripts and sessions that may read them
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		if first {
			err = w.close()
		}
		return errors.Join(errClosing, err)
	}
	d.workspace, d.manifest = w, m
	d.mu.Unlock()
	if first {
		if d.opts.OwnProcess {
			if err := os.Chdir(w.directory(m)); err != nil {
				d.log.Info("workspace folder does not exist", "err", err)
			}
		}
		close(d.booted)
		for _, l := range []net.Listener{d.sessionListener, listener{d.sshClients, &d.stats, d.visits}} {
			d.wg.Go(func() {
				if err := w.ssh.Serve(l); err != nil {
					d.log.Error("cannot accept ssh connections", "err", err)
				}
			})
		}
		d.wg.Go(func() { d.serveSSH(m) })
	}
	if !proto.Equal(withoutSecrets(before), withoutSecrets(m)) {
		w.refresh(m)
	}
	d.renewed.Poke()
	return nil
}

// withoutSecrets returns what of a manifest is acted on when it changes: sessions and scripts read secrets when they start, and each SSH client
// gets the latest certificate.
func withoutSecrets(m *agentpb.ManifestResponse) *agentpb.ManifestResponse {
	m = proto.CloneOf(m)
	if m != nil {
		m.Secrets, m.SshHostCertificate = nil, nil
	}
	return m
}

var errClosing = errors.New("the agent is stopping")

// boot makes the workspace from the first manifest.
func (d *daemon) boot(id uuid.UUID, m *agentpb.ManifestResponse) (*workspace, error) {
	w := &workspace{daemon: d}
	var err error
	if w.ssh, err = sshd.New(sshd.Options{Logger: d.log, Environment: w.environment, Session: d.stats.session}); err != nil {
		return nil, err
	}
	// By workspace and name, not by the agent's id, which every build may change.
	w.state = openState(filepath.Join(d.opts.StateDir, id.String()+"-"+fileName(m.GetAgentName())), d.log)
	w.files = openSecretFiles(w.user.Home, w.state)
	w.scripts = script.New(script.Options{Logger: d.log, StateDir: w.state.dir, LogDir: d.opts.LogDir})
	if err := os.MkdirAll(w.scripts.BinDir(), 0o700); err != nil {
		d.log.Warn("cannot make folder for programs of scripts", "err", err)
	}
	unitFile := ""
	if w.state.writable {
		unitFile = filepath.Join(w.state.dir, "units.json")
	}
	w.units = units.New(unitFile, m.GetIncarnation())
	w.openSockets()
	return w, nil
}

// openSockets opens the sockets of the workspace's programs. Without them everything else works.
func (w *workspace) openSockets() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stopAnswers = cancel
	var err error
	w.unitSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "units"), units.MaxRequests, w.log, func(conn net.Conn) {
		if err := units.Serve(ctx, conn, w.units); err != nil {
			w.log.Debug("cannot answer about units", "err", err)
		}
	})
	if err != nil {
		w.log.Warn("scripts cannot wait for each other", "err", err)
	}
	w.gitSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "gitkey"), maxGitConns, w.log, func(conn net.Conn) {
		serveGitKey(ctx, conn, w.gitKey)
	})
	if err != nil {
		w.log.Warn("git cannot use the owner's key", "err", err)
	}
	w.loginSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "logins"), maxGitConns, w.log, func(conn net.Conn) {
		if err := login.Serve(ctx, conn, w.findLogin); err != nil {
			w.log.Debug("cannot answer about logins", "err", err)
		}
	})
	if err != nil {
		w.log.Warn("git cannot use the owner's external logins", "err", err)
	}
}

// maxGitConns bounds how many programs can ask for the owner's key, or for logins, at once.
const maxGitConns = 32

// close hangs up sessions, and ends scripts and pending requests on the sockets.
func (w *workspace) close() error {
	err := errors.Join(w.ssh.Close(), w.scripts.Close())
	w.stopAnswers()
	return errors.Join(err, w.unitSocket.close(), w.gitSocket.close(), w.loginSocket.close(), w.state.close())
}

// refresh applies the parts of a manifest that may change while the agent runs: metadata, health checks, monitors and schedules.
func (w *workspace) refresh(m *agentpb.ManifestResponse) {
	w.setMetadata(m)
	w.units.NextBuild(m.GetIncarnation())
	d := w.daemon
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
	d.wg.Go(func() { d.monitors.Watch(ctx, monitored(m), d.reportLevels) })
	d.wg.Go(func() { w.runSchedules(ctx, m) })
}

// fileName replaces all characters but letters, digits, - and _.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// environment returns what a session starts with.
func (w *workspace) environment() sshd.Environment {
	_, m := w.current()
	env := w.variables(m)
	return sshd.Environment{
		User: w.user, Env: env.List(), Directory: w.user.Directory(m.GetDirectory(), env),
		MOTDFile: w.motd(m, env),
	}
}

func (w *workspace) scriptEnvironment(m *agentpb.ManifestResponse) script.Environment {
	env := w.variables(m)
	return script.Environment{User: w.user, Env: env.List(), Directory: w.user.Directory(m.GetDirectory(), env)}
}

func (w *workspace) directory(m *agentpb.ManifestResponse) string {
	return w.user.Directory(m.GetDirectory(), w.variables(m))
}

func (w *workspace) motd(m *agentpb.ManifestResponse, env *proc.Env) string {
	if m.GetMotdFile() == "" {
		return ""
	}
	return w.user.Directory(m.GetMotdFile(), env)
}

// variables returns the variables of sessions and scripts: the agent's without its secrets, the account's, the workspace's, and last the
// template's, which may refer to all of them, and the owner's secrets.
func (w *workspace) variables(m *agentpb.ManifestResponse) *proc.Env {
	env := proc.NewEnv(proc.Scrub(os.Environ()))
	w.user.SetAccount(env)
	env.Set("CODER", "true")
	if id, err := uuid.FromBytes(m.GetWorkspaceId()); err == nil {
		env.Set("CODER_WORKSPACE_ID", id.String())
	}
	env.Set("CODER_WORKSPACE_NAME", m.GetWorkspaceName())
	env.Set("CODER_WORKSPACE_AGENT_NAME", m.GetAgentName())
	env.Set("CODER_WORKSPACE_OWNER_NAME", m.GetOwnerName())
	url := m.GetAccessUrl()
	if w.opts.URL != nil {
		url = w.opts.URL.String() // which works from here
	}
	env.Set("CODER_AGENT_URL", strings.TrimRight(url, "/")+"/") // modules append "api/v2/…"
	env.Set("CS_DISABLE_GETTING_STARTED_OVERRIDE", "1")         // code-server opens the folder, not its welcome page
	if w.unitSocket != nil {
		env.Set(units.SocketEnv, w.unitSocket.path)
	}
	w.setGit(env)
	if uri := m.GetVscodeProxyUri(); uri != "" {
		env.Set("VSCODE_PROXY_URI", uri)
	}
	values := make(map[string]string, len(m.GetEnv()))
	for name, value := range m.GetEnv() {
		values[name] = env.ExpandList(name, value)
	}
	for name, value := range values {
		if strings.IndexByte(value, 0) < 0 && !strings.ContainsAny(name, "=\x00") && name != "" {
			env.Set(name, value)
		}
	}
	setSecrets(env, m.GetSecrets())
	// This comes last because a template may replace PATH. Programs of scripts come first in PATH: modules put wrappers there.
	path, _ := env.Get("PATH")
	env.Set("PATH", searchPath(path, w.scripts.BinDir(), programDir()))
	return env
}

// setGit makes git use the owner's key and logins. GIT_SSH_VARIANT saves git from probing the program at every call.
func (w *workspace) setGit(env *proc.Env) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	self = filepath.ToSlash(self) // git runs programs with a POSIX shell, on Windows too
	if w.loginSocket != nil {
		env.Set(login.SocketEnv, w.loginSocket.path)
		env.Set("GIT_ASKPASS", self) // git passes only a prompt, from which the program recognizes the call
	}
	if w.gitSocket == nil || strings.ContainsAny(self, `"$\`+"`") {
		return
	}
	env.Set(GitAgentEnv, w.gitSocket.path)
	env.Set("GIT_SSH_COMMAND", `"`+self+`" gitssh`)
	env.Set("GIT_SSH_VARIANT", "ssh")
	// Commits signed with SSH keys are signed with the owner's, which git cannot read. The program recognizes git's call.
	if count, ok := env.Get("GIT_CONFIG_COUNT"); !ok || count == "0" {
		env.Set("GIT_CONFIG_COUNT", "1")
		env.Set("GIT_CONFIG_KEY_0", "gpg.ssh.program")
		env.Set("GIT_CONFIG_VALUE_0", self)
	}
}

// programDir returns the folder of this program, so that "coder" works in the workspace.
func programDir() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(self)
}

// searchPath adds a folder at the front of a search path and one at its end. Each occurs in the result once; "" adds nothing.
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
