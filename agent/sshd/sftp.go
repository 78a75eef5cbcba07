package sshd

import (
	"errors"
	"io"
	"os"
	"os/user"
	"path/filepath"

	"github.com/pkg/sftp"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/sshd/sftpext"
)

// runSFTP serves the sftp subsystem in this process, with the rights of the workspace's account.
func (s *session) runSFTP() {
	env := s.conn.server.opts.Environment()
	options := []sftp.ServerOption{sftp.WithAllocator(), sftp.WithMaxTxPacket(sftpext.MaxData)}
	if cwd, err := os.Getwd(); err != nil || cwd != env.Directory {
		// The library then also resolves the targets of relative symbolic links, so this is only for a process that is
		// not in the workspace's folder.
		options = append(options, sftp.WithServerWorkingDirectory(clientPath(env.Directory)))
	}
	// The filter does not close the channel, as the library asks it to at the end, because the exit status must still
	// be sent.
	client := sftpext.New(s.channel, sftpext.Options{
		Directory: clientPath(env.Directory), Ended: s.ended,
		Home: func(account string) (string, error) {
			home, err := homeOf(env.User, account)
			return clientPath(home), err
		},
	})
	server, err := sftp.NewServer(client, options...)
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

// clientPath returns a path as clients see it: a drive is a folder of the root, /C:/Users, as with Windows' OpenSSH.
func clientPath(path string) string {
	if filepath.VolumeName(path) != "" {
		path = "/" + path
	}
	return filepath.ToSlash(path)
}

// homeOf returns the home folder of an account, of the workspace's own for "".
func homeOf(own proc.User, account string) (string, error) {
	if account == "" || account == own.Name {
		return own.Home, nil
	}
	other, err := user.Lookup(account)
	if err != nil {
		return "", err
	}
	return other.HomeDir, nil
}
