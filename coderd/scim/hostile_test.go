package scim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// TestHostileValues: what a provider sends becomes names and addresses that every account may have, or is refused: other users see them in
// terminals, lists and mails.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga")
	ann := p.create("ann@example.com")
	group := p.want(201, "POST", "Groups", `{"displayName":"Engineering"}`)["id"].(string)
	for name, text := range map[string]string{
		"an escape": `x\u001b]0;title\u0007`, "a line": `x\r\nBcc: all@example.com`, "reversed text": `x\u202eexe.ann`, "NUL": `x\u0000y`, "C1": `x\u009b2J`,
	} {
		for _, body := range []string{
			`{"Operations":[{"op":"replace","path":"displayName","value":"` + text + `"}]}`,
			`{"Operations":[{"op":"replace","path":"name.familyName","value":"` + text + `"}]}`,
			`{"Operations":[{"op":"replace","path":"name","value":{"formatted":"` + text + `"}}]}`,
			`{"Operations":[{"op":"replace","path":"emails","value":[{"value":"` + text + `@example.com","primary":true}]}]}`,
			`{"Operations":[{"op":"replace","path":"userName","value":"` + text + `@example.com"}]}`,
			`{"Operations":[{"op":"replace","path":"externalId","value":"` + text + `"}]}`,
		} {
			if status, out := p.send("PATCH", "Users/"+ann, body); status != 400 {
				t.Errorf("%s: %s: got %d %v", name, body, status, out)
			}
		}
		if status, out := p.send("PUT", "Users/"+ann, `{"userName":"ann@example.com","displayName":"`+text+`"}`); status != 400 {
			t.Errorf("%s in a PUT: got %d %v", name, status, out)
		}
		for _, body := range []string{`{"displayName":"` + text + `"}`, `{"displayName":"Other","externalId":"` + text + `"}`} {
			if status, out := p.send("POST", "Groups", body); status != 400 {
				t.Errorf("%s: a group %s: got %d %v", name, body, status, out)
			}
		}
		if status, out := p.send("PATCH", "Groups/"+group, `{"Operations":[{"op":"replace","path":"externalId","value":"`+text+`"}]}`); status != 400 {
			t.Errorf("%s: a group's id: got %d %v", name, status, out)
		}
	}
	for _, address := range []string{"no address", "a@b@c", "<ann@example.com>", "ann@example.com, olga@example.com", "@", "a@"} {
		p.want(400, "PATCH", "Users/"+ann, `{"Operations":[{"op":"replace","path":"emails","value":[{"value":"`+address+`"}]}]}`)
	}
	// The owner's account is as it was, and a proper change works.
	if got := p.want(200, "GET", "Users/"+ann, ""); got["userName"] != "ann@example.com" || got["displayName"] != "Ann Lee" {
		t.Errorf("after the attacks: %v", got)
	}
	p.want(200, "PATCH", "Users/"+ann, `{"Operations":[{"op":"replace","path":"displayName","value":"Änn Lée 李"},{"op":"replace","path":"emails","value":[{"value":"anne@example.com"}]}]}`)
}

// TestAmbiguousBodies: of two values for one attribute, none is taken: which one would count is not the server's to guess.
func TestAmbiguousBodies(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga")
	ann := p.create("ann@example.com")
	for _, body := range []string{
		`{"userName":"ann@example.com","USERNAME":"olga@example.com"}`, `{"userName":"ann@example.com","active":true,"Active":false}`,
		`{"userName":"ann@example.com","active":true,"active":false}`,
		`{"userName":"ann@example.com"`, `{"userName":"ann@example.com"} {"active":false}`, // one that was cut, and two
	} {
		p.want(400, "PUT", "Users/"+ann, body)
		p.want(400, "POST", "Users", strings.Replace(body, "ann@", "new@", 1))
	}
	p.want(400, "PATCH", "Users/"+ann, `{"Operations":[{"op":"replace","value":{"active":false,"ACTIVE":true}}]}`)
	if got := p.want(200, "GET", "Users/"+ann, ""); got["active"] != true {
		t.Errorf("after the attacks: %v", got)
	}
	// Operations are a sequence: each may change what the one before has set.
	p.want(200, "PATCH", "Users/"+ann, `{"Operations":[{"op":"replace","path":"displayName","value":"A"},{"op":"replace","path":"displayName","value":"B"}]}`)
}

// TestBombs: filters, paths, values and groups that cost far more than they look like are refused before they cost it.
func TestBombs(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga")
	ann := p.create("ann@example.com")
	deep := strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)
	for _, text := range []string{
		strings.Repeat(`userName eq "x" and `, 1000) + `userName eq "x"`, strings.Repeat(`emails[type eq "work" and `, 200) + `x eq "y"` + strings.Repeat("].value", 200),
		strings.Repeat("(", 5000), `userName eq "` + strings.Repeat(`\\`, 3000) + `"`, `userName eq "x`, `userName sw ""`, `not (userName eq "x")`,
	} {
		p.want(400, "GET", "Users"+filter(text), "")
		p.want(400, "PATCH", "Users/"+ann, fmt.Sprintf(`{"Operations":[{"op":"replace","path":%q,"value":"x"}]}`, text))
	}
	for _, value := range []string{deep, `{"x":` + deep + `}`, `"` + strings.Repeat("x", 4096) + `"`} {
		p.want(400, "PATCH", "Users/"+ann, `{"Operations":[{"op":"replace","path":"externalId","value":`+value+`}]}`)
	}
	p.want(400, "PATCH", "Users/"+ann, `{"Operations":[`+strings.Repeat(`{"op":"replace","path":"active","value":true},`, 1000)+`{"op":"replace","path":"active","value":false}]}`)
	many := func(n int) string {
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, `{"value":%q},`, uuid.NewString())
		}
		return b.String()
	}
	p.want(400, "POST", "Groups", `{"displayName":"Huge","members":[`+many(10_000)+`{"value":"`+ann+`"}]}`)
	p.want(400, "POST", "Groups", `{"displayName":"Strangers","members":[`+many(5_000)+`{"value":"`+ann+`"}]}`)
	if n := p.found("Groups"); n != 0 {
		t.Errorf("%d groups are left", n)
	}
	// The same member many times is one.
	twice := strings.Repeat(`{"value":"`+ann+`"},`, 5_000)
	g := p.want(201, "POST", "Groups", `{"displayName":"Same","members":[`+twice+`{"value":"`+ann+`"}]}`)
	if members := g["members"].([]any); len(members) != 1 {
		t.Errorf("%d members", len(members))
	}
}

// TestLookAlikes: an address that only looks like another user's, or equals it in some alphabets' upper case, is another address, or taken. It
// is never that user's account.
func TestLookAlikes(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.User("olga")
	kim := p.create("kim@example.com")
	for _, address := range []string{"\u212aim@example.com", "K\u0131m@example.com", "k\u0456m@example.com", "\uff4bim@example.com", "KIM@example.com"} {
		status, out := p.send("POST", "Users", `{"userName":"`+address+`"}`)
		switch {
		case status == 201 && out["id"] == kim:
			t.Errorf("%q is the account of kim", address)
		case status != 201 && status != 409 && status != 400:
			t.Errorf("%q: got %d %v", address, status, out)
		case address == "KIM@example.com" && status != 409:
			t.Errorf("%q is no address of another account: %v", address, out)
		}
	}
}
