package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// key makes a private key, encrypted if there is a password, and returns its file and the password's.
func key(t *testing.T, password string) (path, passwordFile string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "release.key")
	if password != "" {
		passwordFile = filepath.Join(dir, "password")
		if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := newKey(path, passwordFile); err != nil {
		t.Fatal(err)
	}
	return path, passwordFile
}

// trust puts a public key where the tree has that of its releases.
func trust(t *testing.T, root, public string) {
	t.Helper()
	data, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, publicKey)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// stranger verifies a release with the programs that a machine has, as SECURITY.md says.
func stranger(t *testing.T, dir, public string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `
		openssl base64 -d -A -in SHA256SUMS.sig -out "$TMP/signature"
		openssl dgst -sha256 -verify "$KEY" -signature "$TMP/signature" SHA256SUMS
		sha256sum --check --strict SHA256SUMS`)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KEY="+public, "TMP="+t.TempDir())
	return cmd.Run()
}

// TestSignedRelease: openssl accepts a signed release, and neither a file nor a list that was changed, whatever was changed in it.
func TestSignedRelease(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	root := repository(t)
	private, passwordFile := key(t, "correct horse")
	trust(t, root, private+".pub")
	r := build(t, root)
	o := options{keys: []string{private}, passwordFile: passwordFile}
	if err := o.do(r); err != nil {
		t.Fatal(err)
	}
	if err := stranger(t, r.out, private+".pub"); err != nil {
		t.Fatalf("the release: %v", err)
	}
	other, _ := key(t, "")
	if stranger(t, r.out, other+".pub") == nil {
		t.Error("another key verifies the release")
	}
	files := contents(t, r.out)
	for _, name := range []string{"SHA256SUMS", "SHA256SUMS.sig", "codermesh_2.31.10001_programs", "codermesh_2.31.10001_programs.sig"} {
		if files[name] == "" {
			t.Errorf("the release lacks %s", name)
		}
	}
	for name, text := range files {
		for change, changed := range map[string]string{
			"one bit": string(text[0]^1) + text[1:], "a line at the end": text + "0000  coder\n", "empty": "",
		} {
			if name == "SHA256SUMS.sig" && change == "a line at the end" {
				continue // a second signature would be there
			}
			if err := os.WriteFile(filepath.Join(r.out, name), []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			if stranger(t, r.out, private+".pub") == nil {
				t.Errorf("%s with a change (%s) is accepted", name, change)
			}
		}
		if err := os.WriteFile(filepath.Join(r.out, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := stranger(t, r.out, private+".pub"); err != nil {
		t.Errorf("the release, unchanged again: %v", err)
	}
}

// TestSignedReleaseAgain: a signed release can be built again: by its makers, and by strangers with its published signature.
func TestSignedReleaseAgain(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	root := repository(t)
	private, _ := key(t, "")
	next, passwordFile := key(t, "next")
	trust(t, root, next+".pub")
	var made []map[string]string
	again := filepath.Join(t.TempDir(), "published.sig")
	for _, o := range []options{
		{keys: []string{private, next}, passwordFile: passwordFile}, // while keys change
		{signature: again},
	} {
		r := build(t, root)
		if err := o.do(r); err != nil {
			t.Fatal(err)
		}
		made = append(made, contents(t, r.out))
		name := "codermesh_2.31.10001_programs"
		if err := os.WriteFile(again, []byte(made[0][name+".sig"]), 0o644); err != nil {
			t.Fatal(err)
		}

		// What the full programs embed is what is published, from each build.
		o.programs = t.TempDir()
		if err := o.do(r); err != nil {
			t.Fatal(err)
		}
		embedded := contents(t, o.programs)
		if len(embedded) != 2 || embedded["SHA256SUMS.release"] != made[0][name] || embedded["SHA256SUMS.release.sig"] != made[0][name+".sig"] {
			t.Errorf("with %v, the programs embed %v", o, embedded)
		}
	}
	delete(made[0], "SHA256SUMS.sig") // strangers have it already
	if !maps.Equal(made[0], made[1]) {
		t.Error("a stranger's build differs")
	}
}

// TestUnsigned: without a key, programs embed no list. TestReproducible sees that the release has no signature.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	o := options{programs: t.TempDir()}
	if err := o.do(build(t, repository(t))); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, o.programs); len(got) > 0 {
		t.Errorf("an unsigned release embeds %v", got)
	}
}

// TestKeys: keys that cannot sign for this tree are refused, and a key is neither shown to others nor replaced.
func TestKeys(t *testing.T) {
	t.Parallel()
	root := repository(t)
	sealed, passwordFile := key(t, "correct horse")
	plain, _ := key(t, "")
	_, wrong := key(t, "wrong")
	if info, err := os.Stat(sealed); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key: %v, %v", info, err)
	}
	if data, err := os.ReadFile(sealed); err != nil || !bytes.HasPrefix(data, []byte("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")) {
		t.Errorf("the encrypted key: %v\n%s", err, data)
	}
	if err := newKey(plain, ""); err == nil {
		t.Error("a key was replaced")
	}
	old := filepath.Join(t.TempDir(), "published.sig")
	if err := os.WriteFile(old, []byte("AAAA\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	trust(t, root, sealed+".pub")
	for want, o := range map[string]options{
		"it is encrypted":                     {keys: []string{sealed}},
		"decrypt it":                          {keys: []string{sealed}, passwordFile: wrong},
		"no signature is by the key in":       {keys: []string{plain}},
		"has no PEM block":                    {keys: []string{passwordFile}},
		"exclude each other":                  {keys: []string{plain}, signature: old},
		"or build the commit that was signed": {signature: old},
	} {
		o.programs = t.TempDir()
		if err := o.do(build(t, root)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
