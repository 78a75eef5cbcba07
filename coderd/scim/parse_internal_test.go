package scim

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestParseFilter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]term{
		"":                                     nil,
		`userName eq "ann@example.com"`:        {{"username", "ann@example.com"}},
		`USERNAME EQ "a\"b"`:                   {{"username", `a"b`}},
		`emails[type eq "work"].value eq "x"`:  {{"emails.value", "x"}},
		`externalId eq "1" and active eq true`: {{"externalid", "1"}, {"active", "true"}},
		schemaUser + `:userName eq "x"`:        {{"username", "x"}},
	} {
		got, err := parseFilter(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{`userName`, `userName sw "a"`, `userName eq`, `userName eq a`, `userName eq "a`, `userName eq "a" or id eq "b"`, `not (userName eq "a")`, `"a" eq "a"`, `. eq "a"`, `userName eq "a" and`} {
		if got, err := parseFilter(bad); err == nil {
			t.Errorf("%s: accepted as %v", bad, got)
		}
	}
}

// TestPatchForms checks the operations that Okta and Entra ID send.
func TestPatchForms(t *testing.T) {
	t.Parallel()
	for body, check := range map[string]func(userChange) bool{
		`{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{"op":"replace","value":{"active":false}}]}`: func(c userChange) bool { return !*c.active && c.userName == nil },
		`{"Operations":[{"op":"Replace","path":"active","value":"False"}]}`:                                                      func(c userChange) bool { return !*c.active },
		`{"operations":[{"op":"REPLACE","path":"active","value":"True"}]}`:                                                       func(c userChange) bool { return *c.active },
		`{"Operations":[{"op":"Add","path":"name.givenName","value":"Ann"}]}`:                                                    func(c userChange) bool { return *c.given == "Ann" && c.family == nil },
		`{"Operations":[{"op":"replace","value":{"name.familyName":"Lee","displayName":"Ann Lee"}}]}`:                            func(c userChange) bool { return *c.family == "Lee" && *c.displayName == "Ann Lee" },
		`{"Operations":[{"op":"Replace","path":"emails[type eq \"work\"].value","value":"a@example.com"}]}`:                      func(c userChange) bool { return *c.email == "a@example.com" },
		`{"Operations":[{"op":"Replace","path":"emails[type eq \"home\"].value","value":"a@example.com"}]}`:                      func(c userChange) bool { return c.email == nil },
		`{"Operations":[{"op":"add","path":"emails","value":[{"value":"b","type":"home"},{"value":"a","primary":"true"}]}]}`:     func(c userChange) bool { return *c.email == "a" },
		`{"Operations":[{"op":"Add","path":"` + schemaEnterprise + `:department","value":"x"}]}`:                                 func(c userChange) bool { return c == userChange{} },
		`{"Operations":[{"op":"replace","value":{"` + schemaEnterprise + `":{"department":"x"},"userName":"u"}}]}`:               func(c userChange) bool { return *c.userName == "u" },
		`{"Operations":[{"op":"remove","path":"displayName"}]}`:                                                                  func(c userChange) bool { return *c.displayName == "" },
	} {
		if c, err := patchUser([]byte(body)); err != nil || !check(c) {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"Operations":[]}`, `{"Operations":[{"op":"move","path":"active"}]}`, `{"Operations":[{"op":"replace","path":"active","value":"maybe"}]}`,
		`{"Operations":[{"op":"replace","value":"x"}]}`, `{"Operations":[{"op":"remove"}]}`, `{"Operations":[{"op":"remove","path":"userName"}]}`, `{"Operations":[{"op":"replace","path":"userName","value":null}]}`,
		`{"Operations":[{"op":"replace","path":"emails[","value":"x"}]}`, `{"Operations":[{"op":"replace","path":"userName","value":7}]}`} {
		if c, err := patchUser([]byte(bad)); err == nil {
			t.Errorf("%s: accepted as %+v", bad, c)
		}
	}
	for body, want := range map[string]memberChange{
		`{"Operations":[{"op":"add","path":"members","value":[{"value":"a"},{"value":"b"}]}]}`: {"add", []string{"a", "b"}},
		`{"Operations":[{"op":"Remove","path":"members[value eq \"a\"]"}]}`:                    {"remove", []string{"a"}},
		`{"Operations":[{"op":"Remove","path":"members","value":[{"value":"a"}]}]}`:            {"remove", []string{"a"}},
		`{"Operations":[{"op":"remove","path":"members"}]}`:                                    {"replace", []string{}},
		`{"Operations":[{"op":"replace","path":"members","value":[]}]}`:                        {"replace", []string{}},
	} {
		c, err := patchGroup([]byte(body))
		if err != nil || len(c.members) != 1 || c.members[0].op != want.op || !slices.Equal(c.members[0].ids, want.ids) {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
	if c, err := patchGroup([]byte(`{"Operations":[{"op":"replace","value":{"id":"x","displayName":"New"}}]}`)); err != nil || *c.displayName != "New" {
		t.Errorf("Okta's rename: %+v, %v", c, err)
	}
}

// FuzzPatch checks that no body makes the parsers fail in another way than with a problem.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"Operations":[{"op":"replace","path":"emails[type eq \"work\"].value","value":"x"}]}`))
	f.Add([]byte(`{"Operations":[{"op":"Remove","path":"members[value eq \"a\"]"}]}`))
	f.Add([]byte(`{"userName":"a","emails":[{"value":"x","primary":"True"}],"name":{"givenName":"x"},"active":"False"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, users := patchUser(body)
		_, user := wholeUser(body)
		_, groups := patchGroup(body)
		_, group := wholeGroup(body)
		for _, err := range []error{users, user, groups, group} {
			if _, ok := problemOf(err); err != nil && !ok {
				t.Errorf("%q: %v", body, err)
			}
		}
	})
}

// FuzzFilter checks that an accepted filter compares known text, and that its values survive.
func FuzzFilter(f *testing.F) {
	f.Add(`userName eq "ann@example.com"`)
	f.Add(`emails[type eq "work"].value eq "x" and active eq true`)
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := parseFilter(text)
		if err != nil {
			return
		}
		again := ""
		for i, term := range terms {
			value, err := json.Marshal(term.value)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				again += " and "
			}
			again += term.attribute + " eq " + string(value)
		}
		if got, err := parseFilter(again); len(again) <= maxPath && (err != nil || !slices.Equal(got, terms)) {
			t.Errorf("%q: %v, then %q: %v, %v", text, terms, again, got, err)
		}
	})
}
