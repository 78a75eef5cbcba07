package global

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// fakeKeyring is a keyring in memory. With err it fails.
type fakeKeyring struct {
	tokens map[string]string
	err    error
}

func (k *fakeKeyring) get(server string) (string, error) { return k.tokens[server], k.err }
func (k *fakeKeyring) set(server, token string) error {
	if k.err == nil {
		k.tokens[server] = token
	}
	return k.err
}
func (k *fakeKeyring) remove(server string) error {
	delete(k.tokens, server)
	return k.err
}

// TestKeyring checks that the session lies in the keyring and nowhere else, one per server. It replaces a variable, so it is not parallel.
func TestKeyring(t *testing.T) {
	fake := &fakeKeyring{tokens: map[string]string{}}
	before := keyring
	keyring = fake
	t.Cleanup(func() { keyring = before })
	one, two := &url.URL{Scheme: "https", Host: "one.example.com"}, &url.URL{Scheme: "https", Host: "two.example.com"}
	dir := t.TempDir()
	flags := func() *Flags { return &Flags{configDir: dir, useKeyring: true} }

	if token, err := (&Flags{configDir: dir, useKeyring: true, URL: one.String()}).SessionToken(); token != "" || err != nil {
		t.Errorf("without a session: got %q, %v", token.Reveal(), err)
	}
	if err := errors.Join(flags().StoreSession(one, "first"), flags().StoreSession(two, "second")); err != nil {
		t.Fatal(err)
	}
	if token, err := flags().SessionToken(); token != "second" || err != nil {
		t.Errorf("the latest server: got %q, %v", token.Reveal(), err)
	}
	if token, err := (&Flags{configDir: dir, useKeyring: true, URL: one.String()}).SessionToken(); token != "first" || err != nil {
		t.Errorf("another server: got %q, %v", token.Reveal(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, config.FileSession)); err == nil {
		t.Error("the session is also in a file")
	}
	if err := flags().ForgetSession(two); err != nil {
		t.Fatal(err)
	}
	if token, err := flags().SessionToken(); token != "" || err != nil {
		t.Errorf("after signing out: got %q, %v", token.Reveal(), err)
	}
	if server, err := flags().ServerURL(); err != nil || server.String() != two.String() {
		t.Errorf("after signing out: server %v, %v, want the last one", server, err)
	}
	fake.err = errors.New("the keyring is locked")
	for name, err := range map[string]error{"store": flags().StoreSession(one, "x"), "forget": flags().ForgetSession(one)} {
		if fault.CodeOf(err) != fault.Invalid || !errors.Is(err, fake.err) {
			t.Errorf("%s with a locked keyring: got %v", name, err)
		}
	}
}
