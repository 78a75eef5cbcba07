package bootstrap_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/bootstrap"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// maker signs releases.
type maker struct {
	key    *ecdsa.PrivateKey
	public string // in PEM
}

func newMaker(t *testing.T) maker {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return maker{key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

// sign returns a line of SHA256SUMS.release.sig.
func (m maker) sign(t *testing.T, list string) string {
	t.Helper()
	digest := sha256.Sum256([]byte(list))
	signature, err := m.key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature) + "\n"
}

// sums lists a program as that of a platform.
func sums(program, arch string) string {
	return fmt.Sprintf("%x  coder-linux-%s\n", sha256.Sum256([]byte(program)), arch)
}

// network answers as the server does, or as a proxy between them.
type network struct{ program, list, signatures string }

func (n network) serve(w http.ResponseWriter, path string) bool {
	text, ok := map[string]string{
		"/bin/coder-linux-amd64": n.program, "/bin/SHA256SUMS.release": n.list, "/bin/SHA256SUMS.release.sig": n.signatures,
	}[path]
	if ok && text != "" {
		fmt.Fprint(w, text)
	}
	return ok && text != ""
}

// TestSigned: a script with a release's key runs what the makers of the release signed for its platform, whatever else the network serves,
// and reports what it refused.
func TestSigned(t *testing.T) {
	t.Parallel()
	const owned = "#!/bin/sh\necho agent=owned\n"
	release, thief := newMaker(t), newMaker(t)
	list := sums(agent, "arm64") + sums(agent, "amd64")
	honest := network{agent, list, release.sign(t, list)}
	for name, hostile := range map[string]network{
		"another program":                      {owned, list, honest.signatures},
		"another program, with its own list":   {owned, sums(owned, "amd64"), honest.signatures},
		"a list that the attacker signed":      {owned, sums(owned, "amd64"), thief.sign(t, sums(owned, "amd64"))},
		"a line that is added to the list":     {owned, list + sums(owned, "amd64"), honest.signatures},
		"a program of another platform":        {owned, sums(owned, "arm64"), release.sign(t, sums(owned, "arm64"))},
		"no signature":                         {owned, sums(owned, "amd64"), ""},
		"a page instead of the signature":      {owned, sums(owned, "amd64"), "<!doctype html>\n<title>Sign in</title>\n"},
		"no list, as of a server that we made": {owned, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spoiled atomic.Bool // until the script has reported what it got
			spoiled.Store(true)
			reported := make(chan string, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					text := new(strings.Builder)
					_ = r.Write(text)
					spoiled.Store(false)
					reported <- text.String()
					return
				}
				answers := honest
				if spoiled.Load() {
					answers = hostile
				}
				if !answers.serve(w, r.URL.Path) {
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(server.Close)
			lines := run(t, bootstrap.WithKey("linux", "amd64", release.public), []string{"dash"}, server.URL, os.Getenv("PATH"))
			if got := until(t, lines, "agent="); !strings.Contains(got, "agent=agent ") {
				t.Errorf("ran %q", got)
			}
			if got := testwait.For(t, "the report", reported); !strings.Contains(got, "The agent cannot be fetched: it has no signature") {
				t.Errorf("report %q", got)
			}
		})
	}
}

// TestSignedEverywhere: what is signed runs with each shell and downloader, while a release changes its key as well. Without openssl it
// runs unverified, and the log says so.
func TestSignedEverywhere(t *testing.T) {
	t.Parallel()
	old, next := newMaker(t), newMaker(t)
	list := sums(agent, "amd64")
	both := network{agent, list, next.sign(t, list) + old.sign(t, list)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !both.serve(w, r.URL.Path) {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal(err)
	}
	for name, shell := range shells(t) {
		for _, downloader := range []string{"curl", "wget", "busybox"} {
			t.Run(name+" with "+downloader, func(t *testing.T) {
				t.Parallel()
				path := tools(t, downloader)
				lines := run(t, bootstrap.WithKey("linux", "amd64", old.public), shell, server.URL, path)
				until(t, lines, "openssl is not installed here")
				until(t, lines, "agent=agent ")
				if err := os.Symlink(openssl, filepath.Join(path, "openssl")); err != nil {
					t.Fatal(err)
				}
				lines = run(t, bootstrap.WithKey("linux", "amd64", old.public), shell, server.URL, path)
				for lines.Scan() && !strings.Contains(lines.Text(), "agent=agent ") {
					t.Errorf("line %q", lines.Text()) // curl and wget print nothing else
				}
			})
		}
	}
}
