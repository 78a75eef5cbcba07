package provisionerpb_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestOwnerText checks the value of each kind of part, and that a text has none if it needs an empty fact or is too long.
func TestOwnerText(t *testing.T) {
	t.Parallel()
	text := func(parts ...*provisionerpb.OwnerPart) *provisionerpb.OwnerText {
		return &provisionerpb.OwnerText{Parts: parts}
	}
	literal := func(s string) *provisionerpb.OwnerPart {
		return &provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_Text{Text: s}}
	}
	fact := func(f provisionerpb.OwnerFact) *provisionerpb.OwnerPart {
		return &provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_Fact{Fact: f}}
	}
	first := func(texts ...*provisionerpb.OwnerText) *provisionerpb.OwnerPart {
		return &provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_FirstOf_{FirstOf: &provisionerpb.OwnerPart_FirstOf{Texts: texts}}}
	}
	lower := func(of *provisionerpb.OwnerText) *provisionerpb.OwnerPart {
		return &provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_Lower{Lower: of}}
	}
	name, full, email := provisionerpb.OwnerFact_OWNER_FACT_NAME, provisionerpb.OwnerFact_OWNER_FACT_FULL_NAME, provisionerpb.OwnerFact_OWNER_FACT_EMAIL
	facts := provisionerpb.OwnerFacts(&provisionerpb.Metadata{OwnerName: "Ann", WorkspaceName: "dev"}, "1")
	for _, c := range []struct {
		what string
		text *provisionerpb.OwnerText
		want string
		ok   bool
	}{
		{"nothing", text(), "", true},
		{"parts", text(literal("/home/"), lower(text(fact(name))), literal("/x")), "/home/ann/x", true},
		{"full name", text(fact(full)), "Ann", true},
		{"first", text(first(text(literal("")), text(fact(name)))), "Ann", true},
		{"first of none", text(first(text(literal("")))), "", false},
		{"empty fact", text(fact(email)), "", false},
		{"empty fact in first", text(first(text(fact(email)), text(fact(name)))), "", false},
		{"unknown fact", text(fact(99)), "", false},
		{"unknown part", text(&provisionerpb.OwnerPart{}), "", false},
		{"too long", text(literal(strings.Repeat("x", 40<<10)), literal(strings.Repeat("x", 40<<10))), "", false},
	} {
		if got, ok := c.text.Value(facts); got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %t; want %q, %t", c.what, got, ok, c.want, c.ok)
		}
	}
}
