package host

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// lookAtHost begins to look at the host's files anew, ahead of the policies of a job.
func (h *Host) lookAtHost() {
	look := sync.OnceValue(h.visible)
	h.looked.Store(&look)
	h.background.Go(func() { look() })
}

// hostFiles returns what sandboxes see, since lookAtHost was called last. It waits for that.
func (h *Host) hostFiles() visible { return (*h.looked.Load())() }

// visible returns what sandboxes see now: the software, the part of /etc that everyone on this machine may read and
// programs need, and Options.Readable. It leaves out Options.Hidden and the daemon's own folders wherever they lie. It
// shows the siblings of a hidden file one by one instead of covering the file, because Landlock only allows, and
// because the kernel drops a cover when the file below it is replaced, as renewed certificates are.
func (h *Host) visible() visible {
	var v visible
	for _, name := range slices.Concat(h.opts.Hidden, []string{h.runDir, h.opts.CacheDir, h.opts.WorkspacesDir}) {
		if name != "" && filepath.IsAbs(name) {
			v.hidden = append(v.hidden, filepath.Clean(name), resolve(name))
		}
	}
	for _, dir := range softwareDirs {
		v.show(dir)
	}
	for _, pattern := range configNames {
		names, err := filepath.Glob(filepath.Join(configDir, pattern))
		if err != nil {
			continue // only a bad pattern fails, and TestConfigNames would have found it
		}
		for _, name := range names {
			v.showConfig(name)
		}
	}
	for _, name := range h.readable() {
		v.follow(name, v.show)
	}
	return v
}

// readable returns what the operator lets templates read in addition: certificates by the variables that templates see,
// and Options.Readable.
func (h *Host) readable() []string {
	names := append(filepath.SplitList(os.Getenv("SSL_CERT_DIR")), os.Getenv("SSL_CERT_FILE"))
	names = slices.DeleteFunc(names, func(name string) bool { return !filepath.IsAbs(name) })
	return append(names, h.opts.Readable...)
}

// checkVisible refuses settings that contradict each other.
func (h *Host) checkVisible() error {
	for _, name := range h.opts.Readable {
		if !filepath.IsAbs(name) {
			return fault.New(fault.Invalid, "templates cannot be given %s to read: it must be an absolute path", name)
		}
		if within(sandbox.InnerProgram, name) {
			return fault.New(fault.Invalid, "templates cannot be given %s to read: name a folder below it", name)
		}
		for _, secret := range h.opts.Hidden {
			if below(name, secret) {
				return fault.New(fault.Invalid,
					"templates cannot be given %s to read: the server's settings name it as a secret", name)
			}
		}
	}
	if v := h.hostFiles(); v.crowded != "" {
		return fault.New(fault.Invalid,
			"a file with a secret that a setting names lies in %s, which holds more than %d files: move it to "+
				"/etc/codermesh", v.crowded, maxAround)
	}
	return nil
}

// serviceAccount returns the folder with the credentials of the pod that this process runs in, if the operator lets
// templates use them, and otherwise nothing.
func (h *Host) serviceAccount() []string {
	if !slices.Contains(h.opts.ExtraEnv, "KUBERNETES_SERVICE_HOST") {
		return nil
	}
	// The folder is below /var/run, which is a link in most images. Providers look there, and sandboxes have the same
	// link.
	dir, err := filepath.EvalSymlinks(cmp.Or(h.opts.ServiceAccount, "/var/run/secrets/kubernetes.io/serviceaccount"))
	if err != nil {
		return nil // not in a pod, or the pod has no account
	}
	return []string{dir}
}
