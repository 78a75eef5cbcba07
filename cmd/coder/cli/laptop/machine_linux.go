package laptop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// table has the routes, apart from those of other programs, and priority is where the kernel asks it: before the
	// main table, and before the tables of other VPNs, which are asked for all addresses.
	table, priority = "20552", "5200"
	resolvConf      = "/etc/resolv.conf"
	resolved        = "systemd-resolved"
)

// state is what the keeper has changed on the machine, except the resolver's file, which says that for itself. It is
// written before it changes anything.
type state struct {
	Rules [][]string `json:"rules"` // arguments of ip -6 rule del
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

// store writes the state, so that it survives this process.
func (k *keeper) store() error {
	text, err := json.Marshal(k.state)
	if err != nil {
		return err
	}
	return writeFile(statePath(k.Dir), text, 0o600)
}

// writeFile replaces a file, at once.
func writeFile(path string, text []byte, mode fs.FileMode) error {
	next := path + ".coder-connect"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}

// routes makes the device and its routes. They exist for the user's programs only, but for the way to the name server.
func (k *keeper) routes(ctx context.Context) error {
	if routes, err := run(ctx, "ip", "-6", "-j", "route", "show", "table", "all"); err == nil {
		if k.setup.Overlaps, err = overlaps(routes, tailnet.Prefix, deviceName); err != nil {
			k.Logger.WarnContext(ctx, "cannot look for overlapping routes", "err", err)
		}
	}
	rule := func(to string, more ...string) []string {
		return append([]string{"to", to, "iif", "lo", "lookup", table, "priority", priority}, more...)
	}
	uid := k.User.Uid
	k.state.Rules = [][]string{rule(NameServer.String()), rule(tailnet.Prefix.String(), "uidrange", uid+"-"+uid)}
	if err := k.store(); err != nil {
		return err
	}
	commands := [][]string{
		{"addr", "add", k.setup.Machine.String() + "/128", "dev", deviceName, "nodad"},
		{"link", "set", deviceName, "up"},
		{"route", "add", tailnet.Prefix.String(), "dev", deviceName, "src", k.setup.Machine.String(), "table", table},
	}
	for _, r := range k.state.Rules {
		commands = append(commands, append([]string{"rule", "add"}, r...))
	}
	for _, c := range commands {
		if _, err := run(ctx, "ip", append([]string{"-6"}, c...)...); err != nil {
			return fmt.Errorf("configure the network: %w", err)
		}
	}
	return nil
}

// run runs a program and returns its output.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %s", name, strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// resolver makes the machine's resolver ask the name server: systemd-resolved for the names of workspaces only, others
// for all.
func (k *keeper) resolver(ctx context.Context) error {
	if _, err := os.Stat("/run/systemd/resolve/io.systemd.Resolve"); err == nil {
		for _, args := range resolvedCommands(deviceName) {
			if _, err := run(ctx, "resolvectl", args...); err != nil {
				return fmt.Errorf("configure systemd-resolved: %w", err)
			}
		}
		k.setup.Resolver = resolved
		return nil
	}
	k.setup.Resolver = resolvConf
	text, err := os.ReadFile(resolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	link, err := os.Readlink(resolvConf)
	if err != nil {
		link = "" // a file
	}
	if k.setup.Original = linked(link); link == "" {
		k.setup.Original = filepath.Join(k.Dir, "resolv.conf")
		if err := writeFile(k.setup.Original, text, 0o644); err != nil {
			return err
		}
	}
	return replace(resolvConf, []byte(withServer(string(text), link, NameServer)))
}

// linked returns the file to which a symbolic link at resolvConf leads. Its owner, such as resolvconf, goes on to write
// the name servers of the present network to it.
func linked(link string) string {
	if filepath.IsAbs(link) {
		return link
	}
	return filepath.Join(filepath.Dir(resolvConf), link)
}

// replace replaces a file, or what it says if it cannot be replaced because something is mounted on it, as in
// containers.
func replace(path string, text []byte) error {
	err := writeFile(path, text, 0o644)
	if errors.Is(err, syscall.EBUSY) {
		return os.WriteFile(path, text, 0o644)
	}
	return err
}

// restore takes back what the state and the resolver's file say. The routes and what systemd-resolved knows have ended
// with the device.
func restore(ctx context.Context, dir string) error {
	if err := restoreResolver(); err != nil {
		return fmt.Errorf("restore %s: %w", resolvConf, err)
	}
	text, err := os.ReadFile(statePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var st state
	if err := json.Unmarshal(text, &st); err != nil {
		return fmt.Errorf("read %s: %w", statePath(dir), err)
	}
	for _, rule := range st.Rules {
		_, _ = run(ctx, "ip", append([]string{"-6", "rule", "del"}, rule...)...) // it may have been removed, or never added
	}
	os.Remove(socket(dir))
	return os.Remove(statePath(dir))
}

// restoreResolver restores the resolver's file, unless another program has replaced ours.
func restoreResolver() error {
	text, err := os.ReadFile(resolvConf)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ours(string(text)) {
		return nil
	}
	if err != nil {
		return err
	}
	original, link := withoutServer(string(text))
	if link != "" {
		next := resolvConf + ".coder-connect"
		os.Remove(next)
		if err := os.Symlink(link, next); err != nil {
			return err
		}
		err := os.Rename(next, resolvConf)
		if err == nil || !errors.Is(err, syscall.EBUSY) {
			return err
		}
		os.Remove(next)
	}
	return replace(resolvConf, []byte(original))
}

// resolvedCommands returns what makes systemd-resolved ask the name server about workspaces, and about nothing else.
// The zone coder is not signed, and the server is on this machine, whatever is set for others.
func resolvedCommands(device string) [][]string {
	return [][]string{
		{"dns", device, NameServer.String()},
		{"domain", device, "~coder", "~" + strings.TrimSuffix(meshdns.ReverseZone(tailnet.Prefix), ".")},
		{"default-route", device, "false"},
		{"dnssec", device, "no"},
		{"dnsovertls", device, "no"},
	}
}
