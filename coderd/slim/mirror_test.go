package slim_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/slim"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

const forMac = "a program for macOS"

// mirror serves files, and notes what was asked for.
type mirror struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string // guarded by mu
	asked []string          // guarded by mu
}

func newMirror(t *testing.T, files map[string]string) *mirror {
	m := &mirror{files: files}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/bin/")
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked = append(m.asked, name)
		text, ok := m.files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) taken() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	return asked
}

// use returns the binaries of a server that fetches from the mirror.
func (m *mirror) use(t *testing.T, key string) *slim.Binaries {
	t.Helper()
	u, err := url.Parse(m.URL + "/bin")
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, t.TempDir(), "https://coder.example.com")
	b.UseMirror(slim.Mirror{URL: u, Client: m.Client(), Logger: slog.New(slog.DiscardHandler), Key: key})
	return b
}

func line(text, name string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:]) + "  " + name + "\n"
}

// TestMirror: a server fetches what it was built without once, and serves it like its own.
func TestMirror(t *testing.T) {
	t.Parallel()
	const name = "coder-darwin-arm64"
	m := newMirror(t, map[string]string{"SHA256SUMS": line("x", "coder-linux-arm64") + line(forMac, name), name: forMac})
	b := m.use(t, "")
	for range 2 {
		resp, err := get(t, b, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || string(body) != forMac || resp.Header.Get("ETag") == "" || resp.Header.Get("X-Original-Content-Length") != "19" {
			t.Errorf("got %d, %q, %v", resp.StatusCode, body, resp.Header)
		}
	}
	if got := m.taken(); strings.Join(got, " ") != "SHA256SUMS "+name {
		t.Errorf("the mirror was asked for %q", got)
	}
	if resp, err := get(t, b, name+".sha256", nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("its checksum: %v, %v", resp.StatusCode, err)
	}
	// What no release has is not asked for: anyone may request any name.
	for _, other := range []string{"coder-plan9-mips", "../etc/passwd", "coder-full-darwin-arm64", name + ".asc"} {
		if resp, err := get(t, b, other, nil); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %v, %v", other, resp.StatusCode, err)
		}
	}
	if got := m.taken(); len(got) != 0 {
		t.Errorf("the mirror was asked for %q", got)
	}
}

// TestSlowMirror: while one program is fetched, those that were fetched before are served.
func TestSlowMirror(t *testing.T) {
	t.Parallel()
	const name, slow = "coder-darwin-arm64", "coder-windows-amd64.exe"
	begun, release := make(chan struct{}), make(chan struct{})
	files := map[string]string{"SHA256SUMS": line(forMac, name) + line("late", slow), name: forMac, slow: "late"}
	m := &mirror{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file := strings.TrimPrefix(r.URL.Path, "/bin/")
		if file == slow {
			close(begun)
			<-release
		}
		_, _ = io.WriteString(w, files[file])
	}))}
	t.Cleanup(m.Close)
	var once sync.Once
	end := func() { once.Do(func() { close(release) }) }
	t.Cleanup(end) // before the mirror is closed, which waits for its answers
	b := m.use(t, "")
	status := func(name string) <-chan int {
		got := make(chan int, 1)
		go func() {
			resp, err := get(t, b, name, nil)
			if err != nil {
				t.Error(err)
			}
			got <- resp.StatusCode
		}()
		return got
	}
	if got := testwait.For(t, "a program", status(name)); got != http.StatusOK {
		t.Fatalf("the program: %d", got)
	}
	other := status(slow)
	testwait.For(t, "the request for the slow program", begun)
	if got := testwait.For(t, "the program that is there", status(name)); got != http.StatusOK {
		t.Errorf("the program that is there: %d", got)
	}
	end()
	if got := testwait.For(t, "the slow program", other); got != http.StatusOK {
		t.Errorf("the slow program: %d", got)
	}
}

// TestHostileMirror: programs that are not those of the list, or whose list is not signed by the key of releases, are neither served nor
// asked for again at once.
func TestHostileMirror(t *testing.T) {
	t.Parallel()
	const name = "coder-darwin-arm64"
	key, pub := releaseKey(t)
	_, foreign := releaseKey(t)
	list := line(forMac, name)
	digest := sha256.Sum256([]byte(list))
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signed := map[string]string{"SHA256SUMS.release": list, "SHA256SUMS.release.sig": base64.StdEncoding.EncodeToString(signature) + "\n", name: forMac}
	with := func(change map[string]string) map[string]string {
		out := map[string]string{}
		for _, files := range []map[string]string{signed, change} {
			for name, text := range files {
				out[name] = text
			}
		}
		return out
	}
	for what, tt := range map[string]struct {
		files map[string]string
		key   string
		good  bool
	}{
		"signed":                 {signed, pub, true},
		"signed, among two keys": {signed, foreign + pub, true},
		"another key":            {signed, foreign, false},
		"another program":        {with(map[string]string{name: "a trojan"}), pub, false},
		"another list":           {with(map[string]string{"SHA256SUMS.release": line("a trojan", name), name: "a trojan"}), pub, false},
		"no signature":           {map[string]string{"SHA256SUMS": list, "SHA256SUMS.release": list, name: forMac}, pub, false},
		"an unsigned list":       {map[string]string{"SHA256SUMS": list, name: forMac}, pub, false},
		"not in the list":        {map[string]string{"SHA256SUMS": line(forMac, "coder-linux-arm64"), name: forMac}, "", false},
		"a long list":            {map[string]string{"SHA256SUMS": strings.Repeat("#", 1<<17) + "\n" + list, name: forMac}, "", false},
		"no program":             {map[string]string{"SHA256SUMS": list}, "", false},
	} {
		m := newMirror(t, tt.files)
		b := m.use(t, tt.key)
		resp, err := get(t, b, name, nil)
		if tt.good {
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %v, %v", what, resp.StatusCode, err)
			}
			continue
		}
		if fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: got %v", what, err)
		}
		m.taken()
		if _, again := get(t, b, name, nil); fault.CodeOf(again) != fault.Unavailable || len(m.taken()) != 0 {
			t.Errorf("%s: the second request got %v", what, again)
		}
	}
}

func releaseKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

func TestParseMirror(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"": true, "https://mirror.example.com/bin": true, "http://127.0.0.1:8080/bin": true, "http://localhost/": true, "http://[::1]/": true,
		"http://mirror.example.com/bin": false, "https://": false, "ftp://mirror.example.com": false, "https://u:p@mirror.example.com/": false,
		"https://mirror.example.com/?x=y": false, "mirror.example.com": false, "http://127.0.0.1.example.com/": false,
	} {
		if _, err := slim.ParseMirror(text); (err == nil) != good {
			t.Errorf("%q: %v, want good %t", text, err, good)
		}
	}
}
