package slim

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// platforms are those that a release has slim programs for.
var platforms = []string{
	"coder-linux-amd64", "coder-linux-arm64", "coder-linux-armv7", "coder-darwin-amd64", "coder-darwin-arm64",
	"coder-windows-amd64.exe", "coder-windows-arm64.exe",
}

const (
	maxList    = 64 << 10  // bytes
	maxProgram = 256 << 20 // bytes
	// fetchTimeout bounds a fetch, and afterFailure is how long a failed one is not tried again.
	fetchTimeout = 5 * time.Minute
	afterFailure = time.Minute
)

// Mirror is where a server fetches the slim programs that it was built without: a folder with programs and SHA256SUMS,
// such as /bin of another server.
type Mirror struct {
	URL *url.URL
	// Client fetches. Nil means one that follows redirects, but from HTTPS to HTTPS only.
	Client *http.Client
	Logger *slog.Logger
	// Key is the public key of releases, in PEM. If it is set, only programs of a signed release are taken. Empty: the
	// list is believed as it is, so the mirror must be reached by HTTPS or on this machine.
	Key string
}

// ParseMirror returns the address of a mirror, nil for "". What it sends is run on users' machines, so it must prove
// who it is.
func ParseMirror(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && local(u.Hostname())) {
		return nil, fault.New(fault.Invalid, "--release-mirror-url cannot be %q", text).
			WithDetail("It must begin with https://, or with http:// for a mirror on this machine, and have no password or query.")
	}
	return u, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// mirrored are the programs of a mirror.
type mirrored struct {
	Mirror
	dir  string
	turn chan struct{} // holds a value while a program is fetched

	mu     sync.Mutex // guards the fields below
	have   map[string]*binary
	failed map[string]failure
}

// known returns a program that was fetched, or why it cannot be fetched now, or neither.
func (m *mirrored) known(name string) (*binary, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.failed[name]; m.have[name] == nil && time.Since(before.at) < afterFailure {
		return nil, before.err
	}
	return m.have[name], nil
}

type failure struct {
	at  time.Time
	err error
}

// UseMirror makes the server fetch programs that it does not have when they are requested. Call it before the first
// request.
func (b *Binaries) UseMirror(m Mirror) {
	if m.Client == nil {
		m.Client = &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) >= 10 || req.URL.Scheme != m.URL.Scheme {
				return fmt.Errorf("the mirror leads to %s, which is not followed", req.URL.Redacted())
			}
			return nil
		}}
	}
	b.mirror = &mirrored{
		Mirror: m, dir: b.dir, turn: make(chan struct{}, 1), have: map[string]*binary{}, failed: map[string]failure{},
	}
}

// Missing returns the slim programs of a release that the server has not been built with.
func (b *Binaries) Missing() (names []string) {
	for _, name := range platforms {
		if b.each[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// get returns a program of the mirror, and nil if no release has it. It blocks while it fetches, one program at a time.
func (m *mirrored) get(ctx context.Context, name string) (*binary, error) {
	if m == nil || !slices.Contains(platforms, name) {
		return nil, nil
	}
	if bin, err := m.known(name); bin != nil || err != nil {
		return bin, err
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if bin, err := m.known(name); bin != nil || err != nil { // another request has fetched it meanwhile
		return bin, err
	}
	bounded, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	bin, err := m.fetch(bounded, name)
	if err != nil {
		if ctx.Err() != nil { // the client has left
			return nil, ctx.Err()
		}
		m.Logger.WarnContext(ctx, "cannot fetch a program from the release mirror", "what", name, "err", err)
		err = fault.New(fault.Unavailable, "The program %s cannot be fetched from the release mirror: %w", name, err).
			WithDetail("Try again in a minute. The server's log has the reason.")
		m.mu.Lock()
		m.failed[name] = failure{time.Now(), err}
		m.mu.Unlock()
		return nil, err
	}
	m.Logger.InfoContext(ctx, "fetched a program from the release mirror", "what", name, "bytes", bin.size)
	m.mu.Lock()
	m.have[name] = bin
	m.mu.Unlock()
	return bin, nil
}

// fetch downloads a program, and keeps it if it is the one that the mirror's list names.
func (m *mirrored) fetch(ctx context.Context, name string) (*binary, error) {
	want, err := m.sum(ctx, name)
	if err != nil {
		return nil, err
	}
	body, err := m.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	temp, err := os.CreateTemp(m.dir, "fetch-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(temp.Name()) // after the rename there is nothing left to remove
	defer temp.Close()
	got, size, err := sum(io.TeeReader(io.LimitReader(body, maxProgram+1), temp))
	switch {
	case err != nil:
		return nil, fmt.Errorf("download %s: %w", name, err)
	case size > maxProgram:
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxProgram)
	case got.sha256 != want:
		return nil, fmt.Errorf("%s is not the program that the list names: its SHA-256 is %s", name, got.sha256)
	}
	if err := temp.Close(); err != nil {
		return nil, err
	}
	bin := &binary{path: filepath.Join(m.dir, name+".mirror."+got.sha1+"."+got.sha256), sums: got, size: size}
	bin.once.Do(func() {}) // it is ready
	return bin, os.Rename(temp.Name(), bin.path)
}

// sum returns the SHA-256 that the mirror's list has for a program.
func (m *mirrored) sum(ctx context.Context, name string) (string, error) {
	list := checksums
	if m.Key != "" {
		list = signedList
	}
	text, err := m.read(ctx, list)
	if err != nil {
		return "", err
	}
	if m.Key != "" {
		lines, err := m.read(ctx, signatures)
		if err != nil {
			return "", err
		}
		if err := verify(m.Key, text, lines); err != nil {
			return "", err
		}
	}
	for line := range strings.Lines(string(text)) {
		sum, of, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "  ")
		if ok && of == name && len(sum) == 2*sha256.Size {
			return strings.ToLower(sum), nil
		}
	}
	return "", fmt.Errorf("%s of the mirror has no %s", list, name)
}

func (m *mirrored) read(ctx context.Context, name string) ([]byte, error) {
	body, err := m.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxList+1))
	if err == nil && len(text) > maxList {
		err = fmt.Errorf("it has more than %d bytes", maxList)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

func (m *mirrored) open(ctx context.Context, name string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL.JoinPath(name).String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := m.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s answered %s", m.URL.JoinPath(name), resp.Status)
	}
	return resp.Body, nil
}

// verify checks that one of the signatures, each a line of base64, is that of the list by one of the keys.
func verify(keys string, list, lines []byte) error {
	digest := sha256.Sum256(list)
	rest := []byte(keys)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return errors.New("the list of the mirror is not signed with the key of releases")
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := parsed.(*ecdsa.PublicKey)
		if err != nil || !ok {
			return errors.New("the key of releases is not an ECDSA key")
		}
		for line := range bytes.Lines(lines) {
			signature, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(line)))
			if err == nil && ecdsa.VerifyASN1(key, digest[:], signature) {
				return nil
			}
		}
	}
}
