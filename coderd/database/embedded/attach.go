//go:build unix

package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Attach is like Start, for a command that may run beside a server. If a server is running, Attach uses that server's
// PostgreSQL, and Stop leaves it running. If the folder holds no data yet, Attach returns a fault: there is nothing to
// work on.
func Attach(ctx context.Context, opts Options) (*Server, error) {
	data, err := filepath.Abs(filepath.Join(opts.Dir, "postgres", "data"))
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(data, "PG_VERSION")); err != nil {
		return nil, fault.New(fault.NotFound, "No server database was found in %s.", opts.Dir).
			WithDetail("Name the server's folder with --global-config, or its database with --postgres-url.")
	}
	opts.keepVersion = true // a command need not wait for an upgrade
	s, err := Start(ctx, opts)
	if fault.CodeOf(err) != fault.Conflict {
		return s, err
	}
	if data, err = filepath.EvalSymlinks(data); err != nil {
		return nil, folderFault(err, opts.Dir)
	}
	s = &Server{log: opts.Logger, data: data, finished: make(chan struct{})}
	if s.password, err = readPassword(filepath.Dir(data)); err != nil {
		return nil, err
	}
	if s.socket, err = socketFolder(data); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() {
		defer close(s.finished)
		<-run.Done()
		s.release()
	}()
	return s, nil
}

// RunningURL returns the URL, including the password, of the PostgreSQL that a server is running below dir. It returns
// a fault if there is none, or if the caller may not read the password.
func RunningURL(dir string) (string, error) {
	data, err := filepath.Abs(filepath.Join(dir, "postgres", "data"))
	if err != nil {
		return "", fmt.Errorf("find data folder: %w", err)
	}
	if st, err := readStatus(data); err != nil || !st.ready || !serves(st.pid, data) {
		return "", fault.New(fault.NotFound, "No running PostgreSQL was found in %s.", dir).
			WithDetail("Start the server, or name its folder with --global-config.")
	}
	if !addressable(data) {
		return "", fault.New(fault.Unavailable, "The path %s is too long for a socket address, or has a comma.", data).
			WithDetail("Create a short symbolic link to it and use that as the host.")
	}
	password, err := readPassword(filepath.Dir(data))
	if err != nil {
		return "", err
	}
	return urlOf(data, password), nil
}
