package result

import (
	"regexp"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/legacy"
)

// These find in Terraform's errors what the provider does not have.
var (
	noAttribute  = lazyregexp.New(`no argument, nested block, or exported attribute named "([^"]+)"`)
	noArgument   = lazyregexp.New(`^An argument named "([^"]+)" is not expected here`)
	noDataSource = lazyregexp.New(`does not support data source "([^"]+)"`)
	noSlug       = lazyregexp.New(`^The argument "slug" is required`)
	blockHead    = lazyregexp.New(`^(resource|data|provider) "([^"]+)"`)
)

// removed returns what replaces something that the provider coder had in an older version, or "".
func (d Diagnostic) removed() string {
	detail := strings.TrimSpace(d.Detail)
	if found := noDataSource().FindStringSubmatch(detail); found != nil {
		return removedText("data."+found[1], "")
	}
	if d.Snippet == nil {
		return ""
	}
	kind := ""
	if found := blockHead().FindStringSubmatch(d.Snippet.Context); found != nil {
		kind = strings.TrimPrefix(found[1]+"."+found[2], "resource.")
	}
	if found := noArgument().FindStringSubmatch(detail); found != nil {
		return removedText(kind, found[1])
	}
	if noSlug().MatchString(detail) && kind == "coder_app" {
		return legacy.NeedsSlug()
	}
	if found := noAttribute().FindStringSubmatch(detail); found != nil {
		for _, r := range legacy.All() {
			if r.Attribute == found[1] && refersTo(d.Snippet.Code, r) {
				return removedText(r.Kind, r.Attribute)
			}
		}
	}
	return ""
}

func removedText(kind, attribute string) string {
	if r, ok := legacy.Find(kind, attribute); ok {
		return r.String() + ". coder templates migrate rewrites such templates"
	}
	return ""
}

// refersTo reports whether a line of source refers to what was removed.
func refersTo(code string, r legacy.Removal) bool {
	reference := regexp.MustCompile(`(?:^|[^\w.-])` + regexp.QuoteMeta(r.Kind) + `\.[\w-]+(?:\[[^\]]*\])?\.` +
		regexp.QuoteMeta(r.Attribute) + `(?:[^\w-]|$)`)
	return reference.MatchString(code)
}
