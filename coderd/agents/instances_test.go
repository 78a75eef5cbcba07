package agents_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	machineID = "i-0123456789abcdef0"
	account   = "123456789012"
	byAWS     = string(instanceidentity.AWS)
)

// cloud is a world with machines in a cloud that the server trusts.
type cloud struct {
	*world
	service *agents.Service
	url     *url.URL
	key     *rsa.PrivateKey
	launch  time.Time
}

func withCloud(t *testing.T) *cloud {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	region := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, region, region, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "aws.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &cloud{world: newWorld(t), key: key, launch: time.Now().Add(-time.Minute)}
	if c.opts.Instances, err = instanceidentity.New(instanceidentity.Options{AWSCertificates: file}); err != nil {
		t.Fatal(err)
	}
	c.service = agents.New(c.opts)
	t.Cleanup(c.service.Stop)
	c.url = c.Serve(c.service)
	return c
}

// machine has the cloud sign a document.
func (c *cloud) machine(id, account string) sdk.AWSInstanceIdentity {
	c.T.Helper()
	document := fmt.Sprintf(`{"instanceId":%q,"accountId":%q,"pendingTime":%q}`, id, account, c.launch.UTC().Format(time.RFC3339))
	sum := sha256.Sum256([]byte(document))
	signature, err := rsa.SignPKCS1v15(rand.Reader, c.key, crypto.SHA256, sum[:])
	if err != nil {
		c.T.Fatal(err)
	}
	return sdk.AWSInstanceIdentity{Document: document, Signature: base64.StdEncoding.EncodeToString(signature)}
}

// show shows a proof to the server, without any token.
func (c *cloud) show(proof sdk.AWSInstanceIdentity) (secret.Token, error) {
	session, err := sdk.New(c.url, "", sdk.Options{}).AdmitInstance(c.T.Context(), byAWS, proof)
	return secret.Token(session.SessionToken), err
}

// built is a resource whose agent's machine is in the cloud.
func built(agent uuid.UUID, edit ...func(*provisionerpb.Agent)) *provisionerpb.Resource {
	return resource(agent, append([]func(*provisionerpb.Agent){func(a *provisionerpb.Agent) {
		a.Auth, a.InstanceId, a.InstanceAccount = byAWS, machineID, account
	}}, edit...)...)
}

// shown are documents that machines show, by what is wrong with them.
var shown = map[string]struct {
	edit   func(*provisionerpb.Agent)
	before func(c *cloud, b coderdtest.Build)
	change func(c *cloud, p *sdk.AWSInstanceIdentity)
	code   fault.Code
	says   string
}{
	"honest":                     {},
	"the state names no account": {edit: func(a *provisionerpb.Agent) { a.InstanceAccount = "" }},
	"a running build":            {before: func(c *cloud, b coderdtest.Build) { c.SetJobRow(b.Job, sdk.JobRunning) }},
	"another account": {
		change: func(c *cloud, p *sdk.AWSInstanceIdentity) { *p = c.machine(machineID, "999999999999") },
		code:   fault.Forbidden, says: "another account",
	},
	"another machine": {
		change: func(c *cloud, p *sdk.AWSInstanceIdentity) { *p = c.machine("i-0123456789abcdef1", account) },
		code:   fault.Unauthenticated, says: "No running workspace",
	},
	"another machine's signature": {
		change: func(c *cloud, p *sdk.AWSInstanceIdentity) {
			p.Signature = c.machine("i-0123456789abcdef1", account).Signature
		},
		code: fault.Unauthenticated, says: "no AWS region",
	},
	"no signature": {change: func(_ *cloud, p *sdk.AWSInstanceIdentity) { p.Signature = "" }, code: fault.Unauthenticated, says: "no AWS region"},
	"no document":  {change: func(_ *cloud, p *sdk.AWSInstanceIdentity) { p.Document = "" }, code: fault.Invalid, says: "cannot be read"},
	"a stopped workspace": {
		before: func(c *cloud, b coderdtest.Build) {
			c.revoke(c.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobSucceeded).Workspace)
		},
		code: fault.Unauthenticated, says: "No running workspace",
	},
	"a stop that runs": {
		before: func(c *cloud, b coderdtest.Build) { c.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobRunning) },
		code:   fault.Unauthenticated, says: "No running workspace",
	},
	"a failed start": {
		before: func(c *cloud, b coderdtest.Build) { c.SetJobRow(b.Job, sdk.JobFailed) },
		code:   fault.Unauthenticated, says: "No running workspace",
	},
	"a suspended owner": {
		before: func(c *cloud, _ coderdtest.Build) {
			c.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, c.owner)
		},
		code: fault.Unauthenticated, says: "No running workspace",
	},
	"a build that may report it": {
		edit:   func(a *provisionerpb.Agent) { a.InstanceId = "" },
		before: func(c *cloud, b coderdtest.Build) { c.SetJobRow(b.Job, sdk.JobRunning) },
		code:   fault.Unavailable, says: "not known yet",
	},
	"an agent with a token": {
		edit: func(a *provisionerpb.Agent) { a.Auth = "token" },
		code: fault.Unauthenticated, says: "No running workspace",
	},
	"an agent of another cloud": {
		edit: func(a *provisionerpb.Agent) { a.Auth = string(instanceidentity.Azure) },
		code: fault.Unauthenticated, says: "No running workspace",
	},
	"another's agent names it, too": {
		before: func(c *cloud, _ coderdtest.Build) {
			c.store(c.BuildRow(c.WorkspaceRow("bob", "spy"), sdk.TransitionStart, sdk.JobSucceeded), true, built(uuid.New()))
		},
		code: fault.Conflict, says: "Several agents",
	},
}

// TestInstances shows documents of machines to the server, honest and hostile ones.
func TestInstances(t *testing.T) {
	t.Parallel()
	for name, tc := range shown {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withCloud(t)
			b := c.BuildRow(c.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
			id := uuid.New()
			edit := tc.edit
			if edit == nil {
				edit = func(*provisionerpb.Agent) {}
			}
			c.store(b, true, built(id, edit))
			if tc.before != nil {
				tc.before(c, b)
			}
			proof := c.machine(machineID, account)
			if tc.change != nil {
				tc.change(c, &proof)
			}
			token, err := c.show(proof)
			if fault.CodeOf(err) != tc.code || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v, want %q: %q", err, tc.code, tc.says)
			}
			if tc.code != "" {
				return
			}
			if a, err := c.service.AuthenticateAgent(t.Context(), token); err != nil || a.ID != id {
				t.Errorf("the machine's token is that of %v, %v", a, err)
			}
			if _, err := c.service.AuthenticateAgent(t.Context(), secret.Token("token-"+id.String())); fault.CodeOf(err) == "" {
				t.Error("the token of the state is valid, too")
			}
		})
	}
}

// TestInstanceIsAdmittedOnce follows a machine through builds: each admits it once, and its token lasts as another's does.
func TestInstanceIsAdmittedOnce(t *testing.T) {
	t.Parallel()
	c := withCloud(t)
	ws := c.WorkspaceRow("ann", "dev")
	id := uuid.New()
	b := c.BuildRow(ws, sdk.TransitionStart, sdk.JobRunning)
	c.store(b, false, built(id))
	proof := c.machine(machineID, account)
	first, err := c.show(proof)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(what string, token secret.Token, want fault.Code) {
		t.Helper()
		_, err := c.service.AuthenticateAgent(t.Context(), token)
		coderdtest.WantCode(t, what, err, want)
	}
	refused := func(what string, proof sdk.AWSInstanceIdentity) {
		t.Helper()
		_, err := c.show(proof)
		coderdtest.WantCode(t, what, err, fault.Conflict)
	}
	refused("a replay", proof)
	c.store(b, true, built(id)) // the build reports its agents again
	c.SetJobRow(b.Job, sdk.JobSucceeded)
	valid("the token after the last report", first, "")
	refused("a replay after the build", proof)
	c.launch = c.launch.Add(time.Second)
	refused("another launch in the same build", c.machine(machineID, account))
	if key, err := c.service.VisaKey(t.Context(), id); err != nil || string(key) != string(first.Hash()) {
		t.Errorf("visas are signed with %x, %v", key, err)
	}

	// An update that keeps the machine keeps its token, and one that makes another machine admits that.
	c.store(c.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, built(id))
	valid("the token after an update", first, "")
	refused("the machine after an update", c.machine(machineID, account))
	other := func(a *provisionerpb.Agent) { a.InstanceId = "i-0123456789abcdef1" }
	c.store(c.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, built(id, other))
	valid("the former machine's token", first, fault.Unauthenticated)
	if _, err := c.show(c.machine(machineID, account)); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("the former machine: %v", err)
	}
	second, err := c.show(c.machine("i-0123456789abcdef1", account))
	if err != nil {
		t.Fatal(err)
	}
	valid("the new machine's token", second, "")

	// A stop ends it. A machine that slept returns with what it derives from its token; one that starts anew proves who it is.
	c.revoke(c.BuildRow(ws, sdk.TransitionStop, sdk.JobSucceeded).Workspace)
	valid("the token after the stop", second, fault.Unauthenticated)
	valid("the token for the next start", second.Offline(), fault.Unavailable)
	c.store(c.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, built(id, other))
	valid("a machine that returns", second.Offline(), "")
	refused("another program of a machine that has returned", c.machine("i-0123456789abcdef1", account))
	c.revoke(c.BuildRow(ws, sdk.TransitionStop, sdk.JobSucceeded).Workspace)
	c.store(c.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, built(id))
	c.launch = c.launch.Add(-time.Hour)
	refused("the document of an earlier launch", c.machine(machineID, account))
	c.launch = c.launch.Add(2 * time.Hour)
	if _, err := c.show(c.machine(machineID, account)); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("the document of a later time: %v", err)
	}
	c.launch = c.launch.Add(-time.Hour)
	third, err := c.show(c.machine(machineID, account))
	if err != nil {
		t.Fatal(err)
	}
	valid("the last machine's token", third, "")
	valid("the token that returned", second.Offline(), fault.Unauthenticated)
}

// TestInstanceRoutes checks the requests of all clouds: what is no proof, and a server without clouds.
func TestInstanceRoutes(t *testing.T) {
	t.Parallel()
	c := withCloud(t)
	c.opts.Instances = nil
	without := agents.New(c.opts)
	t.Cleanup(without.Stop)
	for path, body := range map[string]any{
		"aws-instance-identity":    sdk.AWSInstanceIdentity{Document: "{}", Signature: "AAAA"},
		"azure-instance-identity":  sdk.AzureInstanceIdentity{Signature: "AAAA", Encoding: "pkcs7"},
		"google-instance-identity": sdk.GoogleInstanceIdentity{JSONWebToken: "a.e30.c"},
	} {
		_, err := sdk.New(c.url, "", sdk.Options{}).AdmitInstance(t.Context(), path, body)
		coderdtest.WantCode(t, path, err, fault.Invalid)
		if answer := fault.As(err); answer == nil || !strings.Contains(answer.Error(), "identity cannot be read") {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := sdk.New(c.Serve(without), "", sdk.Options{}).AdmitInstance(t.Context(), byAWS, c.machine(machineID, account))
	coderdtest.WantCode(t, "a server without clouds", err, fault.Forbidden)
}

// TestAgentWithoutAMachine checks that a template whose machine no resource names says so in its build's log.
func TestAgentWithoutAMachine(t *testing.T) {
	t.Parallel()
	c := withCloud(t)
	b := c.BuildRow(c.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	if got := c.warnings(b, built(uuid.New(), func(a *provisionerpb.Agent) { a.InstanceId, a.Place = "", "main.tf:3" })); len(got) != 1 ||
		!strings.Contains(got[0], `main.tf:3: The agent "main" waits for a machine with aws-instance-identity`) {
		t.Errorf("got %q", got)
	}
	if got := c.warnings(b, built(uuid.New())); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

// warnings stores the last report of a build, and returns what its log says.
func (c *cloud) warnings(b coderdtest.Build, r *provisionerpb.Resource) (lines []string) {
	c.T.Helper()
	_, err := agents.Store(c.T.Context(), c.DB.Queries, agents.Batch{
		JobID: b.Job, Transition: b.Transition, WorkspaceID: b.Workspace, BuildNumber: b.Number, Resources: []*provisionerpb.Resource{r}, Final: true,
		Warn: func(text string) error {
			lines = append(lines, text)
			return nil
		},
	})
	if err != nil {
		c.T.Fatal(err)
	}
	return lines
}
