package sshd

import (
	"errors"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// runSFTP serves the sftp subsystem in this process, with the rights of the workspace's account.
func (s *session) runSFTP() {
	env := s.conn.server.opts.Environment()
	options := []sftp.ServerOption{sftp.WithAllocator()}
	if cwd, err := os.Getwd(); err != nil || cwd != env.Directory {
		// The library then also resolves the targets of relative symbolic links, so this is only for a process that is not in the
		// workspace's folder.
		options = append(options, sftp.WithServerWorkingDirectory(env.Directory))
	}
	server, err := sftp.NewServer(keepOpen{s.channel}, options...)
	if err != nil {
		s.fail(err)
		return
	}
	err = server.Serve()
	if closeErr := server.Close(); closeErr != nil && !errors.Is(closeErr, io.EOF) {
		s.log.Debug("cannot close sftp", "err", closeErr)
	}
	status := exitStatus{}
	if err != nil && !errors.Is(err, io.EOF) {
		s.log.Debug("sftp ended", "err", err)
		status.code = 1
	}
	s.exit(status)
}

// keepOpen hides the channel's Close, which the library calls at the end, because the exit status must still be sent.
type keepOpen struct{ io.ReadWriter }

func (keepOpen) Close() error { return nil }
