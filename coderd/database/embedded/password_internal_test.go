//go:build unix

package embedded

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWithoutTrust(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"local all all trust\n":                     "local\tall\tall\tscram-sha-256\n",
		"host all all ::1/128 \"trust\" # trust\n":  "host\tall\tall\t::1/128\tscram-sha-256\t# trust\n",
		"host a b 10.0.0.0 255.0.0.0 trust":         "host\ta\tb\t10.0.0.0\t255.0.0.0\tscram-sha-256",
		"# trust\nlocal trust trust scram-sha-256":  "# trust\nlocal trust trust scram-sha-256",
		"local all all scram-sha-256\n\n  \nhost x": "local all all scram-sha-256\n\n  \nhost x",
	} {
		got, found := withoutTrust(text)
		if got != want || found != (got != text) {
			t.Errorf("%q: got %q, %v", text, got, found)
		}
	}
}

func FuzzWithoutTrust(f *testing.F) {
	f.Add("local all all trust\nhost all all ::1/128 trust # x\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, _ := withoutTrust(text)
		if again, found := withoutTrust(got); found || again != got {
			t.Errorf("%q: %q still trusts", text, got)
		}
		if strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q: %q has other lines", text, got)
		}
	})
}

// TestNumber creates a data folder and runs PostgreSQL as an account without a name, as on a machine without a user postgres.
func TestNumber(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root chooses another account")
	}
	in, err := Find(t.Context(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.LookupId("61100"); err == nil {
		t.Fatal("61100 has a name here")
	}
	in.account, in.maker = &account{61100, 61100}, named("daemon")
	data := filepath.Join(t.TempDir(), "data")
	const password = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	if err := in.InitDB(t.Context(), data, password, false); err != nil {
		t.Fatal(err)
	}
	if err := in.setPassword(t.Context(), data, password); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := startProcess(in, data, log)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end(log)
	if err := p.awaitReady(t.Context(), data, log); err != nil {
		t.Fatalf("as 61100: %v", err)
	}
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", p.pid)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 61100 {
		t.Errorf("PostgreSQL runs as another: %v, %v", info, err)
	}
}
