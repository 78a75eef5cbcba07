package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// softwareDirs are the folders of programs and of the kernel that every sandbox sees, read-only.
var softwareDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/sys"}

// configNames are what every sandbox sees of /etc, as patterns. They hold what programs need to resolve names, verify
// certificates, load libraries and choose a locale. Files that may hold passwords, such as gitconfig, npmrc, pip.conf,
// wgetrc, environment and fstab, do not belong here: an operator adds them with Options.Readable.
var configNames = []string{
	// names of hosts, accounts, services
	"resolv.conf", "hosts", "host.conf", "hostname", "nsswitch.conf", "gai.conf", "networks", "protocols", "services",
	"rpc", "ethertypes",
	"passwd", "group", "shells", "krb5.conf", "ssh/ssh_config", "ssh/ssh_config.d", "ssh/ssh_known_hosts",
	// certificates
	"ssl/certs", "ssl/cert.pem", "ssl/ca-bundle.pem", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf",
	"pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/java", "crypto-policies", "gnutls",
	// libraries and programs
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path", "alternatives", "static",
	"perl", "python3", "python3.*", "java", "java-*", "maven/m2.conf", "maven/logging", "R", "ImageMagick-*", "OpenCL",
	"vulkan", "glvnd", "iproute2",
	// locale, files and terminals
	"localtime", "timezone", "locale.conf", "locale.alias", "default/locale", "mime.types", "mailcap", "magic",
	"magic.mime", "fonts", "mtab",
	"os-release", "lsb-release", "debian_version", "*-release", "terminfo", "inputrc", "profile", "profile.d",
	"bash.bashrc", "bashrc",
	"bash_completion", "bash_completion.d", "skel", "zsh", "zshenv", "zshrc", "zprofile", "fish", "vim", "vimrc",
	"nanorc", "emacs", "xdg",
	"DIR_COLORS", "manpath.config", "man_db.conf",
}

const configDir = "/etc"

// maxAround bounds the entries of a folder of which a sandbox sees all but one.
const maxAround = 4096

// visible is what a sandbox sees of the host's own files.
type visible struct {
	paths  []string // files and folders, none of which is a link or lies below another
	links  []link
	hidden []string
	// crowded is a folder that sandboxes do not see because a hidden file lies among too many others.
	crowded string
}

type link struct{ name, target string }

// inEtc reports whether a name is /etc or lies below it.
func inEtc(name string) bool { return within(name, configDir) }

// skipSystemGit is the variable that keeps git from the machine's settings, see git(1).
const skipSystemGit = "GIT_CONFIG_NOSYSTEM"

// guideGit keeps git from the machine's settings unless sandboxes see them: without namespaces a hidden file still
// exists, and git fails on one that it may not read. An operator's own choice in env counts.
func (v *visible) guideGit(env map[string]string) {
	if _, chosen := env[skipSystemGit]; !chosen && !v.shown(filepath.Join(configDir, "gitconfig")) {
		env[skipSystemGit] = "1"
	}
}

// resolve returns name with its existing links resolved.
func resolve(name string) string {
	name = filepath.Clean(name)
	there := existing(name)
	to, err := filepath.EvalSymlinks(there)
	if err != nil {
		return name
	}
	return filepath.Join(to, strings.TrimPrefix(name, there))
}

// within reports whether name is dir or lies below it, by their text.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// shown reports whether a sandbox sees name already.
func (v *visible) shown(name string) bool {
	return slices.ContainsFunc(v.paths, func(dir string) bool { return within(name, dir) })
}

// show makes a file or folder visible, except for what is hidden in it.
func (v *visible) show(name string) {
	info, err := os.Lstat(name)
	if err != nil || v.shown(name) || slices.ContainsFunc(v.hidden, func(h string) bool { return within(name, h) }) {
		return
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		v.link(name)
		return
	}
	if !slices.ContainsFunc(v.hidden, func(h string) bool { return within(h, name) }) {
		v.paths = slices.DeleteFunc(v.paths, func(old string) bool { return within(old, name) })
		v.links = slices.DeleteFunc(v.links, func(old link) bool { return within(old.name, name) })
		v.paths = append(v.paths, name)
		return
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return // what we cannot list, templates cannot either
	}
	if len(entries) > maxAround {
		v.crowded = name
		return
	}
	for _, entry := range entries {
		v.show(filepath.Join(name, entry.Name()))
	}
}

// link makes a link visible, but not what it leads to.
func (v *visible) link(name string) (target string) {
	target, err := os.Readlink(name)
	if err != nil {
		return ""
	}
	// Bubblewrap makes these for every sandbox.
	made := name == "/var/run" || within(name, "/proc") || within(name, "/dev")
	if one := (link{name, target}); !made && !v.shown(name) && !slices.Contains(v.links, one) {
		v.links = append(v.links, one)
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(name), target)
	}
	return filepath.Clean(target)
}

// maxLinks bounds how many links lead to one file, as in the kernel.
const maxLinks = 40

// follow makes the links on the path to name visible, and calls show with what they lead to.
func (v *visible) follow(name string, show func(string)) {
	name = filepath.Clean(name)
search:
	for range maxLinks {
		for at := 1; at <= len(name); at++ {
			if at < len(name) && name[at] != '/' {
				continue
			}
			info, err := os.Lstat(name[:at])
			if err != nil {
				return
			}
			if info.Mode()&fs.ModeSymlink == 0 {
				continue
			}
			target := v.link(name[:at])
			if target == "" {
				return
			}
			name = filepath.Join(target, name[at:])
			continue search
		}
		show(name)
		return
	}
}

// showConfig makes a file or folder of /etc visible, with the files elsewhere in /etc to which its links lead. Of all
// that, a sandbox sees only what everyone on this machine may read: the service's account may have more rights.
func (v *visible) showConfig(name string) {
	v.follow(name, func(name string) {
		if !inEtc(name) {
			return // visible with the software, or not at all
		}
		info, err := os.Lstat(name)
		if err != nil || name == configDir || !open(info) {
			return
		}
		var leads []string
		if info.IsDir() {
			leads = v.inspect(name)
		}
		v.show(name)
		for _, file := range leads {
			v.show(file)
		}
	})
}

// inspect hides what is not for everyone below a folder of /etc, and returns the files elsewhere in /etc to which its
// links lead. It does not find those to which a link leads through other folders than /etc.
func (v *visible) inspect(dir string) (leads []string) {
	_ = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			v.hidden = append(v.hidden, name)
			return nil //nolint:nilerr // it is hidden, and the rest is not
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			// Most of the hundreds of links lead out of /etc, or to what the walk meets beside them. To resolve a link
			// takes ten system calls.
			first, err := os.Readlink(name)
			if err != nil || filepath.IsAbs(first) && !inEtc(first) || !strings.Contains(first, "/") {
				return nil //nolint:nilerr // a link to nothing shows nothing
			}
			to, err := filepath.EvalSymlinks(name)
			if err != nil || !inEtc(to) || within(to, dir) {
				return nil //nolint:nilerr // a link to nothing shows nothing
			}
			if info, err := os.Lstat(to); err == nil && info.Mode().IsRegular() && open(info) {
				leads = append(leads, to)
			}
			return nil
		}
		if info, err := entry.Info(); err != nil || !open(info) {
			v.hidden = append(v.hidden, name)
			if entry.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	return leads
}

// open reports whether everyone may read a file, or list a folder.
func open(info fs.FileInfo) bool {
	if info.IsDir() {
		return info.Mode().Perm()&0o005 == 0o005
	}
	return info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0
}
