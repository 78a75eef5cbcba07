package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// follow keeps the live names of all workspaces up to date until ctx ends.
func (h *Host) follow(ctx context.Context) {
	err := followNames(ctx, configDir, func() {
		folders, err := filepath.Glob(filepath.Join(h.opts.WorkspacesDir, "*", "etc"))
		for _, dir := range folders {
			err = errors.Join(err, h.refreshEtc(configDir, dir))
		}
		if err != nil {
			h.log.Warn("cannot bring /etc of workspaces up to date", "err", err)
		}
	})
	if err != nil {
		h.log.Warn("workspaces do not follow changes of /etc", "err", err)
	}
}

// refreshEtc brings the live names in the /etc of a sandbox up to date with the host's. The sandbox may use it
// meanwhile.
func (h *Host) refreshEtc(host, dir string) error {
	h.etc.Lock()
	defer h.etc.Unlock()
	for _, name := range liveNames {
		at := filepath.Join(dir, name)
		info, err := os.Lstat(at)
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			continue // the sandbox does not see it, or the host's own
		}
		before, err := os.ReadFile(at)
		if err != nil {
			return fmt.Errorf("refresh /etc: %w", err)
		}
		after, err := liveText(host, name, before)
		if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(before, after) {
			continue // while the host replaces it, it has none
		}
		if err == nil {
			err = replaceLive(at, after)
		}
		if err != nil {
			return fmt.Errorf("refresh /etc: %w", err)
		}
	}
	return nil
}

// liveText returns what a sandbox should see as a live name. Lists of accounts begin with its own account.
func liveText(host, name string, before []byte) ([]byte, error) {
	file := filepath.Join(host, name)
	if name == "passwd" || name == "group" {
		own, _, _ := bytes.Cut(before, []byte("\n"))
		account, _, _ := bytes.Cut(own, []byte(":"))
		theirs := hostLines(file, string(account))
		if len(theirs) == 0 {
			return before, nil
		}
		return append(append(own, '\n'), theirs...), nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !open(info) || !info.Mode().IsRegular() || info.Size() > maxEtcCopy || info.Size() == 0 {
		return before, nil
	}
	return os.ReadFile(file)
}

// replaceLive replaces a file that all accounts may read.
func replaceLive(name string, text []byte) error {
	next := name + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return errors.Join(os.Chmod(next, 0o644), os.Rename(next, name))
}

// FollowEtc starts to keep the live names of workspaces up to date, until Leave. It does nothing if workspaces see the
// host's own /etc.
func (h *Host) FollowEtc(ctx context.Context) {
	if h.isolation.bubblewrap == "" || h.opts.WorkspacesDir == "" {
		return
	}
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.unfollow = stop
	h.background.Go(func() { h.follow(follow) })
}
