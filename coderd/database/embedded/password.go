//go:build unix

package embedded

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// The password is in a file beside the data folder, so it is neither in the database's own folder nor accessible to the
// account that PostgreSQL runs as. PostgreSQL stores only a verifier.
const passwordFile = "password"

// A file with anything but one line of minPassword to maxPassword of these characters is not ours.
const (
	passwordAlphabet         = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	minPassword, maxPassword = 20, 200
)

// readPassword returns the password of the PostgreSQL below dir, the folder "postgres", or "" if there is none.
func readPassword(dir string) (string, error) {
	name := filepath.Join(dir, passwordFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "The database's password in %s cannot be read: %w", name, err).
			WithDetail("Run the command as the server's user.")
	}
	password := strings.TrimSpace(string(text))
	if len(password) < minPassword || len(password) > maxPassword || strings.Trim(password, passwordAlphabet) != "" {
		return "", fault.New(fault.Unavailable, "The file %s contains no password.", name).
			WithDetail("Remove it: the next start of the server sets a new one.")
	}
	return password, nil
}

// makePassword writes a new password. The file appears complete or not at all.
func makePassword(dir string) (string, error) {
	password := rand.Text()
	err := replace(dir, passwordFile, []byte(password+"\n"), nil)
	if err != nil {
		return "", folderFault(err, dir)
	}
	return password, nil
}

// replace writes a file in dir for an account, where nil means this process's, and waits until it is on disk. It never
// writes through a link.
func replace(dir, name string, text []byte, owner *account) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	fresh := name + ".new"
	if err := root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if owner != nil {
		err = file.Chown(int(owner.uid), int(owner.gid))
	}
	if err == nil {
		_, err = file.Write(text)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := root.Rename(fresh, name); err != nil {
		return err
	}
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// verifier returns what PostgreSQL stores of a password (RFC 5803). It cannot be used to sign in.
func verifier(password string) (string, error) {
	const rounds = 4096 // PostgreSQL's default, which is enough because the password is random
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(mac("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, encode(salt), encode(stored[:]), encode(mac("Server Key"))), nil
}

// withoutTrust changes rules that allow access without a password to require one, in the text of pg_hba.conf.
func withoutTrust(text string) (changed string, found bool) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		rule, comment, hasComment := strings.Cut(line, "#")
		words := strings.Fields(rule)
		open := false
		for n := 3; n < len(words); n++ { // the method follows the connection type, databases and users
			if strings.Trim(words[n], `"`) == "trust" {
				words[n], open, found = "scram-sha-256", true, true
			}
		}
		if open {
			lines[i] = strings.Join(words, "\t")
			if hasComment {
				lines[i] += "\t#" + comment
			}
		}
	}
	return strings.Join(lines, "\n"), found
}

// secure makes sure that the data folder requires the password in the file. Folders of older releases require none. If
// this process ends after any step, the next start continues from there.
func (s *Server) secure(ctx context.Context) (err error) {
	if s.password, err = readPassword(filepath.Dir(s.data)); err != nil {
		return err
	}
	rules, err := s.accessRules()
	if err != nil {
		return err
	}
	closed, open := withoutTrust(rules)
	if s.password != "" && !open {
		return nil
	}
	if s.password == "" {
		if s.password, err = makePassword(filepath.Dir(s.data)); err != nil {
			return err
		}
	}
	if err := s.install.setPassword(ctx, s.data, s.password); err != nil {
		return err
	}
	if open {
		// Before this point, signing in with a password was impossible.
		if err := replace(s.data, "pg_hba.conf", []byte(closed), s.install.account); err != nil {
			return folderFault(err, s.data)
		}
		s.log.Info("PostgreSQL now requires a password", "path", s.data)
	}
	return nil
}

// maxRules bounds pg_hba.conf, in bytes.
const maxRules = 1 << 20

func (s *Server) accessRules() (string, error) {
	root, err := os.OpenRoot(s.data)
	if err != nil {
		return "", folderFault(err, s.data)
	}
	defer root.Close()
	file, err := root.OpenFile("pg_hba.conf", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // PostgreSQL refuses every connection without it, and reports why
	}
	if err != nil {
		return "", folderFault(err, s.data)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxRules {
		return "", folderFault(errors.Join(err, errors.New("pg_hba.conf is not a file of usual size")), s.data)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRules))
	if err != nil {
		return "", folderFault(err, s.data)
	}
	return string(text), nil
}

// verify signs in once. It reports false if PostgreSQL has a different password, for example after only the data folder
// was restored.
func (s *Server) verify(ctx context.Context) (bool, error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if problem := (*pgconn.PgError)(nil); errors.As(err, &problem) && problem.Code == "28P01" {
		return false, nil
	}
	if err != nil {
		return false, fault.New(fault.Unavailable, "PostgreSQL is running but cannot be reached: %w", err)
	}
	if err := conn.Close(ctx); err != nil {
		s.log.Warn("cannot close the connection to PostgreSQL", "err", err)
	}
	return true, nil
}
