package webdial_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/webdial"
)

// A process reads the environment's proxy once, so the other half of the tests runs in a process of its own.
const childURL, childRoots = "WEBDIAL_TEST_URL", "WEBDIAL_TEST_ROOTS"

func TestMain(m *testing.M) {
	url := os.Getenv(childURL)
	if url == "" {
		os.Exit(m.Run())
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(os.Getenv(childRoots)))
	for _, t := range []*http.Transport{webdial.Transport(&tls.Config{RootCAs: roots}), webdial.Upgrader(&tls.Config{RootCAs: roots})} {
		req, _ := http.NewRequest(http.MethodGet, url, nil)
		resp, err := t.RoundTrip(req)
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		io.Copy(os.Stdout, resp.Body)
		resp.Body.Close()
	}
}

// connectProxy forwards CONNECT requests of ada to one address, whatever they request, and records what they requested.
func connectProxy(t *testing.T, to string) (addr string, asked chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = make(chan string, 10)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:s3cret"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				if req.Method != http.MethodConnect || req.Header.Get("Proxy-Authorization") != want {
					io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
					return
				}
				asked <- req.Host
				far, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer far.Close()
				io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				go io.Copy(far, in)
				io.Copy(c, far)
			}()
		}
	}()
	return l.Addr().String(), asked
}

func TestProxy(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	t.Cleanup(web.Close)
	addr, asked := connectProxy(t, web.Listener.Addr().String())
	for name, c := range map[string]struct {
		url, proxy, no string
		want           string // of the output
		asked          int    // how often the proxy was asked
	}{
		"by the proxy":         {"https://example.com/", "http://ada:s3cret@" + addr, "", "hellohello", 2},
		"a wrong password":     {"https://example.com/", "http://ada:wrong@" + addr, "", "Proxy Authentication Required", 0},
		"not for this host":    {web.URL, "http://ada:s3cret@" + addr, "127.0.0.1", "hellohello", 0},
		"not for this network": {web.URL, "http://ada:s3cret@" + addr, "127.0.0.0/8", "hellohello", 0},
		"no proxy":             {web.URL, "", "", "hellohello", 0},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childURL+"="+c.url, childRoots+"="+pemOf(web.Certificate()), "HTTPS_PROXY="+c.proxy, "NO_PROXY="+c.no)
		out, _ := cmd.Output()
		if !strings.Contains(string(out), c.want) {
			t.Errorf("%s: got %q, want %q", name, out, c.want)
		}
		got := 0
		for len(asked) > 0 {
			if host := <-asked; host != "example.com:443" {
				t.Errorf("%s: the proxy was asked for %s", name, host)
			}
			got++
		}
		if got != c.asked {
			t.Errorf("%s: the proxy was asked %d times, want %d", name, got, c.asked)
		}
	}
}

func pemOf(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}
