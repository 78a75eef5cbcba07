package instanceidentity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// Google's issuer and the address of its keys: https://accounts.google.com/.well-known/openid-configuration.
const (
	googleIssuer = "https://accounts.google.com"
	googleKeys   = "https://www.googleapis.com/oauth2/v3/certs"
)

const (
	maxKeys = 64 << 10 // bytes of the keys
	// keysPause is how long keys are not fetched again for a token of an unknown one.
	keysPause = time.Minute
)

var googleID = lazyregexp.New(`^[0-9]{1,20}$`)

type googleProof struct {
	instance Instance
	token    *jwt.JSONWebToken
}

// ParseGoogle reads a token that a machine has got from instance/service-accounts/default/identity, with format=full.
// It returns fault.Invalid for anything else.
func ParseGoogle(token string) (Proof, error) {
	if len(token) > maxText {
		return nil, errForm(errTooLong)
	}
	parsed, err := jwt.ParseSigned(strings.TrimSpace(token), []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return nil, errForm(err)
	}
	var c struct {
		jwt.Claims

		Google struct {
			Engine struct {
				InstanceID string `json:"instance_id"`
				ProjectID  string `json:"project_id"`
			} `json:"compute_engine"`
		} `json:"google"`
	}
	if err := parsed.UnsafeClaimsWithoutVerification(&c); err != nil {
		return nil, errForm(err)
	}
	engine := c.Google.Engine
	if !googleID().MatchString(engine.InstanceID) || engine.ProjectID == "" || c.IssuedAt == nil || *c.IssuedAt <= 0 {
		return nil, errForm(errors.New("the token needs google.compute_engine: ask for it with format=full"))
	}
	return &googleProof{
		Instance{Auth: Google, ID: engine.InstanceID, Account: engine.ProjectID, At: c.IssuedAt.Time()}, parsed,
	}, nil
}

func (p *googleProof) Claim() Instance { return p.instance }

func (p *googleProof) verify(ctx context.Context, v *Verifier) error {
	if err := v.recent(p.instance.At); err != nil {
		return err
	}
	keys, err := v.googleKeys(ctx, p.token.Headers[0].KeyID)
	if err != nil {
		return fault.New(fault.Unavailable, "Google's keys cannot be fetched now: %w.", err).
			WithDetail("A server without the internet needs them in --google-identity-keys-file.")
	}
	var c jwt.Claims
	if err := p.token.Claims(keys, &c); err != nil {
		return refused("%w", err)
	}
	want := jwt.Expected{Issuer: googleIssuer, AnyAudience: jwt.Audience{v.opts.Audience}, Time: v.opts.Now()}
	if err := c.ValidateWithLeeway(want, leeway); err != nil {
		return refused("%w", err)
	}
	if len(c.Audience) != 1 || c.Expiry == nil {
		return refused("the token must have one audience, and an end")
	}
	return nil
}

// googleKeys returns Google's keys. It fetches them for a key that is not among those that it has fetched.
func (v *Verifier) googleKeys(ctx context.Context, id string) (*jose.JSONWebKeySet, error) {
	v.mu.Lock()
	keys, at := v.keys, v.keysAt
	v.mu.Unlock()
	if keys != nil && (v.opts.GoogleKeys != "" || len(keys.Key(id)) > 0 || v.opts.Now().Sub(at) < keysPause) {
		return keys, nil
	}
	data, err := v.fetch(ctx, googleKeys, maxKeys)
	if err != nil {
		return nil, err
	}
	if keys, err = parseKeys(data); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys, v.keysAt = keys, v.opts.Now()
	return keys, nil
}

func parseKeys(data []byte) (*jose.JSONWebKeySet, error) {
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	for _, key := range keys.Keys {
		if !key.IsPublic() {
			return nil, errors.New("read keys: they are not public keys of signatures")
		}
	}
	if len(keys.Keys) == 0 {
		return nil, errors.New("read keys: there are none")
	}
	return &keys, nil
}

// readGoogleKeys reads the operator's file.
func (v *Verifier) readGoogleKeys() error {
	if v.opts.GoogleKeys == "" {
		return nil
	}
	data, err := os.ReadFile(v.opts.GoogleKeys)
	if err != nil {
		return fault.New(fault.Invalid, "--google-identity-keys-file cannot be read: %w", err)
	}
	if v.keys, err = parseKeys(data); err != nil {
		return fault.New(fault.Invalid, "--google-identity-keys-file has no keys: %w.", err).
			WithDetail("It must be the JSON that %s answers.", googleKeys)
	}
	return nil
}

// fetch returns what an address answers, up to a number of bytes.
func (v *Verifier) fetch(ctx context.Context, address string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := v.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch %s: %s", address, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("fetch %s: the answer is longer than %d bytes", address, limit)
	}
	return data, err
}
