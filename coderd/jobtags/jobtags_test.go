package jobtags_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

type tags = map[string]string

func TestCheck(t *testing.T) {
	t.Parallel()
	many := func(n int) tags {
		out := tags{}
		for i := range n {
			out["k"+strconv.Itoa(i)] = "v"
		}
		return out
	}
	for name, tc := range map[string]struct {
		tags tags
		ok   bool
	}{
		"none":                 {nil, true},
		"some":                 {tags{"region": "eu", "gpu": ""}, true},
		"as many as allowed":   {many(32), true},
		"too many":             {many(33), false},
		"longest key":          {tags{strings.Repeat("k", 64): "v"}, true},
		"key too long":         {tags{strings.Repeat("k", 65): "v"}, false},
		"no key":               {tags{"": "v"}, false},
		"longest value":        {tags{"k": strings.Repeat("v", 256)}, true},
		"value too long":       {tags{"k": strings.Repeat("v", 257)}, false},
		"blank in a key":       {tags{"a b": "v"}, false},
		"equals sign in a key": {tags{"a=b": "v"}, false},
		"both in a value":      {tags{"k": "a = b"}, true},
		"line in a key":        {tags{"a\nb": "v"}, false},
		"line in a value":      {tags{"k": "a\nb"}, false},
		"not UTF-8 in a key":   {tags{"k\xff": "v"}, false},
		"not UTF-8 in a value": {tags{"k": "\xff"}, false},
		"organization":         {tags{jobtags.Scope: jobtags.Organization}, true},
		"user":                 {tags{jobtags.Scope: jobtags.User}, true},
		"another scope":        {tags{jobtags.Scope: "deployment"}, false},
		"no scope":             {tags{jobtags.Scope: ""}, false},
		"one of several":       {tags{"good": "v", "bad key": "v"}, false},
	} {
		if err := jobtags.Check(tc.tags); (err == nil) != tc.ok || err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want ok %t", name, err, tc.ok)
		}
	}
}

func TestNormal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ tags, want tags }{
		{nil, tags{"scope": "organization", "owner": ""}},
		{tags{"region": "eu"}, tags{"scope": "organization", "owner": "", "region": "eu"}},
		{tags{"scope": "user", "owner": "ann"}, tags{"scope": "user", "owner": "ann"}},
		{tags{"scope": "user"}, tags{"scope": "user", "owner": ""}},
		// Only a job of a user's scope has an owner: another could not name one to reach that user's provisioners.
		{tags{"scope": "organization", "owner": "ann"}, tags{"scope": "organization", "owner": ""}},
		{tags{"owner": "ann"}, tags{"scope": "organization", "owner": ""}},
		{tags{"scope": "all", "owner": "ann"}, tags{"scope": "organization", "owner": ""}},
	} {
		given := maps.Clone(tc.tags)
		if got := jobtags.Normal(tc.tags); !maps.Equal(got, tc.want) {
			t.Errorf("Normal(%v) is %v, want %v", tc.tags, got, tc.want)
		}
		if !maps.Equal(given, tc.tags) {
			t.Errorf("Normal changed its argument to %v", tc.tags)
		}
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	given := tags{"scope": "user", "owner": "ann", "region": "eu"}
	if got := jobtags.Own(given); !maps.Equal(got, tags{"region": "eu"}) {
		t.Errorf("got %v", got)
	}
	if len(given) != 3 {
		t.Errorf("Own changed its argument to %v", given)
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		job, daemon tags
		lacking     []string
		want        bool
	}{
		{"neither has tags", nil, nil, nil, true},
		{"only the daemon has", nil, tags{"gpu": "yes"}, nil, false},
		{"only the job has", tags{"gpu": "yes"}, nil, []string{"gpu=yes"}, false},
		{"the same", tags{"gpu": "yes"}, tags{"gpu": "yes"}, nil, true},
		{"the daemon has more", tags{"gpu": "yes"}, tags{"gpu": "yes", "region": "eu"}, nil, true},
		{"the job has more", tags{"gpu": "yes", "region": "eu", "arch": "arm"}, tags{"gpu": "yes"}, []string{"arch=arm", "region=eu"}, false},
		{"another value", tags{"gpu": "yes"}, tags{"gpu": "no"}, []string{"gpu=yes"}, false},
		{"an empty value is one", tags{"gpu": ""}, tags{"region": "eu"}, []string{"gpu="}, false},
		{"a user's job, the organization's daemon", tags{"scope": "user", "owner": "ann"}, nil, []string{"owner=ann", "scope=user"}, false},
		{"the organization's job, a user's daemon", nil, tags{"scope": "user", "owner": "ann"}, []string{"owner=", "scope=organization"}, false},
		{"a user's own", tags{"scope": "user", "owner": "ann"}, tags{"scope": "user", "owner": "ann"}, nil, true},
		{"another user's", tags{"scope": "user", "owner": "bob"}, tags{"scope": "user", "owner": "ann"}, []string{"owner=bob"}, false},
	} {
		job, daemon := jobtags.Normal(tc.job), jobtags.Normal(tc.daemon)
		if got := jobtags.Matches(job, daemon); got != tc.want {
			t.Errorf("%s: matches %t, want %t", tc.name, got, tc.want)
		}
		if got := jobtags.Lacking(job, daemon); !slices.Equal(got, tc.lacking) {
			t.Errorf("%s: lacking %v, want %v", tc.name, got, tc.lacking)
		}
	}
}
