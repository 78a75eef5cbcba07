// Package instance asks the cloud that this machine runs in to prove which machine it is. The agent of a machine without a
// token shows the answer to the server: package instanceidentity verifies it there.
//
// Every program of the machine can ask the same. The server therefore admits a machine once for each build, and the
// agent, which asks first, keeps its token.
package instance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Token is the auth of agents that have a token, and prove nothing.
const Token = "token"

const (
	// service is the address at which each of the clouds answers its machines' questions. It is link-local, so no proxy
	// may be asked for it.
	service = "http://169.254.169.254"

	timeout   = 10 * time.Second
	maxAnswer = 64 << 10 // bytes
)

// Options name the services, for machines whose services are elsewhere.
type Options struct {
	// AWS and Google are the addresses of the services: what AWS_EC2_METADATA_SERVICE_ENDPOINT and GCE_METADATA_HOST
	// name in the clouds' own libraries. "" means the usual one.
	AWS, Google string
}

// Prove returns what the server is shown at workspaceagents/AUTH. auth is the coder_agent's attribute and audience the
// server's URL. Prove asks once, and takes 20 s at most.
func Prove(ctx context.Context, auth string, audience *url.URL, opts Options) (any, error) {
	return prove(ctx, auth, audience, opts, service)
}

func prove(ctx context.Context, auth string, audience *url.URL, opts Options, usual string) (any, error) {
	s := services{usual: usual, client: &http.Client{
		Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, Options: opts}
	switch auth {
	case "aws-instance-identity":
		return s.aws(ctx)
	case "azure-instance-identity":
		return s.azure(ctx)
	case "google-instance-identity":
		return s.google(ctx, strings.TrimSuffix(audience.String(), "/"))
	}
	return nil, fmt.Errorf("the agent knows no way %q to prove who it is", auth)
}

type services struct {
	Options

	usual  string // where they are that Options does not name
	client *http.Client
}

// aws asks as version 2 of the instance metadata service requires:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html.
func (s services) aws(ctx context.Context) (any, error) {
	base := strings.TrimSuffix(s.AWS, "/")
	if base == "" {
		base = s.usual
	}
	session, err := s.ask(ctx, http.MethodPut, base+"/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	if err != nil {
		return nil, err
	}
	read := func(name string) (string, error) {
		text, err := s.ask(ctx, http.MethodGet, base+"/latest/dynamic/instance-identity/"+name, "X-aws-ec2-metadata-token", string(session))
		return string(text), err
	}
	var p sdk.AWSInstanceIdentity
	if p.Document, err = read("document"); err != nil {
		return nil, err
	}
	p.Signature, err = read("signature")
	return p, err
}

func (s services) azure(ctx context.Context) (any, error) {
	answer, err := s.ask(ctx, http.MethodGet, s.usual+"/metadata/attested/document?api-version=2021-02-01", "Metadata", "true")
	if err != nil {
		return nil, err
	}
	var p sdk.AzureInstanceIdentity
	if err := json.Unmarshal(answer, &p); err != nil || p.Signature == "" {
		return nil, errors.New("the answer of Azure has no signature")
	}
	return p, nil
}

func (s services) google(ctx context.Context, audience string) (any, error) {
	base := s.usual
	if s.Google != "" {
		base = "http://" + s.Google
	}
	query := url.Values{"audience": {audience}, "format": {"full"}}
	answer, err := s.ask(ctx, http.MethodGet, base+"/computeMetadata/v1/instance/service-accounts/default/identity?"+query.Encode(), "Metadata-Flavor", "Google")
	if err != nil {
		return nil, err
	}
	return sdk.GoogleInstanceIdentity{JSONWebToken: string(bytes.TrimSpace(answer))}, nil
}

// ask returns the answer to one question, which has one header.
func (s services) ask(ctx context.Context, method, address, header, value string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(header, value)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the machine's cloud does not answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the machine's cloud answers %s to %s", resp.Status, req.URL.Path)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer to %s is longer than %d bytes", req.URL.Path, maxAnswer)
	}
	return body, err
}
