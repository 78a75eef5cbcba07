//go:build unix

package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// forgotten is for how long a prepared folder that no test process uses is kept.
const forgotten = 7 * 24 * time.Hour

// provide makes a data folder at data with the template in it, which takes a second or two of a processor. The first
// process of an account does the work, and keeps a copy for the next ones: a run of all tests starts about fifty
// servers.
func provide(in embedded.Install, data string, settings []string) error {
	key, err := fingerprint(in)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	shelf := filepath.Join(cache, "codermesh-dbtest")
	if err == nil {
		err = os.MkdirAll(shelf, 0o700)
	}
	if err != nil { // there is no home, or it cannot be written
		return prepare(in, data, settings)
	}
	lock, err := os.OpenFile(filepath.Join(shelf, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the lock
	// Waits until another process has prepared the folder.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	kept := filepath.Join(shelf, key)
	if _, err := os.Stat(kept); err == nil {
		if err := errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_SH), os.Chtimes(kept, time.Now(), time.Now())); err != nil {
			return err
		}
		return copyFolder(kept, data)
	}
	if err := prepare(in, data, settings); err != nil {
		return err
	}
	if err := sweep(shelf); err != nil {
		return err
	}
	unfinished := kept + ".new"
	if err := os.RemoveAll(unfinished); err != nil { // of a process that was killed
		return err
	}
	if err := copyFolder(data, unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, kept)
}

// fingerprint names what a prepared folder depends on: the migrations, and the programs that made and will run it.
func fingerprint(in embedded.Install) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, in.BinDir, in.Version, os.Getuid())
	err := fs.WalkDir(database.Migrations(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(database.Migrations(), name)
		fmt.Fprintf(hash, "%s %d %s\n", name, len(text), text)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)[:16]), err
}

// sweep removes folders that no process has used for long.
func sweep(shelf string) error {
	entries, err := os.ReadDir(shelf)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if entry.IsDir() && time.Since(info.ModTime()) > forgotten {
			if err := os.RemoveAll(filepath.Join(shelf, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyFolder copies files as they are: to search them for zeros would take twice its time.
func copyFolder(from, to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy a prepared database: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// prepare makes a data folder with the template, and ends the server that it needs for that.
func prepare(in embedded.Install, data string, settings []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := in.InitDB(ctx, data, "", false); err != nil {
		return err
	}
	pg, err := launch(in, data, settings)
	if err != nil {
		return err
	}
	err = func() error {
		if err := run(ctx, address(data, "postgres"), "CREATE DATABASE "+template+" TEMPLATE template0"); err != nil {
			return fmt.Errorf("create template: %w", err)
		}
		db, err := database.Open(ctx, address(data, template), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		db.Close()
		return nil
	}()
	return errors.Join(err, pg.end())
}
