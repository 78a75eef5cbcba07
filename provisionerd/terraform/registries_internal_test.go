package terraform

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asked records requests and the tokens that they had.
type asked struct {
	mu   sync.Mutex
	with map[string]string // guarded by mu: Authorization by host and path
}

func (a *asked) record(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.with == nil {
		a.with = map[string]string{}
	}
	a.with[r.Host+r.URL.Path] = r.Header.Get("Authorization")
}

// registryServer starts a registry that answers who has its token. It returns its address.
func registryServer(t *testing.T, asked *asked, stranger string) (own string) {
	t.Helper()
	registry := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.record(r)
		if r.Header.Get("Authorization") != "Bearer TOKEN" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/.well-known/terraform.json":
			fmt.Fprint(w, `{"modules.v1":"/m/","providers.v1":"`+own+`/p/"}`)
		case "/m/a/b/c/versions":
			fmt.Fprint(w, `{"modules":[]}`)
		case "/m/a/b/c/1.0.0/download":
			w.Header().Set("X-Terraform-Get", "./module.tgz//sub?archive=tgz")
			w.WriteHeader(http.StatusNoContent)
		case "/m/a/b/c/2.0.0/download":
			fmt.Fprint(w, `{"location":"git::https://git.example.com/x.git"}`)
		case "/m/a/b/moved/versions":
			http.Redirect(w, r, stranger+"/versions", http.StatusFound)
		case "/p/a/b/1.0.0/download/linux/amd64":
			fmt.Fprint(w, `{"download_url":"b.zip","shasums_url":"/sums","shasums_signature_url":"https://elsewhere.example/sig","n":12345678901234567890}`)
		case "/mirror/h.example/a/b/1.0.0.json":
			fmt.Fprint(w, `{"archives":{"linux_amd64":{"url":"b.zip"}}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(registry.Close)
	own = registry.URL
	return own
}

// get returns the status of an answer, and where it leads or what it holds. The address is asked as it is written: a client would clean its path.
func get(t *testing.T, client *http.Client, path string) string {
	t.Helper()
	where, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(&http.Request{Method: http.MethodGet, URL: where})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(answer.StatusCode, " ", answer.Header.Get("X-Terraform-Get")+strings.TrimSpace(string(body)))
}

// TestRegistryProxy asks a proxy as init, and as others on the machine.
func TestRegistryProxy(t *testing.T) {
	t.Parallel()
	var got asked
	stranger := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.record(r)
		fmt.Fprint(w, `{"from":"stranger"}`)
	}))
	t.Cleanup(stranger.Close)
	own := registryServer(t, &got, stranger.URL)
	host := strings.TrimPrefix(own, "https://")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	p, err := registries{tokens: map[string]string{host: "TOKEN"}, networkMirrors: []string{own + "/mirror/"}, transport: transport}.serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	base, mirror := "http://"+p.address+"/"+p.secret+"/"+host, strings.TrimSuffix(p.mirror.url(0), "/")
	client := &http.Client{Transport: transport}
	for path, want := range map[string]string{
		base + "/modules.v1/a/b/c/versions":       `200 {"modules":[]}`,
		base + "/modules.v1/a/b/c/1.0.0/download": "204 " + own + "/m/a/b/c/1.0.0/module.tgz//sub?archive=tgz",
		base + "/modules.v1/a/b/c/2.0.0/download": "204 git::https://git.example.com/x.git",
		base + "/modules.v1/a/b/moved/versions":   `200 {"from":"stranger"}`,
		base + "/modules.v1/a/b/none/versions":    "404 Not Found",
		base + "/providers.v1/a/b/1.0.0/download/linux/amd64": `200 {"download_url":"` + own + `/p/a/b/1.0.0/download/linux/b.zip","n":12345678901234567890,` +
			`"shasums_signature_url":"https://elsewhere.example/sig","shasums_url":"` + own + `/sums"}`,
		mirror + "/h.example/a/b/1.0.0.json": `200 {"archives":{"linux_amd64":{"url":"` + own + `/mirror/h.example/a/b/b.zip"}}}`,
		// not the protocol, or not this init
		base + "/modules.v1/a/b/c/other":                                                    "404 404 page not found",
		base + "/modules.v1/../../admin/b/c/versions":                                       "404 404 page not found",
		base + "/modules.v1/a/%2e%2e/c/versions":                                            "404 404 page not found",
		base + "/modules.v1/a/b/c/versions?x=y":                                             "404 404 page not found",
		base + "/state.v2/a/b/versions":                                                     "404 404 page not found",
		"http://" + p.address + "/" + p.secret + "/other.example/modules.v1/a/b/c/versions": "404 404 page not found",
		"http://" + p.address + "/" + host + "/modules.v1/a/b/c/versions":                   "404 404 page not found",
		"http://" + p.address + "/wrong/" + host + "/modules.v1/a/b/c/versions":             "404 404 page not found",
		strings.Replace(mirror, p.secret, "wrong", 1) + "/h.example/a/b/1.0.0.json":         "404 404 page not found",
		mirror + "/h.example/a/b/../1.0.0.json":                                             "404 404 page not found",
		strings.Replace(mirror, "/mirror/0", "/mirror/1", 1) + "/h.example/a/b/1.0.0.json":  "404 404 page not found",
	} {
		if text := get(t, client, path); text != want {
			t.Errorf("%s\n got %s\nwant %s", path, text, want)
		}
	}
	answer, err := http.Post(base+"/modules.v1/a/b/c/versions", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", answer.Status)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if token := got.with[strings.TrimPrefix(stranger.URL, "https://")+"/versions"]; token != "" {
		t.Errorf("another host got %q", token)
	}
	for path := range got.with {
		if strings.Contains(path, "..") || strings.Contains(path, "admin") {
			t.Errorf("the registry was asked for %s", path)
		}
	}
}

// TestTakeCredentials checks that nothing secret is left for init.
func TestTakeCredentials(t *testing.T) {
	t.Parallel()
	rest, r, concerns, err := takeCredentials("terraformrc", []byte(`
plugin_cache_dir = "/var/cache/plugins"
credentials "Registry.example.com" {
  token = "SECRET-1"
}
credentials "mirror.example.com" { token = "SECRET-2" }
credentials_helper "vault" {
  args = ["--token", "SECRET-3"]
}
host "registry.example.com" {
  services = { "modules.v1" = "https://modules.example.com/v1/" }
}
host "open.example.com" {
  services = { "modules.v1" = "https://open.example.com/v1/" }
}
provider_installation {
  network_mirror { url = "https://mirror.example.com/providers/" }
  direct {}
}
`), map[string]string{"registry.example.com": "SECRET-4"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(rest), "SECRET") || strings.Contains(string(rest), "credentials") || strings.Contains(string(rest), "modules.example.com") {
		t.Errorf("init would see:\n%s", rest)
	}
	if strings.Contains(string(rest), "plugin_cache_dir") || !strings.Contains(string(rest), "open.example.com") {
		t.Errorf("init has another's settings:\n%s", rest)
	}
	if diff := cmp.Diff(map[string]string{"registry.example.com": "SECRET-4", "mirror.example.com": "SECRET-2"}, r.tokens); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]map[string]string{"registry.example.com": {"modules.v1": "https://modules.example.com/v1/"}}, r.services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if len(concerns) != 2 || !strings.Contains(concerns[0], "plugin_cache_dir in terraformrc has no effect") || !strings.Contains(concerns[1], "credentials_helper in terraformrc has no effect") {
		t.Errorf("concerns %q", concerns)
	}
	p, err := r.serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	config, err := p.config(rest)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{p.mirror.url(0), `host "registry.example.com"`, "http://" + p.address + "/" + p.secret + "/registry.example.com/modules.v1/"} {
		if !strings.Contains(string(config), want) {
			t.Errorf("init's configuration lacks %s:\n%s", want, config)
		}
	}
	if strings.Contains(string(config), "registry.example.com/providers.v1") || strings.Contains(string(config), "SECRET") {
		t.Errorf("init's configuration:\n%s", config)
	}
	if _, _, _, err := takeCredentials("terraformrc", []byte("credentials \"x\" {\n  token = \n}\n"), nil); err == nil || !strings.Contains(err.Error(), "terraformrc:") {
		t.Errorf("a mistake: %v, want a place", err)
	}
}

func TestTokensOfEnvironment(t *testing.T) {
	t.Parallel()
	got := tokensOfEnvironment([]string{"TF_TOKEN_registry_my__corp_com=a", "TF_TOKEN_X_example=b", "TF_TOKEN_=c", "TF_TOKEN_empty=", "TF_REGISTRY_CLIENT_TIMEOUT=1"})
	if diff := cmp.Diff(map[string]string{"registry.my-corp.com": "a", "x.example": "b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
