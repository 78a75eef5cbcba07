package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/archive"
	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/script"
	"github.com/codermesh/codermesh/v2/agent/secretfiles"
	"github.com/codermesh/codermesh/v2/agent/sshd"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/agent/units"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/usersecret"
)

// workspace is the part of the agent that needs a manifest: which workspace this is, and what it runs.
type workspace struct {
	log     *slog.Logger
	user    proc.User
	url     *url.URL // the server's, as it works from here; nil means the manifest's
	server  *uplink
	reports *reports
	logs    *logship.Queue
	logins  *loginGate

	state   *state
	scripts *script.Runner
	ssh     *sshd.Server
	units   *units.Graph
	files   *secretfiles.Files
	latest  atomic.Pointer[agentpb.ManifestResponse] // never nil once the daemon has the workspace

	mu            sync.Mutex                  // guards the fields below
	devcontainers map[uuid.UUID]*devContainer // of the last build whose start scripts have ended

	// Sockets for programs in the workspace. Each is nil where it cannot be opened.
	unitSocket, gitSocket, loginSocket, archiveSocket *privateSocket
	stopAnswers                                       context.CancelFunc // cancels the sockets' unanswered requests
}

// open opens what the first manifest describes. The caller has set the fields above state. session counts an SSH
// session.
func (w *workspace) open(
	id uuid.UUID, m *agentpb.ManifestResponse, opts Options, session func(net.Conn, *proc.Env) (end func()),
) error {
	var err error
	if w.ssh, err = sshd.New(sshd.Options{Logger: w.log, Environment: w.environment, Session: session}); err != nil {
		return err
	}
	// By workspace and name, not by the agent's id, which every build may change.
	w.state = openState(filepath.Join(opts.StateDir, id.String()+"-"+fileName(m.GetAgentName())), w.log)
	unitFile, secretRecord := "", ""
	if w.state.writable {
		unitFile, secretRecord = filepath.Join(w.state.dir, "units.json"), filepath.Join(w.state.dir, "secrets.json")
	}
	w.files = secretfiles.Open(w.user.Home, secretRecord, w.log)
	w.scripts = script.New(script.Options{Logger: w.log, StateDir: w.state.dir, LogDir: opts.LogDir})
	if err := os.MkdirAll(w.scripts.BinDir(), 0o700); err != nil {
		w.log.Warn("cannot make folder for programs of scripts", "err", err)
	}
	w.units = units.New(unitFile, m.GetIncarnation())
	w.openSockets(opts)
	return nil
}

// openSockets opens the sockets of the workspace's programs. Without them everything else works.
func (w *workspace) openSockets(opts Options) {
	ctx, cancel := context.WithCancel(context.Background())
	w.stopAnswers = cancel
	var err error
	w.unitSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "units"), units.MaxRequests, w.log,
		func(conn net.Conn) {
			if err := units.Serve(ctx, conn, w.units); err != nil {
				w.log.Debug("cannot answer about units", "err", err)
			}
		})
	if err != nil {
		w.log.Warn("scripts cannot wait for each other", "err", err)
	}
	w.gitSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "gitkey"), maxGitConns, w.log, func(conn net.Conn) {
		serveGitKey(ctx, conn, w.server.gitKey)
	})
	if err != nil {
		w.log.Warn("git cannot use the owner's key", "err", err)
	}
	w.loginSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "logins"), maxGitConns, w.log,
		func(conn net.Conn) {
			if err := login.Serve(ctx, conn, w.server.findLogin); err != nil {
				w.log.Debug("cannot answer about logins", "err", err)
			}
		})
	if err != nil {
		w.log.Warn("git cannot use the owner's external logins", "err", err)
	}
	openArchive := archiveOpener(opts)
	w.archiveSocket, err = newPrivateSocket(filepath.Join(w.state.dir, "archives"), maxArchiveConns, w.log,
		func(conn net.Conn) {
			if err := archive.Serve(ctx, conn, openArchive); err != nil {
				w.log.Debug("cannot send an archive", "err", err)
			}
		})
	if err != nil {
		w.log.Warn("scripts cannot fetch archives", "err", err)
	}
}

// maxGitConns bounds how many programs can ask for the owner's key, or for logins, at once.
const maxGitConns = 32

// maxArchiveConns bounds how many programs can fetch archives at once, as the server does.
const maxArchiveConns = 2

// close hangs up sessions, and ends scripts and pending requests on the sockets.
func (w *workspace) close() error {
	err := errors.Join(w.ssh.Close(), w.scripts.Close())
	w.stopAnswers()
	return errors.Join(err, w.unitSocket.close(), w.gitSocket.close(), w.loginSocket.close(), w.archiveSocket.close(),
		w.state.close())
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
	m := w.latest.Load()
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

// variables returns the variables of sessions and scripts: the agent's without its secrets, the account's, the
// workspace's, and last the template's, which may refer to all of them, and the owner's secrets.
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
	env.Set("CODER_AGENT_URL", w.addressOf(m))          // modules append "api/v2/…"
	env.Set("CS_DISABLE_GETTING_STARTED_OVERRIDE", "1") // code-server opens the folder, not its welcome page
	if w.unitSocket != nil {
		env.Set(units.SocketEnv, w.unitSocket.path)
	}
	if w.archiveSocket != nil {
		env.Set(archive.SocketEnv, w.archiveSocket.path)
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
	// This comes last because a template may replace PATH. Programs of scripts come first in PATH: modules put wrappers
	// there.
	path, _ := env.Get("PATH")
	env.Set("PATH", searchPath(path, w.scripts.BinDir(), programDir()))
	return env
}

// addressOf returns the server's address, as it works from here, with a slash at its end.
func (w *workspace) addressOf(m *agentpb.ManifestResponse) string {
	address := m.GetAccessUrl()
	if w.url != nil {
		address = w.url.String()
	}
	return strings.TrimRight(address, "/") + "/"
}

// serverURL is addressOf the latest manifest.
func (w *workspace) serverURL() string { return w.addressOf(w.latest.Load()) }

// setSecrets sets the variables of the owner's secrets. Values are taken as they are: a dollar sign in a password means
// nothing.
func setSecrets(env *proc.Env, secrets []*agentpb.Secret) {
	for _, s := range secrets {
		if name, value := s.GetEnvName(), string(s.GetValue()); usersecret.CheckEnv(name) == "" &&
			proc.AcceptEnv(name, value) {
			env.Set(name, value)
		}
	}
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

// startTerminal returns the request for a terminal, with what a new shell starts with.
func (w *workspace) startTerminal(req ptywire.Request, m *agentpb.ManifestResponse) terminal.Start {
	env := w.variables(m)
	env.Set("TERM", "xterm-256color")
	env.Set("COLORTERM", "truecolor")
	dir := w.user.Existing(w.user.Directory(m.GetDirectory(), env))
	s := terminal.Start{Request: req, Path: w.user.Shell, Env: env.List(), Directory: dir}
	if req.Command != "" {
		s.Args = proc.CommandArgs(w.user.Shell, req.Command)
		return s
	}
	s.Args = proc.LoginArgs(w.user.Shell)
	s.Banner = sshd.Banner(w.motd(m, env), w.user.Home, w.log)
	return s
}
