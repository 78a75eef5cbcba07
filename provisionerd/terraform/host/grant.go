package host

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// Grant is what one sandbox may use of the host in addition to the system.
type Grant struct {
	Write, Read []string   // files and folders, under their own names
	sockets     []string   // unix sockets to connect to
	etc         *etcFolder // the sandbox's /etc; nil for the host's
	groups      []int
	cgroup      *cgroup
	workspace   bool            // for a workspace's process, not a job's
	limits      WorkspaceLimits // of a workspace's process
}

// policyOf returns the sandbox policy of a command that runs as uid and may use what g grants.
func (h *Host) policyOf(i isolation, uid int, g Grant, pidFile string) sandbox.Policy {
	p := sandbox.Policy{Exec: h.program.path, PidFile: pidFile, Limits: h.opts.Limits, LastWords: h.opts.LastWords,
		Outlive: g.workspace}
	bounds, temporary := h.opts.JobLimits, h.opts.JobLimits.Disk
	if g.workspace {
		p.Limits, p.LogBound = sandbox.Limits{}, maxAgentLog
		bounds, temporary = JobLimits{Memory: g.limits.Memory, Processes: g.limits.Processes}, g.limits.Temporary
	} else {
		p.Version = h.program.Version
	}
	if g.cgroup != nil {
		p.Cgroups = g.cgroup.procs()
	} else {
		p.Limits.Memory = lesser(p.Limits.Memory, bounds.Memory)
		if i.countsProcesses() {
			p.Limits.Processes = bounds.Processes
		}
	}
	p.Limits.File = lesser(p.Limits.File, bounds.Disk)
	if !i.confined() {
		return p
	}
	p.Limits.NoQueues = i.bubblewrap == "" && !sandbox.SweepsQueues()
	p.UID, p.GID, p.Groups, p.Confine, p.Debug = uid, uid, g.groups, true, g.workspace
	system := h.hostFiles()
	config := system.paths
	if g.etc != nil {
		config = append(slices.DeleteFunc(slices.Clone(config), inEtc), configDir)
	}
	write := slices.Clone(g.Write)
	read := slices.Concat(g.Read, []string{h.program.path})
	if !g.workspace {
		read = slices.Concat(read, i.mirrors, []string{filepath.Join(h.runDir, "terraformrc")}, h.serviceAccount())
	}
	if i.bubblewrap != "" {
		v := view{system: system, write: append(slices.Clone(write), g.sockets...), read: read, etc: g.etc,
			temporary: temporary}
		p.Bwrap = i.bwrap(v, h.launcher())
	}
	p.Write = slices.Concat(write, temporaryDirs, deviceFiles)
	p.Read = slices.Concat(read, config, resolverDirs, []string{"/proc", "/dev/random", "/dev/urandom",
		filepath.Dir(sandbox.InnerProgram), h.opts.Worker[0]})
	return p
}

// socketGroup returns the group that may use a unix socket, and whether the socket exists.
func socketGroup(name string) (gid int, ok bool) {
	info, err := os.Stat(name)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return 0, false
	}
	stat, ok := statusOf(info)
	if !ok {
		return 0, false
	}
	return stat.gid, true
}

// WithDocker adds Docker's socket for a template, in the folder dir, that uses a provider named docker. Any program
// that reaches the socket can become root on this host, so no other template gets it.
func (h *Host) WithDocker(g Grant, dir string) Grant {
	used, err := filepath.Glob(filepath.Join(dir, ".terraform", "providers", "*", "*", "docker"))
	if h.opts.DockerSocket == "" || err != nil || len(used) == 0 {
		return g
	}
	// Looked up for each job: Docker may have been installed since.
	name, err := filepath.EvalSymlinks(h.opts.DockerSocket)
	if err != nil {
		return g
	}
	gid, ok := socketGroup(name)
	if !ok {
		return g
	}
	g.sockets = append(g.sockets, name)
	if h.isolation.accounts != nil {
		g.groups = append(g.groups, gid)
	}
	return g
}
