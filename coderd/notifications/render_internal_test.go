package notifications

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

var access = &url.URL{Scheme: "https", Host: "coder.example.com"}

// labels has a value for every label.
var labels = map[string]string{
	"workspace": "dev", "former_name": "desk", "owner": "ann", "former_owner": "bea", "template": "docker", "version": "v2", "transition": "start", "initiator": "olga", "build": "7",
	"reason": "It was not used for 30 days.", "account": "bob", "message": "Use the template *kubernetes* instead.\nAsk <ops@example.com>.", "title": "The build is done",
	"organization": "east", "answer": "accepted", "expires": "2026-03-01", "device": "phone", "address": "192.0.2.1", "time": "1 December 2025, 15:04 UTC", "webhook": "ci",
	"failed": "3", "total": "40", "from": "2025-11-24", "to": "2025-11-30", "versions": "v2 2, v1 1", "workspaces": "ann/dev 2, bob/web 1",
	"cause": "It would replace docker_volume.home.", "percent": "85", "threshold": "80", "volumes": "/ is 95 % full (threshold 90 %), /home/dev is 93 % full (threshold 90 %)",
}

// TestTexts compares every template with its golden file.
func TestTexts(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, of := range All() {
		if ids[of.ID.String()] || ids[of.Name] {
			t.Errorf("two templates are %q or have its id", of.Name)
		}
		ids[of.ID.String()], ids[of.Name] = true, true
		for _, match := range regexp.MustCompile(`\{\{(.*?)\}\}`).FindAllStringSubmatch(of.Title+of.Body+fmt.Sprint(of.Actions), -1) {
			if labels[match[1]] == "" {
				t.Errorf("%s names the label %q", of.Name, match[1])
			}
		}
		m := render(of, labels, access)
		got := fmt.Sprintf("%s\n%s\n\n--- text\n%s\n\n--- markdown\n%s\n\n--- html\n%s\n\n--- links\n", m.Title, m.TitleMarkdown, m.Text, m.Markdown, m.HTML)
		for _, link := range m.Links {
			got += link.Label + ": " + link.URL + "\n"
		}
		path := filepath.Join("testdata", strings.NewReplacer(" ", "-", ":", "").Replace(strings.ToLower(of.Name))+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of.Name, diff)
		}
	}
}

// TestHostileValues checks that values stay text in every format.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	hostile := map[string]string{
		"title":   "Hi\r\nBcc: eve@example.com\u202e",
		"message": "<script>alert(1)</script>\n# heading\n1. list\n- item\n![x](http://evil.example.com/p.png) [a](javascript:alert(1)) {{title}} **bold**\n<https://evil.example.com>",
	}
	m := render(Custom, hostile, access)
	if m.Title != "Hi Bcc: eve@example.com" {
		t.Errorf("title %q", m.Title)
	}
	if strings.Contains(m.HTML, "<script") || !strings.Contains(m.HTML, "&lt;script&gt;") || strings.Contains(m.HTML, "eve@") {
		t.Errorf("HTML %q", m.HTML)
	}
	want := `\<script\>alert\(1\)\</script\>\
\# heading\
1\. list\
\- item\
\!\[x\]\(http\://evil.example.com/p.png\) \[a\]\(javascript\:alert\(1\)\) \{\{title\}\} \*\*bold\*\*\
\<https\://evil.example.com\>`
	if diff := cmp.Diff(want, m.Markdown); diff != "" {
		t.Errorf("Markdown (-want +got):\n%s", diff)
	}
	if m := render(WorkspaceDormant, map[string]string{"owner": "../..", "workspace": "a/b?c#d"}, access); m.Links[0].URL != "https://coder.example.com/@..%2F../a%2Fb%3Fc%23d" {
		t.Errorf("link %q", m.Links[0].URL)
	}
}

// tag matches what templates and escaping may produce.
var tag = regexp.MustCompile(`</?(p|strong)>|<br>`)

func FuzzRender(f *testing.F) {
	f.Add("dev", "it was not used")
	f.Add("<b>\r\n&lt;", "**\n\n```\n[x](y)\u2028\x00")
	f.Add("{{reason}}", "{{")
	f.Add(strings.Repeat("é", 5000), "\xff\xfe")
	f.Fuzz(func(t *testing.T, name, reason string) {
		for _, of := range []Template{WorkspaceMarkedForDeletion, Custom} {
			m := render(of, map[string]string{"workspace": name, "reason": reason, "title": name, "message": reason}, access)
			if len(m.Title) > maxTitle || strings.ContainsFunc(m.Title, unicode.IsControl) {
				t.Errorf("title %q", m.Title)
			}
			if strings.ContainsAny(tag.ReplaceAllString(m.HTML, ""), "<>") {
				t.Errorf("HTML %q", m.HTML)
			}
			for i, r := range m.Markdown {
				if strings.ContainsRune("`[]<>#!_", r) && (i == 0 || m.Markdown[i-1] != '\\') {
					t.Errorf("Markdown %q has %q at %d", m.Markdown, r, i)
				}
			}
			if strings.ContainsFunc(m.Text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
				t.Errorf("text %q", m.Text)
			}
			for _, link := range m.Links {
				if u, err := url.Parse(link.URL); err != nil || u.Host != access.Host || u.RawQuery != "" || u.Fragment != "" {
					t.Errorf("link %q: %v", link.URL, err)
				}
			}
		}
	})
}
