package instance

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// question is what a metadata service is asked, with the header that it requires.
type question struct{ request, header, value string }

// asked starts a metadata service that answers questions, and refuses others.
func asked(t *testing.T, answers map[question]string) *url.URL {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for q, answer := range answers {
			if q.request == r.Method+" "+r.URL.String() && r.Header.Get(q.header) == q.value {
				_, _ = io.WriteString(w, answer)
				return
			}
		}
		http.Error(w, "no such question", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var audience = &url.URL{Scheme: "https", Host: "coder.example.com", Path: "/"}

// TestProve asks services of all clouds, which are made as their documentation says.
func TestProve(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // the services are link-local
	aws := map[question]string{
		{"PUT /latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60"}:                    "session",
		{"GET /latest/dynamic/instance-identity/document", "X-aws-ec2-metadata-token", "session"}:  "{\n}",
		{"GET /latest/dynamic/instance-identity/signature", "X-aws-ec2-metadata-token", "session"}: "AAAA\nBBBB",
	}
	azure := map[question]string{
		{"GET /metadata/attested/document?api-version=2021-02-01", "Metadata", "true"}: `{"encoding":"pkcs7","signature":"MIIE"}`,
	}
	google := map[question]string{
		{"GET /computeMetadata/v1/instance/service-accounts/default/identity?audience=https%3A%2F%2Fcoder.example.com&format=full", "Metadata-Flavor", "Google"}: "a.b.c\n",
	}
	long := map[question]string{
		{"GET /metadata/attested/document?api-version=2021-02-01", "Metadata", "true"}: strings.Repeat("a", maxAnswer+1),
	}
	for name, tc := range map[string]struct {
		auth    string
		answers map[question]string
		want    any // nil: refused
		says    string
	}{
		"AWS":              {"aws-instance-identity", aws, sdk.AWSInstanceIdentity{Document: "{\n}", Signature: "AAAA\nBBBB"}, ""},
		"Azure":            {"azure-instance-identity", azure, sdk.AzureInstanceIdentity{Encoding: "pkcs7", Signature: "MIIE"}, ""},
		"Google":           {"google-instance-identity", google, sdk.GoogleInstanceIdentity{JSONWebToken: "a.b.c"}, ""},
		"no AWS":           {"aws-instance-identity", nil, nil, "403 Forbidden to /latest/api/token"},
		"no Azure":         {"azure-instance-identity", nil, nil, "403 Forbidden to /metadata/attested/document"},
		"no Google":        {"google-instance-identity", nil, nil, "403 Forbidden to /computeMetadata"},
		"a long answer":    {"azure-instance-identity", long, nil, "is longer than"},
		"an unknown cloud": {"moon-instance-identity", aws, nil, `no way "moon-instance-identity"`},
	} {
		t.Run(name, func(t *testing.T) {
			service := asked(t, tc.answers)
			got, err := prove(t.Context(), tc.auth, audience, Options{AWS: service.String(), Google: service.Host}, service.String())
			if tc.want == nil {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, %v, want %q", got, err, tc.says)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}

// TestProofIsForTheServer checks that what the agent sends has the names of the API.
func TestProofIsForTheServer(t *testing.T) {
	t.Parallel()
	for want, proof := range map[string]any{
		`{"document":"d","signature":"s"}`: sdk.AWSInstanceIdentity{Document: "d", Signature: "s"},
		`{"signature":"s","encoding":"e"}`: sdk.AzureInstanceIdentity{Signature: "s", Encoding: "e"},
		`{"json_web_token":"j"}`:           sdk.GoogleInstanceIdentity{JSONWebToken: "j"},
	} {
		if got, err := json.Marshal(proof); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
