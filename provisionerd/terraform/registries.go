package terraform

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/syntax"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// These services of a registry work through a registryProxy.
const (
	modulesService   = "modules.v1"
	providersService = "providers.v1"
)

// maxAnswer bounds an answer of a registry, in bytes. The longest list the versions of a provider.
const maxAnswer = 16 << 20

// registryTimeout bounds one question to a registry.
const registryTimeout = time.Minute

// registries are the hosts to which the operator gave tokens, by TF_TOKEN_* or in Terraform's CLI configuration. Init
// never sees the tokens, because a template's sources decide what programs init runs, and where: git, for instance. A
// registryProxy asks the hosts instead.
type registries struct {
	tokens map[string]string // by host
	// services are the URLs of services that the operator's configuration names, by host and service. The others are
	// discovered.
	services       map[string]map[string]string
	networkMirrors []string // URLs of network mirrors at those hosts
	// transport reaches the registries. Nil means http.DefaultTransport.
	transport http.RoundTripper
}

// hostName returns a host as Terraform compares it.
func hostName(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }

// tokensOfEnvironment returns the tokens of TF_TOKEN_* by host, as Terraform reads these names.
func tokensOfEnvironment(environ []string) map[string]string {
	tokens := map[string]string{}
	for _, entry := range environ {
		name, token, _ := strings.Cut(entry, "=")
		host, found := strings.CutPrefix(name, "TF_TOKEN_")
		if !found || host == "" || token == "" {
			continue
		}
		host = strings.ReplaceAll(strings.ReplaceAll(host, "__", "-"), "_", ".")
		tokens[hostName(host)] = token
	}
	return tokens
}

// takeCredentials removes the credentials, and the folder of plugins that templates would share, from the operator's
// CLI configuration. It returns the rest, for init, the registries that need them, and what does not work, as
// sentences.
func takeCredentials(
	name string, text []byte, tokens map[string]string,
) (rest []byte, r registries, concerns []string, err error) {
	r = registries{tokens: map[string]string{}, services: map[string]map[string]string{}}
	var parser syntax.Parser
	parsed, diags := parser.Config(name, text)
	file, more := parser.Editable(name, text)
	if diags = append(diags, more...); diags.HasErrors() {
		return nil, r, nil, fault.New(fault.Invalid, "cannot read Terraform's CLI configuration: %w", diags)
	}
	body, ok := parsed.Body.(*hclsyntax.Body)
	if !ok {
		return nil, r, nil, fault.New(fault.Invalid, "cannot read Terraform's CLI configuration %s", name)
	}
	for _, block := range body.Blocks {
		if block.Type == "credentials" && len(block.Labels) == 1 {
			r.tokens[hostName(block.Labels[0])] = stringAttribute(block.Body, "token")
		}
	}
	maps.Copy(r.tokens, tokens)
	for _, block := range body.Blocks {
		if block.Type != "host" || len(block.Labels) != 1 || r.tokens[hostName(block.Labels[0])] == "" {
			continue
		}
		services := map[string]string{}
		if attr, ok := block.Body.Attributes["services"]; ok {
			value, diags := attr.Expr.Value(nil)
			if diags.HasErrors() || !value.CanIterateElements() {
				return nil, r, nil, fault.New(fault.Invalid,
					"cannot read the services of %s in Terraform's CLI configuration: %s", block.Labels[0],
					attr.SrcRange)
			}
			for service, where := range value.AsValueMap() {
				if where.Type() == cty.String && where.IsKnown() && !where.IsNull() {
					services[service] = where.AsString()
				}
			}
		}
		r.services[hostName(block.Labels[0])] = services
	}
	for _, setting := range []string{"plugin_cache_dir", "plugin_cache_may_break_dependency_lock_file"} {
		if file.Body().RemoveAttribute(setting) != nil && setting == "plugin_cache_dir" {
			concerns = append(concerns, sharedPlugins(setting+" in "+name))
		}
	}
	for _, block := range file.Body().Blocks() {
		labels := block.Labels()
		switch block.Type() {
		case "credentials":
			file.Body().RemoveBlock(block)
		case "credentials_helper":
			concerns = append(concerns,
				"the credentials_helper in "+name+" has no effect: give tokens of registries by credentials blocks "+
					"or TF_TOKEN_*")
			file.Body().RemoveBlock(block)
		case "host":
			if len(labels) == 1 && r.tokens[hostName(labels[0])] != "" {
				file.Body().RemoveBlock(block)
			}
		}
	}
	for _, block := range body.Blocks {
		if block.Type != "provider_installation" {
			continue
		}
		for _, method := range block.Body.Blocks {
			where, err := url.Parse(stringAttribute(method.Body, "url"))
			if method.Type == "network_mirror" && err == nil && r.tokens[hostName(where.Host)] != "" {
				r.networkMirrors = append(r.networkMirrors, where.String())
			}
		}
	}
	return file.Bytes(), r, concerns, nil
}

// registryProxy answers one init for the registries with tokens. It listens on loopback, where other programs of this
// machine could ask as well, so all its paths begin with a secret that only this init knows:
//
//	/<secret>/<host>/<service>/<path of Terraform's registry protocol>
//	/<secret>/mirror/<number>/<path of Terraform's network mirror protocol>
//
// It adds a host's token to requests to the host's own services, and to nothing that these redirect to. Modules and
// providers themselves are not downloaded through it: as with Terraform alone, they are at URLs that need no token.
type registryProxy struct {
	registries
	secret   string
	ctx      context.Context //nolint:containedctx // of the init that it serves
	http     *http.Server
	serving  sync.WaitGroup
	address  string       // of the registries
	mirror   *mirrorServe // nil without mirrors
	mu       sync.Mutex   // guards found
	found    map[string]map[string]string
	finished context.CancelFunc
}

// serve starts a proxy. The caller must close it.
func (r registries) serve(ctx context.Context) (*registryProxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve registries: %w", err)
	}
	p := &registryProxy{registries: r, secret: rand.Text(), address: listener.Addr().String(),
		found: map[string]map[string]string{}}
	maps.Copy(p.found, r.services)
	p.ctx, p.finished = context.WithCancel(ctx)
	p.http = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	p.serving.Go(func() { _ = p.http.Serve(listener) }) // until close
	if len(r.networkMirrors) > 0 {
		if p.mirror, err = newMirrorServe(p); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *registryProxy) close() {
	p.finished()
	p.http.Close()
	if p.mirror != nil {
		p.mirror.http.Close()
	}
	p.serving.Wait()
}

// config returns the CLI configuration for init: text, with the proxy in place of the registries.
func (p *registryProxy) config(text []byte) ([]byte, error) {
	file, diags := new(syntax.Parser).Editable("terraformrc", text)
	if diags.HasErrors() {
		return nil, fmt.Errorf("write terraform configuration: %w", diags)
	}
	for _, host := range slices.Sorted(maps.Keys(p.tokens)) {
		if p.tokens[host] == "" {
			continue
		}
		services := map[string]cty.Value{}
		for _, service := range []string{modulesService, providersService} {
			if theirs, named := p.services[host]; named && theirs[service] == "" {
				continue
			}
			services[service] = cty.StringVal("http://" + p.address + "/" + p.secret + "/" + host + "/" + service + "/")
		}
		file.Body().AppendNewline()
		block := file.Body().AppendNewBlock("host", []string{host})
		block.Body().SetAttributeValue("services", cty.ObjectVal(services))
	}
	number := 0
	for _, block := range file.Body().Blocks() {
		if block.Type() != "provider_installation" {
			continue
		}
		for _, method := range block.Body().Blocks() {
			attr := method.Body().GetAttribute("url")
			if method.Type() != "network_mirror" || attr == nil || number == len(p.networkMirrors) {
				continue
			}
			if text := string(attr.Expr().BuildTokens(nil).Bytes()); strings.Contains(text, p.networkMirrors[number]) {
				method.Body().SetAttributeValue("url", cty.StringVal(p.mirror.url(number)))
				number++
			}
		}
	}
	if number != len(p.networkMirrors) {
		return nil, errors.New("write terraform configuration: a network mirror was not found again")
	}
	return file.Bytes(), nil
}

// segment is one part of a path that Terraform asks for. None of them begins with a dot.
const segment = `[0-9A-Za-z_-][0-9A-Za-z_.+~:-]*`

var registryPaths = map[string]func() *regexp.Regexp{
	modulesService:   lazyregexp.New(`^(` + segment + `/){3}(versions|` + segment + `/download)$`),
	providersService: lazyregexp.New(`^(` + segment + `/){2}(versions|` + segment + `/download/` + segment + `/` + segment + `)$`),
}

// ServeHTTP implements http.Handler.
func (p *registryProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := p.asked(w, r)
	if !ok {
		return
	}
	host, rest, _ := strings.Cut(rest, "/")
	service, rest, _ := strings.Cut(rest, "/")
	if shape := registryPaths[service]; p.tokens[host] == "" || shape == nil || !shape().MatchString(rest) {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := p.bounded(r)
	defer cancel()
	base, err := p.service(ctx, host, service)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if base == nil {
		http.NotFound(w, r)
		return
	}
	where := base.JoinPath(rest)
	answer, body, err := p.get(ctx, where, p.tokens[host])
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNoContent:
		http.Error(w, http.StatusText(answer.StatusCode), answer.StatusCode)
	case service == modulesService && strings.HasSuffix(rest, "/download"):
		sendModule(w, where, answer, body)
	case service == providersService && !strings.HasSuffix(rest, "/versions"):
		sendJSON(w, body, func(doc map[string]any) {
			for _, key := range []string{"download_url", "shasums_url", "shasums_signature_url"} {
				absolute(doc, key, answer.Request.URL)
			}
		})
	default:
		sendJSON(w, body, func(map[string]any) {})
	}
}

// asked returns the path of a request after the secret, and answers requests without it.
func (p *registryProxy) asked(w http.ResponseWriter, r *http.Request) (rest string, ok bool) {
	secret, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if subtle.ConstantTimeCompare([]byte(secret), []byte(p.secret)) != 1 || r.URL.RawQuery != "" {
		http.NotFound(w, r)
		return "", false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
		return "", false
	}
	return rest, true
}

// bounded returns a context for one question, which ends with the init.
func (p *registryProxy) bounded(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), registryTimeout)
	stop := context.AfterFunc(p.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// service returns the URL of a host's service, or nil if it has none.
func (p *registryProxy) service(ctx context.Context, host, service string) (*url.URL, error) {
	p.mu.Lock()
	found, ok := p.found[host]
	p.mu.Unlock()
	if !ok {
		var err error
		if found, err = p.discover(ctx, host); err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.found[host] = found
		p.mu.Unlock()
	}
	if found[service] == "" {
		return nil, nil
	}
	base, err := url.Parse(found[service])
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, fmt.Errorf("the registry %s has a service %s without a usable URL", host, service)
	}
	return base, nil
}

// discover asks a host for its services: https://developer.hashicorp.com/terraform/internals/remote-service-discovery
func (p *registryProxy) discover(ctx context.Context, host string) (map[string]string, error) {
	answer, body, err := p.get(ctx, &url.URL{Scheme: "https", Host: host, Path: "/.well-known/terraform.json"}, p.tokens[host]) //nolint:bodyclose // get closes it
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusNotFound {
		return map[string]string{}, nil
	}
	var all map[string]json.RawMessage
	if answer.StatusCode != http.StatusOK || json.Unmarshal(body, &all) != nil {
		return nil, fmt.Errorf("%s does not name its services: %s", host, answer.Status)
	}
	services := map[string]string{}
	for _, service := range []string{modulesService, providersService} {
		var text string
		if json.Unmarshal(all[service], &text) != nil || text == "" {
			continue
		}
		where, err := answer.Request.URL.Parse(text)
		if err != nil || where.Scheme != "https" {
			return nil, fmt.Errorf("%s names no https URL for %s", host, service)
		}
		services[service] = where.String()
	}
	return services, nil
}

// authorized adds a token to requests to one origin, and not to others that it redirects to.
type authorized struct {
	scheme, host, token string
	base                http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == a.scheme && r.URL.Host == a.host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.base.RoundTrip(r)
}

// get asks a registry. The answer's body is read and closed.
func (p *registryProxy) get(ctx context.Context, where *url.URL, token string) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("ask registry: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	client := http.Client{Transport: authorized{where.Scheme, where.Host, token,
		cmp.Or(p.transport, http.DefaultTransport)}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("ask registry: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ask registry %s: %w", where.Host, err)
	}
	return answer, body, nil
}

// sendModule answers where a module is. Terraform resolves relative places by the URL that it asked, which is not the
// registry's.
func sendModule(w http.ResponseWriter, asked *url.URL, answer *http.Response, body []byte) {
	place := answer.Header.Get("X-Terraform-Get")
	var doc struct {
		Location string `json:"location"`
	}
	if answer.StatusCode == http.StatusOK && json.Unmarshal(body, &doc) == nil && doc.Location != "" {
		place = doc.Location
	}
	if strings.HasPrefix(place, "/") || strings.HasPrefix(place, "./") || strings.HasPrefix(place, "../") {
		where, err := asked.Parse(place)
		if err != nil {
			http.Error(w, "the registry names no usable place of the module", http.StatusBadGateway)
			return
		}
		place = where.String()
	}
	w.Header().Set("X-Terraform-Get", place)
	w.WriteHeader(http.StatusNoContent)
}

// absolute replaces a relative URL in an answer.
func absolute(doc map[string]any, key string, base *url.URL) {
	if text, ok := doc[key].(string); ok {
		if where, err := base.Parse(text); err == nil {
			doc[key] = where.String()
		}
	}
}

// sendJSON passes on an answer, changed by edit.
func sendJSON(w http.ResponseWriter, body []byte, edit func(map[string]any)) {
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.UseNumber()
	var doc map[string]any
	if err := decoder.Decode(&doc); err != nil {
		http.Error(w, "the registry's answer is not JSON", http.StatusBadGateway)
		return
	}
	edit(doc)
	text, err := json.Marshal(doc)
	if err != nil {
		http.Error(w, "the registry's answer cannot be passed on", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the client has gone
}

// pluginCache is the variable for plugin_cache_dir. Neither has an effect: the folder would be shared by templates
// whose init writes into it, so one could put its own provider there under another's name, and replace what the
// versions of others link to. The daemon shares equal files itself (share.go).
const pluginCache = "TF_PLUGIN_CACHE_DIR"

func sharedPlugins(setting string) string {
	return setting + " has no effect: templates could change each other's providers there; name a filesystem_mirror " +
		"or a network_mirror to save downloads"
}

const emptyCLIConfig = "disable_checkpoint = true\n"

// stringAttribute returns the value of a literal attribute, or "".
func stringAttribute(body *hclsyntax.Body, name string) string {
	attr, ok := body.Attributes[name]
	if !ok {
		return ""
	}
	return template.Literal(attr.Expr)
}
