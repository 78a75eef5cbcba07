package connect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const section = sectionStart + "\n" + sectionNote + "\nHost x\n" + sectionEnd + "\n"

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, before, body, want string }{
		{"empty file", "", "Host x\n", section},
		{"appended", "Host a\n\tPort 1\n", "Host x\n", "Host a\n\tPort 1\n\n" + section},
		{"no newline at the end", "Host a", "Host x", "Host a\n\n" + section},
		{"replaced in place", "Host a\n" + sectionStart + "\nold\n" + sectionEnd + "\nHost b\n", "Host x", "Host a\n" + section + "Host b\n"},
		{"carriage returns", sectionStart + "\r\nold\r\n" + sectionEnd + "\r\nHost b\r\n", "Host x", section + "Host b\r\n"},
		{"end without newline", sectionStart + "\nold\n" + sectionEnd, "Host x", section},
		{"removed", "Host a\n" + section + "Host b\n", "", "Host a\nHost b\n"},
		{"nothing to remove", "Host a\n", "", "Host a\n"},
	} {
		got, err := replaceSection(tt.before, tt.body)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	for _, text := range []string{
		sectionStart + "\n", sectionEnd + "\n", sectionEnd + "\n" + sectionStart + "\n", section + section,
		sectionStart + "\n" + sectionStart + "\n" + sectionEnd + "\n",
	} {
		if got, err := replaceSection(text, "Host x"); err == nil {
			t.Errorf("%q: got %q, want an error", text, got)
		}
	}
}

func FuzzReplaceSection(f *testing.F) {
	f.Add("Host a\n", "Host x\n")
	f.Add("Host a\n"+section+"Host b", "Host y\n\tPort 2\n")
	f.Add(sectionStart, "")
	f.Fuzz(func(t *testing.T, text, body string) {
		if strings.Contains(body, "-CODER-") { // a body holds host blocks, never markers
			return
		}
		once, err := replaceSection(text, body)
		if err != nil {
			return
		}
		twice, err := replaceSection(once, body)
		if err != nil || twice != once {
			t.Fatalf("again with the same body: %v\n%q\n%q", err, once, twice)
		}
		before, _, _ := findSection(text)
		if before < 0 && !strings.HasPrefix(once, text) {
			t.Fatalf("what was there has changed: %q to %q", text, once)
		}
	})
}

func TestRenderSection(t *testing.T) {
	t.Parallel()
	options, err := sshOptionLines(sshDefaults("/home/ada/my config/100%", authority{"/home/ada/my config/ca", "@cert-authority *.coder ssh-ed25519 AAAA"}), map[string]string{"ServerAliveInterval": "30"}, []string{"ForwardAgent=yes", "loglevel INFO"})
	if err != nil {
		t.Fatal(err)
	}
	got := renderSection("coder.", "coder", nil, false, options, `"/opt/a b/coder" --global-config "/home/ada/.config/coderv2" ssh --stdio`)
	want := `Host coder.*
	ConnectTimeout 0
	StrictHostKeyChecking yes
	UserKnownHostsFile "/home/ada/my config/100%%" "/home/ada/my config/ca"
	loglevel INFO
	Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr
	ServerAliveInterval 30
	ForwardAgent yes
	ProxyCommand "/opt/a b/coder" --global-config "/home/ada/.config/coderv2" ssh --stdio --ssh-host-prefix coder. %h

Host *.coder
	ConnectTimeout 0
	StrictHostKeyChecking yes
	UserKnownHostsFile "/home/ada/my config/100%%" "/home/ada/my config/ca"
	loglevel INFO
	Ciphers aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr
	ServerAliveInterval 30
	ForwardAgent yes
	ProxyCommand "/opt/a b/coder" --global-config "/home/ada/.config/coderv2" ssh --stdio --hostname-suffix coder %h
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("section (-want +got):\n%s", diff)
	}
	listed := renderSection("coder.", "", []string{"api", "dev"}, true, nil, "coder ssh --stdio")
	if want := "Host coder.api coder.dev\n\tProxyCommand coder ssh --stdio --ssh-host-prefix coder. %h\n"; listed != want {
		t.Errorf("listed: got %q, want %q", listed, want)
	}
	for _, bad := range []string{"ForwardAgent", "=yes", "A=b\nProxyCommand=evil"} {
		if lines, err := sshOptionLines(nil, nil, []string{bad}); err == nil {
			t.Errorf("%q: got %q, want an error", bad, lines)
		}
	}
}

func TestQuoteProxy(t *testing.T) {
	t.Parallel()
	if got, want := quoteProxy("/a b/100%$HOME/`x`\"\\"), "\"/a b/100%%\\$HOME/\\`x\\`\\\"\\\\\""; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
