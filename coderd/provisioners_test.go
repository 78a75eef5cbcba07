package coderd_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// people are a server with an owner, a template admin and a member, by their sessions.
type people struct {
	*coderdtest.Server
	t              *testing.T
	olga, tom, ann *sdk.Client
}

func newPeople(t *testing.T) *people {
	t.Helper()
	s := coderdtest.Start(t)
	return &people{s, t, s.As("olga"), s.As("tom"), s.As("ann")}
}

func (p *people) key(name string, tags map[string]string) string {
	p.t.Helper()
	made, err := p.tom.CreateProvisionerKey(p.t.Context(), sdk.DefaultOrganization, sdk.CreateProvisionerKeyRequest{Name: name, Tags: tags})
	if err != nil {
		p.t.Fatal(err)
	}
	return made.Key
}

// session is a client's token as pairs for header.
func session(c *sdk.Client) (key, value string) {
	return sdk.SessionHeader, c.Header().Get(sdk.SessionHeader)
}

func (p *people) mustJoin(h http.Header) *provisionerd.Participant {
	p.t.Helper()
	d, err := p.JoinProvisioner(h)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// refused waits until a daemon has been cut, and returns why.
func (p *people) refused(d *provisionerd.Participant) error {
	p.t.Helper()
	select {
	case <-d.Done():
		return d.Err()
	case <-time.After(coderdtest.Patience):
		p.t.Fatal("the daemon was not cut")
		return nil
	}
}

// importing starts an import that runs until it is stopped, on a provisioner with the tags.
func (p *people) importing(tags map[string]string) uuid.UUID {
	p.t.Helper()
	archive, err := echo.Script{"import": {{WaitStop: true}}}.Archive()
	if err != nil {
		p.t.Fatal(err)
	}
	file, err := p.tom.Upload(p.t.Context(), sdk.ContentTypeTar, strings.NewReader(string(archive)))
	if err != nil {
		p.t.Fatal(err)
	}
	v, err := p.tom.CreateTemplateVersion(p.t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform, Tags: tags,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.await(v.ID, sdk.JobRunning)
	return v.ID
}

func (p *people) await(version uuid.UUID, status sdk.JobStatus) (found sdk.ProvisionerJob) {
	p.t.Helper()
	testwait.Until(p.t, "the import is "+string(status), func() error {
		v, err := p.tom.TemplateVersion(p.t.Context(), version)
		if err != nil {
			p.t.Fatal(err)
		}
		if found = v.Job; found.Status != status {
			return fmt.Errorf("it is %s: %s", found.Status, found.WaitingReason)
		}
		return nil
	})
	return found
}

func (p *people) listed(name string) (sdk.ProvisionerDaemon, bool) {
	p.t.Helper()
	all, err := p.tom.ProvisionerDaemons(p.t.Context(), sdk.DefaultOrganization)
	if err != nil {
		p.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(d sdk.ProvisionerDaemon) bool { return d.Name == name })
	if i < 0 {
		return sdk.ProvisionerDaemon{}, false
	}
	return all[i], true
}

// A key gives its daemons its tags, and deleting it ends their sessions, and their jobs with what they have reached.
func TestProvisionerKey(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	key := p.key("rack", map[string]string{"environment": "on_prem"})
	d := p.mustJoin(coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerKeyHeader, key))
	running := p.importing(map[string]string{"environment": "on_prem"})
	got, ok := p.listed("rack-1")
	if !ok || got.KeyName != "rack" || got.Tags["environment"] != "on_prem" || got.Status != sdk.ProvisionerBusy || got.CurrentJob == nil || got.LastSeenAt == nil || got.Version == "" {
		t.Errorf("listed %t as %+v", ok, got)
	}
	if got.Path != "direct" && got.Path != "relayed" {
		t.Errorf("its path is %q", got.Path)
	}
	keys, err := p.tom.ProvisionerKeys(t.Context(), sdk.DefaultOrganization)
	if err != nil || len(keys) != 1 || keys[0].Name != "rack" || keys[0].Tags["environment"] != "on_prem" {
		t.Errorf("keys: %+v, %v", keys, err)
	}
	if err := p.tom.DeleteProvisionerKey(t.Context(), sdk.DefaultOrganization, "rack"); err != nil {
		t.Fatal(err)
	}
	if err := p.refused(d); fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "rack was deleted") {
		t.Errorf("the daemon was cut with %v", err)
	}
	if job := p.await(running, sdk.JobFailed); !strings.Contains(job.Error, "rack was deleted") {
		t.Errorf("its job failed with %q", job.Error)
	}
	if got, _ := p.listed("rack-1"); got.Status != sdk.ProvisionerOffline {
		t.Errorf("it is %s", got.Status)
	}
	if _, err := p.JoinProvisioner(coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerKeyHeader, key)); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("joined again: %v", err)
	}
	if err := p.tom.DeleteProvisionerKey(t.Context(), sdk.DefaultOrganization, "rack"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
	// Its name is free for another.
	p.mustJoin(coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()))
}

func TestProvisionerKeysRefuse(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	p.key("rack", nil)
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		as   *sdk.Client
		req  sdk.CreateProvisionerKeyRequest
		code fault.Code
	}{
		"a member":       {p.ann, sdk.CreateProvisionerKeyRequest{Name: "mine"}, fault.Forbidden},
		"no name":        {p.tom, sdk.CreateProvisionerKeyRequest{}, fault.Invalid},
		"a name's form":  {p.tom, sdk.CreateProvisionerKeyRequest{Name: "../x"}, fault.Invalid},
		"a way's name":   {p.tom, sdk.CreateProvisionerKeyRequest{Name: "Built-In"}, fault.Invalid},
		"a taken name":   {p.tom, sdk.CreateProvisionerKeyRequest{Name: "RACK"}, fault.Conflict},
		"a user's scope": {p.tom, sdk.CreateProvisionerKeyRequest{Name: "x", Tags: map[string]string{"scope": "user"}}, fault.Invalid},
		"an owner":       {p.tom, sdk.CreateProvisionerKeyRequest{Name: "x", Tags: map[string]string{"owner": uuid.NewString()}}, fault.Invalid},
		"an empty tag":   {p.tom, sdk.CreateProvisionerKeyRequest{Name: "x", Tags: map[string]string{"": "y"}}, fault.Invalid},
		"a long tag":     {p.tom, sdk.CreateProvisionerKeyRequest{Name: "x", Tags: map[string]string{"y": long}}, fault.Invalid},
		"a tag with NUL": {p.tom, sdk.CreateProvisionerKeyRequest{Name: "x", Tags: map[string]string{"y": "\x00"}}, fault.Invalid},
		"a tag with =":   {p.tom, sdk.CreateProvisionerKeyRequest{Name: "x", Tags: map[string]string{"y=z": ""}}, fault.Invalid},
	} {
		if _, err := c.as.CreateProvisionerKey(t.Context(), sdk.DefaultOrganization, c.req); fault.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	if keys, err := p.ann.ProvisionerKeys(t.Context(), sdk.DefaultOrganization); err == nil {
		t.Errorf("a member lists keys: %v", keys)
	}
	if err := p.ann.DeleteProvisionerKey(t.Context(), sdk.DefaultOrganization, "rack"); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a member deletes a key: %v", err)
	}
}

// Whoever may not run a provisioner is told so once, and ends.
func TestProvisionersRefused(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	key := p.key("rack", nil)
	tomKey, tomToken := session(p.tom)
	annKey, annToken := session(p.ann)
	inside := "insideaaaa-0123456789012345678901"
	if _, err := p.DB.Pool.Exec(t.Context(), `INSERT INTO api_keys (id, user_id, secret_hash, kind, lifetime_seconds, expires_at)
		SELECT 'insideaaaa', id, $1, 'workspace', 3600, now() + interval '1 hour' FROM users WHERE username = 'olga'`, secret.Token("0123456789012345678901").Hash()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		header http.Header
		code   fault.Code
		says   string
	}{
		"wrong pre-shared key":        {coderdtest.ProvisionerHeader("x", sdk.ProvisionerPSKHeader, "guess"), fault.Unauthenticated, "pre-shared key is wrong"},
		"wrong key":                   {coderdtest.ProvisionerHeader("x", sdk.ProvisionerKeyHeader, "guess"), fault.Unauthenticated, "not valid"},
		"a key that never was":        {coderdtest.ProvisionerHeader("x", sdk.ProvisionerKeyHeader, "cmpk_"+strings.Repeat("a", 43)), fault.Unauthenticated, "not valid"},
		"a key as a pre-shared key":   {coderdtest.ProvisionerHeader("x", sdk.ProvisionerPSKHeader, key), fault.Unauthenticated, "wrong"},
		"a key and tags":              {coderdtest.ProvisionerHeader("x", sdk.ProvisionerKeyHeader, key, sdk.ProvisionerTagsHeader, "environment=cloud"), fault.Invalid, "key's tags"},
		"a key and a pre-shared key":  {coderdtest.ProvisionerHeader("x", sdk.ProvisionerKeyHeader, key, sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()), fault.Invalid, "cannot use both"},
		"a member, organization":      {coderdtest.ProvisionerHeader("x", annKey, annToken), fault.Forbidden, "scope=user"},
		"a workspace's token":         {coderdtest.ProvisionerHeader("x", sdk.SessionHeader, inside), fault.Forbidden, "do not have permission"},
		"a workspace's token, user":   {coderdtest.ProvisionerHeader("x", sdk.SessionHeader, inside, sdk.ProvisionerTagsHeader, "scope=user"), fault.Forbidden, "may not"},
		"a scope that is not":         {coderdtest.ProvisionerHeader("x", tomKey, tomToken, sdk.ProvisionerTagsHeader, "scope=team"), fault.Invalid, "scope"},
		"a tag twice":                 {coderdtest.ProvisionerHeader("x", tomKey, tomToken, sdk.ProvisionerTagsHeader, "a=1&a=2"), fault.Invalid, "twice"},
		"a malformed tag":             {coderdtest.ProvisionerHeader("x", tomKey, tomToken, sdk.ProvisionerTagsHeader, "a=%zz"), fault.Invalid, "tags are invalid"},
		"a tag without a key":         {coderdtest.ProvisionerHeader("x", tomKey, tomToken, sdk.ProvisionerTagsHeader, "=b"), fault.Invalid, "tag"},
		"a tag that is too long":      {coderdtest.ProvisionerHeader("x", tomKey, tomToken, sdk.ProvisionerTagsHeader, "a="+strings.Repeat("b", 300)), fault.Invalid, "tag"},
		"the name of a built-in one":  {coderdtest.ProvisionerHeader("built-in-0@host", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()), fault.Invalid, "built-in-"},
		"the user scope with the key": {coderdtest.ProvisionerHeader("x", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal(), sdk.ProvisionerTagsHeader, "scope=user"), fault.Invalid, "session"},
	} {
		_, err := p.JoinProvisioner(c.header)
		if fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v (%s), want %s with %q", name, err, fault.CodeOf(err), c.code, c.says)
		}
	}
	if got, ok := p.listed("x"); ok {
		t.Errorf("one of them is listed: %+v", got)
	}
}

// A session's daemons go with what the session may.
func TestSessionProvisionerIsCut(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	suspend := func(user string) func() error {
		return func() error { _, err := p.olga.SuspendUser(t.Context(), user); return err }
	}
	demote := func() error {
		_, err := p.olga.UpdateUserRoles(t.Context(), "tom", sdk.UpdateRolesRequest{Roles: []string{}})
		return err
	}
	tomKey, tomToken := session(p.tom)
	annKey, annToken := session(p.ann)
	anns := p.mustJoin(coderdtest.ProvisionerHeader("ann-1", annKey, annToken, sdk.ProvisionerTagsHeader, "scope=user"))
	toms := p.mustJoin(coderdtest.ProvisionerHeader("tom-1", tomKey, tomToken))
	tomsOwn := p.mustJoin(coderdtest.ProvisionerHeader("tom-2", tomKey, tomToken, sdk.ProvisionerTagsHeader, "scope=user"))
	if got, _ := p.listed("ann-1"); got.KeyName != "user-auth" || got.Tags["scope"] != "user" || got.Tags["owner"] == "" {
		t.Errorf("ann's is listed as %+v", got)
	}
	for _, step := range []struct {
		do  func() error
		cut *provisionerd.Participant
	}{{suspend("ann"), anns}, {demote, toms}, {suspend("tom"), tomsOwn}} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if err := p.refused(step.cut); fault.CodeOf(err) != fault.Forbidden && fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("cut with %v", err)
		}
		if step.cut == toms {
			select {
			case <-tomsOwn.Done():
				t.Errorf("the demoted user's own provisioner was cut: %v", tomsOwn.Err())
			default:
			}
		}
	}
	if _, err := p.JoinProvisioner(coderdtest.ProvisionerHeader("ann-1", annKey, annToken, sdk.ProvisionerTagsHeader, "scope=user")); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a suspended user joins: %v", err)
	}
}

// Nobody takes a daemon's place by choosing its name: neither with another credential nor from another machine.
func TestProvisionersOfOneName(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	first, other := p.key("first", nil), p.key("other", nil)
	d := p.mustJoin(coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerKeyHeader, first, sdk.ProvisionerInstanceHeader, "a"))
	for name, h := range map[string]http.Header{
		"another key":     coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerKeyHeader, other),
		"another machine": coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerKeyHeader, first, sdk.ProvisionerInstanceHeader, "b"),
	} {
		if _, err := p.JoinProvisioner(h); err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case <-d.Done():
		t.Fatalf("the first one ended: %v", d.Err())
	default:
	}
	// The same machine, restarted, takes its own place.
	p.mustJoin(coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerKeyHeader, first, sdk.ProvisionerInstanceHeader, "a"))
	p.refused(d)
}

// Who sees a provisioner in lists measures the path to it. Nobody opens a connection to one.
func TestPingProvisioner(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	annKey, annToken := session(p.ann)
	p.mustJoin(coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()))
	p.mustJoin(coderdtest.ProvisionerHeader("ann-1", annKey, annToken, sdk.ProvisionerTagsHeader, "scope=user"))
	rack, _ := p.listed("rack-1")
	anns, _ := p.listed("ann-1")
	for _, c := range []struct {
		who  *sdk.Client
		to   uuid.UUID
		sees bool
	}{{p.olga, rack.ID, true}, {p.tom, anns.ID, true}, {p.ann, anns.ID, true}, {p.ann, rack.ID, false}} {
		m := p.Join(coderdtest.AsUser(c.who.Header().Get(sdk.SessionHeader)))
		ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
		err := m.Client.Subscribe(ctx, c.to)
		switch {
		case !c.sees && fault.CodeOf(err) != fault.NotFound:
			t.Errorf("a member and the organization's provisioner: %v", err)
		case c.sees && err != nil:
			t.Errorf("not introduced: %v", err)
		case c.sees:
			if _, err := m.Node.Ping(ctx, c.to); err != nil {
				t.Errorf("ping: %v", err)
			}
			// Packets are dropped and not refused, so an attempt ends only by its deadline.
			short, cancel := context.WithTimeout(ctx, time.Second)
			var tries sync.WaitGroup
			for _, port := range []uint16{1, meshport.ServerRPC, 22, 80} {
				tries.Go(func() {
					if conn, err := m.Node.Dial(short, "tcp", netip.AddrPortFrom(tailnet.Addr(c.to), port)); err == nil {
						conn.Close()
						t.Errorf("port %d of a provisioner is open", port)
					}
				})
			}
			tries.Wait()
			cancel()
		}
		cancel()
	}
}
