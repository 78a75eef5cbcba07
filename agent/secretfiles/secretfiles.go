// Package secretfiles keeps the files of the owner's secrets in the home folder.
package secretfiles

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/usersecret"
)

// Files keeps the files of the owner's secrets: it writes them when a manifest has them, and removes them when one has
// them no longer. It records what it wrote, so that it never removes or replaces a file that someone else has written.
// One goroutine uses it.
type Files struct {
	home   string
	record string // path of the record; "" for none
	log    *slog.Logger
	now    func() time.Time

	// wrote has, by path relative to home, the SHA-256 of the contents that the agent may have written there.
	wrote map[string][]string
}

// Open reads from the file record what an earlier agent wrote. If record is empty, this one does not record what it
// writes either.
func Open(home, record string, log *slog.Logger) *Files {
	f := &Files{home: home, record: record, log: log, now: time.Now, wrote: map[string][]string{}}
	if record == "" {
		return f
	}
	data, err := os.ReadFile(f.record)
	if errors.Is(err, fs.ErrNotExist) {
		return f
	}
	if err == nil {
		err = json.Unmarshal(data, &f.wrote)
	}
	if err != nil {
		f.log.Warn("cannot read which files of secrets were written", "err", err)
	}
	if f.wrote == nil {
		f.wrote = map[string][]string{}
	}
	return f
}

// Apply makes the files those of a manifest's secrets. A file that cannot be written or removed is logged, and tried
// again with the next manifest.
func (f *Files) Apply(secrets []*agentpb.Secret) {
	want := map[string]*agentpb.Secret{}
	for _, s := range secrets {
		if s.GetFilePath() == "" {
			continue
		}
		rel, err := usersecret.Below(f.home, s.GetFilePath())
		if err != nil {
			f.log.Warn("cannot write file of secret", "secret", s.GetName(), "err", err)
			continue
		}
		want[rel] = s
	}
	if len(want) == 0 && len(f.wrote) == 0 {
		return
	}
	root, err := os.OpenRoot(f.home)
	if err != nil {
		f.log.Warn("cannot open home folder for files of secrets", "err", err)
		return
	}
	defer root.Close()
	for _, rel := range slices.Sorted(maps.Keys(f.wrote)) {
		if want[rel] != nil || !filepath.IsLocal(rel) {
			continue
		}
		if err := f.remove(root, rel); err != nil {
			f.log.Warn("cannot remove file of deleted secret", "path", rel, "err", err)
			continue
		}
		delete(f.wrote, rel)
	}
	for _, rel := range slices.Sorted(maps.Keys(want)) {
		if err := f.write(root, rel, want[rel].GetValue()); err != nil {
			f.log.Warn("cannot write file of secret", "secret", want[rel].GetName(), "path", rel, "err", err)
		}
	}
	f.save()
}

func (f *Files) save() {
	if f.record == "" {
		return
	}
	data, err := json.Marshal(f.wrote)
	if err == nil {
		err = os.WriteFile(f.record+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(f.record+".new", f.record)
	}
	if err != nil {
		f.log.Warn("cannot record which files of secrets were written", "err", err)
	}
}

// remove removes a file unless its content is not what the agent wrote.
func (f *Files) remove(root *os.Root, rel string) error {
	sum, err := fileSum(root, rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !slices.Contains(f.wrote[rel], sum):
		f.log.Info("file of deleted secret was changed and stays", "path", rel)
		return nil
	}
	return root.Remove(rel)
}

// write puts a value into a file that only this account can read, completely or not at all. A file that the agent did
// not write is moved aside first.
func (f *Files) write(root *os.Root, rel string, value []byte) error {
	digest := sha256.Sum256(value)
	after := hex.EncodeToString(digest[:])
	before, err := fileSum(root, rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case before == after:
		f.wrote[rel] = []string{after}
		return root.Chmod(rel, 0o600)
	case !slices.Contains(f.wrote[rel], before):
		aside := rel + ".saved-" + f.now().UTC().Format("20060102T150405.000Z")
		if err := root.Rename(rel, aside); err != nil {
			return fmt.Errorf("move former file aside: %w", err)
		}
		f.log.Warn("moved aside a file where a secret goes", "path", rel, "to", aside)
	}
	// Recorded before it is written: if the agent ends in between, the next one knows both contents.
	f.wrote[rel] = append(f.wrote[rel], after)
	f.save()
	if err := replace(root, rel, value); err != nil {
		return err
	}
	f.wrote[rel] = []string{after}
	return nil
}

// replace writes a file beside its destination and renames it.
func replace(root *os.Root, rel string, value []byte) (err error) {
	if dir := path.Dir(rel); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	temp := path.Join(path.Dir(rel), ".secret-"+rand.Text())
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(temp))
		}
	}()
	_, err = file.Write(value)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return root.Rename(temp, rel)
}

// fileSum returns the SHA-256 of a regular file. It returns "", which is no sum, for a symbolic link and for a file
// that is too large to be a secret.
func fileSum(root *os.Root, rel string) (string, error) {
	info, err := root.Lstat(rel)
	switch {
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0 || info.Mode().IsRegular() && info.Size() > usersecret.MaxValue:
		return "", nil
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s exists and is not a file", rel)
	}
	file, err := root.Open(rel)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(file, usersecret.MaxValue+1)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
