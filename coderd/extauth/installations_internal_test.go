package extauth

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestParseInstallations(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string][]sdk.ExternalAuthAppInstallation{
		`{"installations":[]}`: {},
		`{"installations":[{"id":7,"account":{"id":3,"slug":"corp","name":"The Corporation"}}]}`: {
			{ID: 7, Account: sdk.ExternalAuthUser{ID: 3, Login: "corp", Name: "The Corporation"}},
		},
		// An account that was deleted is null.
		`{"installations":[{"id":7,"account":null},{"account":{"login":"a"}},{"id":-1,"account":{"login":"a"}},{"id":8,"account":{"login":" "}}]}`: {},
		`{"installations":[{"id":7,"account":{"login":"a"}},{"id":7,"account":{"login":"b"}}]}`: {
			{ID: 7, Account: sdk.ExternalAuthUser{Login: "a"}},
		},
	} {
		got, err := parseInstallations([]byte(answer))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", answer, err, diff)
		}
	}
	for _, answer := range []string{"", "null", "{}", "[]", `{"installations":null}`, `{"installations":[]}{}`, `{"installations":[{"id":1e30}]}`} {
		if got, err := parseInstallations([]byte(answer)); err == nil {
			t.Errorf("%s is read as %+v", answer, got)
		}
	}
}

// FuzzParseInstallations checks that whatever a provider answers, the page gets few rows with a name and an id of their
// own, no text that changes what is beside it, and links to other pages only.
func FuzzParseInstallations(f *testing.F) {
	for _, answer := range []string{
		`{"total_count":1,"installations":[{"id":7,"html_url":"https://github.com/settings/installations/7","account":{"id":1,"login":"ann","avatar_url":"https://a.example/1","html_url":"https://github.com/ann"}}]}`,
		`{"installations":[{"id":7,"html_url":"javascript:alert(1)","account":{"login":"a\u202eb","avatar_url":"data:x","html_url":"https://ann:secret@evil"}},{"id":7}]}`,
		`{"installations":[{"id":7,"account":{"slug":"corp"}},{"id":8,"account":null}]}`,
		`{"installations":[{"id":7,"account":{"login":"` + strings.Repeat("ä", 200) + `"}}]}`,
		`{"installations":null}`, `{"installations":{}}`, `null`, `[]`,
	} {
		f.Add([]byte(answer))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseInstallations(body)
		if err != nil {
			return
		}
		if len(got) > maxInstallations {
			t.Errorf("%d installations", len(got))
		}
		seen := map[int64]bool{}
		for _, i := range got {
			if i.ID <= 0 || seen[i.ID] || i.Account.Login == "" {
				t.Errorf("an installation without an id of its own or a name: %+v", i)
			}
			seen[i.ID] = true
			for _, text := range []string{i.Account.Login, i.Account.Name} {
				if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxAccountName || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("the name %q", text)
				}
			}
			for _, text := range []string{i.ConfigureURL, i.Account.AvatarURL, i.Account.ProfileURL} {
				u, err := url.Parse(text)
				if text != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil) {
					t.Errorf("the link %q: %v", text, err)
				}
			}
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	})
}
