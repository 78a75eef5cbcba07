package inside

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/archive"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	maxArchive = 4 << 30 // bytes, the server's limit
	// fetchAttempts bounds how often an archive is asked for while the server is away, about half a minute in all.
	fetchAttempts = 8
)

func fetchArchiveCmd(*global.Flags) *cobra.Command {
	var sum, file string
	cmd := &cobra.Command{
		Use:   "fetch-archive NAME",
		Short: "Fetch an archive that the server's operator provides to workspaces",
		Long: `Fetch an archive from the server's folder of archives, such as an editor that a start script unpacks and starts.
The file appears when it is complete and has the given SHA-256; a file with that content is not fetched again. While
the server is away, the command tries again for about half a minute.

Exit codes: 0 there is the file; 1 failed, with an error on standard error.`,
		Example: `  coder fetch-archive code-server-4.99.4-linux-amd64.tar.gz --sha256 SUM --file /tmp/code-server.tar.gz`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := hex.DecodeString(strings.TrimSpace(sum))
			if err != nil || len(want) != sha256.Size {
				return exit.Try(fault.New(fault.Invalid, "the SHA-256 must have 64 hexadecimal digits"),
					"sha256sum FILE prints it, on the server's machine.")
			}
			socket := os.Getenv(archive.SocketEnv)
			if socket == "" {
				missing := fault.New(fault.Invalid, "there are no archives here: $%s is not set", archive.SocketEnv)
				return exit.Try(missing, "Run this inside a workspace: coder ssh WORKSPACE")
			}
			if file == "" {
				file = filepath.Base(args[0])
			}
			if hasSum(file, want) {
				return nil
			}
			return fetchArchive(cmd.Context(), socket, args[0], file, want)
		},
	}
	cmd.Flags().StringVar(&sum, "sha256", "", "SHA-256 of the archive, in hexadecimal digits; required")
	cmd.Flags().StringVar(&file, "file", "", "file to write (default NAME in the working folder)")
	return cmd
}

// fetchArchive fetches an archive, several times if there is hope.
func fetchArchive(ctx context.Context, socket, name, file string, want []byte) error {
	wait := backoff.Backoff{Min: time.Second, Max: 8 * time.Second}
	for n := 1; ; n++ {
		err := fetchOnce(ctx, socket, name, file, want)
		if err == nil || ctx.Err() != nil || fault.As(err) != nil {
			return err
		}
		if refusal, ok := errors.AsType[archive.Refusal](err); ok {
			return exit.Try(fault.New(fault.NotFound, "cannot fetch the archive %s: %w", name, refusal),
				"Ask the server's operator.")
		}
		if n == fetchAttempts {
			return exit.Try(fault.New(fault.Unavailable, "cannot fetch the archive %s: %w", name, err),
				"Try again in a moment.")
		}
		_ = backoff.Sleep(ctx, wait.Next(), nil) // the next attempt sees the end of ctx
	}
}

// fetchOnce fetches an archive to a file. Its faults are final.
func fetchOnce(ctx context.Context, socket, name, file string, want []byte) (err error) {
	content, size, err := archive.Fetch(ctx, socket, name)
	if err != nil {
		return err
	}
	defer content.Close()
	if size > maxArchive {
		return fault.New(fault.TooLarge, "the archive %s is larger than %d GiB", name, maxArchive>>30)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".coder-archive-*")
	if err != nil {
		return fault.New(fault.Invalid, "cannot write the archive: %w", err)
	}
	defer os.Remove(temp.Name()) // after the rename there is nothing left to remove
	defer temp.Close()
	hash := sha256.New()
	to := &localFile{f: temp}
	if _, err := io.Copy(io.MultiWriter(to, hash), content); to.err != nil {
		return fault.New(fault.Invalid, "cannot write the archive: %w", to.err)
	} else if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if got := hash.Sum(nil); string(got) != string(want) {
		changed := fault.New(fault.Conflict, "the server's archive %s is another one: its SHA-256 is %x", name, got)
		return exit.Try(changed, "Ask the server's operator whether it was replaced. Correct the template if so.")
	}
	if err := errors.Join(temp.Close(), os.Rename(temp.Name(), file)); err != nil {
		return fault.New(fault.Invalid, "cannot write the archive: %w", err)
	}
	return nil
}

// localFile notes why it cannot be written, to tell that from a broken connection.
type localFile struct {
	f   *os.File
	err error
}

func (l *localFile) Write(p []byte) (int, error) {
	n, err := l.f.Write(p)
	l.err = err
	return n, err
}

// hasSum reports whether a file is there with a SHA-256.
func hasSum(file string, want []byte) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return err == nil && string(hash.Sum(nil)) == string(want)
}
