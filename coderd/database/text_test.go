package database_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "plain ä": "plain ä", "a\x00b": "a\uFFFDb", "a\xff\xfeb": "a\uFFFDb"} {
		if got := database.Visible(text); got != want {
			t.Errorf("Visible(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "plain ä": "plain ä", "a\x00b": "ab", "a\xff\xfeb": "a\uFFFDb"} {
		if got := database.Text(text); got != want {
			t.Errorf("Text(%q) is %q, want %q", text, got, want)
		}
	}
}
