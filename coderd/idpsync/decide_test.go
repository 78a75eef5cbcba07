package idpsync_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// The organizations and groups of the pure tests.
var (
	home, east, west = id(1), id(2), id(3)
	devs, ops, scim  = group(11, "devs"), group(12, "ops"), group(13, "scim")
)

func id(n byte) uuid.UUID { return uuid.UUID{15: n} }

func group(n byte, name string) idpsync.Group {
	return idpsync.Group{ID: id(n), Organization: home, Name: name}
}

func in(g idpsync.Group) idpsync.Group { g.Member = true; return g }

func synced(g idpsync.Group) idpsync.Group { g.Synced = true; return g }

func provisioned(g idpsync.Group) idpsync.Group { g.Provisioned, g.Synced = true, true; return g }

func said(t testing.TB, text string) idpsync.Claims {
	t.Helper()
	c := idpsync.Claims{}
	if err := json.Unmarshal([]byte(text), &c.Values); err != nil {
		t.Fatal(err)
	}
	return c
}

// brief renders a plan: +organization -organization, +organization/role, +group, *created group, =site roles.
func brief(p idpsync.Plan) string {
	names := map[uuid.UUID]string{home: "home", east: "east", west: "west"}
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, org := range p.Join {
		add("+%s", names[org])
	}
	for _, org := range p.Leave {
		add("-%s", names[org])
	}
	for _, org := range []uuid.UUID{home, east, west} {
		for _, role := range p.Give[org] {
			add("+%s/%s", names[org], role)
		}
		for _, role := range p.Take[org] {
			add("-%s/%s", names[org], role)
		}
	}
	for _, g := range p.Enter {
		add("+%s", g.Name)
	}
	for _, g := range p.Exit {
		add("-%s", g.Name)
	}
	for _, g := range p.Create {
		add("*%s", g.Name)
	}
	if p.SiteRoles != nil {
		add("=%s", strings.Join(p.SiteRoles, ","))
	}
	return strings.Join(out, " ")
}

func TestDecideGroups(t *testing.T) {
	t.Parallel()
	filter := "^eng-"
	plain := sdk.GroupSyncSettings{Field: "groups"}
	create := sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}
	mapped := sdk.GroupSyncSettings{Field: "groups", Mapping: sdk.Map[sdk.List[uuid.UUID]]{"d": {devs.ID, ops.ID}, "s": {scim.ID}, "gone": {id(99)}}}
	many := make([]string, 10001)
	for i := range many {
		many[i] = fmt.Sprintf("%q", fmt.Sprint("g", i))
	}
	for _, row := range []struct {
		name   string
		set    sdk.GroupSyncSettings
		claim  string
		today  []idpsync.Group
		synced []uuid.UUID
		want   string
		warns  string // in the only warning
	}{
		{"enters by name, whatever the case", plain, `{"groups":["DEVS","nope"]}`, []idpsync.Group{devs}, nil, "+devs", ""},
		{"stays", plain, `{"groups":["devs"]}`, []idpsync.Group{in(devs)}, nil, "", ""},
		{"leaves what the claims gave", plain, `{"groups":[]}`, []idpsync.Group{in(devs), in(ops)}, []uuid.UUID{devs.ID}, "-devs", ""},
		{"keeps what administrators gave", plain, `{"groups":[]}`, []idpsync.Group{in(devs)}, nil, "", ""},
		{"leaves groups that sync created", plain, `{"groups":[]}`, []idpsync.Group{in(synced(devs))}, nil, "-devs", ""},
		{"never touches SCIM's", plain, `{"groups":["scim"]}`, []idpsync.Group{provisioned(scim), in(provisioned(ops))}, []uuid.UUID{ops.ID}, "", ""},
		{"no claim is an empty list", plain, `{}`, []idpsync.Group{in(devs)}, []uuid.UUID{devs.ID}, "-devs", ""},
		{"null is an empty list", plain, `{"groups":null}`, []idpsync.Group{in(devs)}, []uuid.UUID{devs.ID}, "-devs", ""},
		{"mapping", mapped, `{"groups":["d","s","gone","devs"]}`, []idpsync.Group{devs, ops, provisioned(scim)}, nil, "+devs +ops", ""},
		{"a mapping owns its groups", mapped, `{"groups":[]}`, []idpsync.Group{in(devs)}, nil, "-devs", ""},
		{"creates", create, `{"groups":["new","New","devs","Everyone",""]}`, []idpsync.Group{devs}, nil, "+devs *New", ""},
		{"filter", sdk.GroupSyncSettings{Field: "groups", AutoCreate: true, RegexFilter: &filter}, `{"groups":["eng-a","sales"]}`, nil, nil, "*eng-a", ""},
		{"rename", sdk.GroupSyncSettings{Field: "groups", LegacyNameMapping: sdk.Map[string]{"x": "devs"}}, `{"groups":["x"]}`, []idpsync.Group{devs}, nil, "+devs", ""},
		{"one text", plain, `{"groups":"devs"}`, []idpsync.Group{devs, in(ops)}, []uuid.UUID{ops.ID}, "+devs -ops", "should be a list"},
		{"a list in one text", plain, `{"groups":"devs,ops"}`, []idpsync.Group{devs, in(ops)}, []uuid.UUID{ops.ID}, "", "not one text"},
		{"a number", plain, `{"groups":5}`, []idpsync.Group{in(ops)}, []uuid.UUID{ops.ID}, "", "must be a list"},
		{"an object", plain, `{"groups":{"devs":true}}`, []idpsync.Group{in(ops)}, []uuid.UUID{ops.ID}, "", "must be a list"},
		{"numbers among texts", plain, `{"groups":["devs",5,null,["ops"]]}`, []idpsync.Group{devs, in(ops)}, []uuid.UUID{ops.ID}, "+devs", "has 3 values"},
		{"too many", plain, `{"groups":[` + strings.Join(many, ",") + `]}`, []idpsync.Group{in(ops)}, []uuid.UUID{ops.ID}, "", "more than 10000"},
		{"kept elsewhere", plain, `{"_claim_names":{"groups":"src1"}}`, []idpsync.Group{in(ops)}, []uuid.UUID{ops.ID}, "", "keeps them elsewhere"},
		{"odd characters", create, `{"groups":["a\u202eb"]}`, nil, nil, "", "cannot be the name"},
		{"long name", create, `{"groups":["` + strings.Repeat("x", 300) + `"]}`, nil, nil, "", "cannot be the name"},
		{"a very long text", plain, `{"groups":["devs","` + strings.Repeat("x", 5000) + `"]}`, []idpsync.Group{devs, in(ops)}, []uuid.UUID{ops.ID}, "+devs", "longer than"},
		{"off", sdk.GroupSyncSettings{}, `{"groups":[]}`, []idpsync.Group{in(devs)}, []uuid.UUID{devs.ID}, "", ""},
	} {
		p := idpsync.Decide(said(t, row.claim), idpsync.Settings{Groups: map[uuid.UUID]sdk.GroupSyncSettings{home: row.set}}, idpsync.Today{
			Default: home, Members: map[uuid.UUID][]string{home: nil}, Groups: row.today, Synced: idpsync.Synced{Groups: row.synced},
		})
		if got := brief(p); got != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
		if len(p.Warnings) > 1 || (len(p.Warnings) == 1) != (row.warns != "") || row.warns != "" && (p.Warnings[0].Claim != "groups" || !strings.Contains(p.Warnings[0].Problem, row.warns)) {
			t.Errorf("%s: warnings %+v, want %q", row.name, p.Warnings, row.warns)
		}
	}

	// One sign-in creates a bounded number of groups.
	p := idpsync.Decide(said(t, `{"groups":[`+strings.Join(many[:200], ",")+`]}`), idpsync.Settings{Groups: map[uuid.UUID]sdk.GroupSyncSettings{home: create}},
		idpsync.Today{Default: home, Members: map[uuid.UUID][]string{home: nil}})
	if len(p.Create) != 100 || len(p.Warnings) != 1 {
		t.Errorf("%d groups, warnings %+v", len(p.Create), p.Warnings)
	}
}

// TestPartial: what a renewal without an ID token does not mention stays; what it does mention counts.
func TestPartial(t *testing.T) {
	t.Parallel()
	set := idpsync.Settings{Groups: map[uuid.UUID]sdk.GroupSyncSettings{home: {Field: "groups"}}}
	today := idpsync.Today{Default: home, Members: map[uuid.UUID][]string{home: nil}, Groups: []idpsync.Group{in(devs)}, Synced: idpsync.Synced{Groups: []uuid.UUID{devs.ID}}}
	c := said(t, `{"sub":"x"}`)
	c.Partial = true
	p := idpsync.Decide(c, set, today)
	if brief(p) != "" || len(p.Warnings) != 0 || !slices.Equal(p.Synced.Groups, today.Synced.Groups) {
		t.Errorf("missing: %s %+v %+v", brief(p), p.Warnings, p.Synced)
	}
	c.Values["groups"] = []any{}
	if got := brief(idpsync.Decide(c, set, today)); got != "-devs" {
		t.Errorf("empty: %s", got)
	}
}

func TestDecideOrganizationsAndRoles(t *testing.T) {
	t.Parallel()
	orgs := func(assign bool) sdk.OrganizationSyncSettings {
		return sdk.OrganizationSyncSettings{Field: "orgs", AssignDefault: assign, Mapping: sdk.Map[sdk.List[uuid.UUID]]{"e": {east}, "both": {east, west}, "gone": {id(99)}}}
	}
	roles := map[uuid.UUID]sdk.RoleSyncSettings{east: {Field: "roles", Mapping: sdk.Map[sdk.List[string]]{"boss": {"organization-admin"}, "bad": {"nope"}}}}
	for _, row := range []struct {
		name    string
		set     idpsync.Settings
		claim   string
		members map[uuid.UUID][]string
		synced  idpsync.Synced
		want    string
		warns   int
	}{
		{"joins", idpsync.Settings{Organizations: orgs(true)}, `{"orgs":["both","gone","?"]}`, map[uuid.UUID][]string{home: nil}, idpsync.Synced{}, "+east +west", 0},
		{"leaves what a mapping names", idpsync.Settings{Organizations: orgs(true)}, `{"orgs":["e"]}`, map[uuid.UUID][]string{home: nil, east: nil, west: nil}, idpsync.Synced{}, "-west", 0},
		{"leaves the default one", idpsync.Settings{Organizations: orgs(false)}, `{"orgs":["e"]}`, map[uuid.UUID][]string{home: nil}, idpsync.Synced{}, "+east -home", 0},
		{"returns to the default one", idpsync.Settings{Organizations: orgs(true)}, `{}`, map[uuid.UUID][]string{}, idpsync.Synced{}, "+home", 0},
		{"a wrong type takes nothing", idpsync.Settings{Organizations: orgs(false)}, `{"orgs":7}`, map[uuid.UUID][]string{home: nil, east: nil}, idpsync.Synced{}, "", 1},
		{"off", idpsync.Settings{}, `{"orgs":[]}`, map[uuid.UUID][]string{east: nil}, idpsync.Synced{Organizations: []uuid.UUID{east}}, "", 0},

		{"roles by mapping and name", idpsync.Settings{Roles: roles}, `{"roles":["boss","organization-auditor","builder","mighty","?"]}`, map[uuid.UUID][]string{east: nil}, idpsync.Synced{},
			"+east/builder +east/organization-admin +east/organization-auditor", 0},
		{"takes what the claims gave, keeps the rest", idpsync.Settings{Roles: roles}, `{"roles":[]}`, map[uuid.UUID][]string{east: {"builder", "organization-auditor"}},
			idpsync.Synced{Roles: map[uuid.UUID][]string{east: {"builder"}}}, "-east/builder", 0},
		{"a mapping owns its roles", idpsync.Settings{Roles: roles}, `{"roles":[]}`, map[uuid.UUID][]string{east: {"organization-admin"}}, idpsync.Synced{}, "-east/organization-admin", 0},
		{"unknown roles of a mapping", idpsync.Settings{Roles: roles}, `{"roles":["bad"]}`, map[uuid.UUID][]string{east: nil}, idpsync.Synced{}, "", 1},
		{"roles need a membership", idpsync.Settings{Roles: roles}, `{"roles":["boss"]}`, map[uuid.UUID][]string{home: nil}, idpsync.Synced{}, "", 0},
		{"roles in an organization that the user joins", idpsync.Settings{Organizations: orgs(true), Roles: roles}, `{"orgs":["e"],"roles":["boss"]}`, map[uuid.UUID][]string{home: nil}, idpsync.Synced{},
			"+east +east/organization-admin", 0},
		{"roles of a wrong type", idpsync.Settings{Roles: roles}, `{"roles":{"boss":1}}`, map[uuid.UUID][]string{east: {"organization-admin"}}, idpsync.Synced{}, "", 1},
	} {
		p := idpsync.Decide(said(t, row.claim), row.set, idpsync.Today{
			Default: home, Exist: []uuid.UUID{home, east, west}, Members: row.members, Synced: row.synced,
			Roles: map[uuid.UUID][]idpsync.Role{east: {{Name: "builder", ByName: true}, {Name: "mighty"}}},
		})
		if got := brief(p); got != row.want || len(p.Warnings) != row.warns {
			t.Errorf("%s: got %q with %+v, want %q", row.name, got, p.Warnings, row.want)
		}
	}
}

func TestDecideSiteRoles(t *testing.T) {
	t.Parallel()
	set := idpsync.Settings{Site: idpsync.SiteRoles{Field: "r", Mapping: map[string][]string{"it": {"user-admin", "auditor"}, "none": {}}, Default: []string{"template-admin"}}}
	for _, row := range []struct{ claim, today, want string }{
		{`{"r":["it","none","organization-admin","member"]}`, "", "=auditor,template-admin,user-admin"},
		{`{"r":["owner"]}`, "owner,template-admin", ""},
		{`{"r":[]}`, "owner", "=template-admin"},
		{`{}`, "template-admin", ""},
		{`{"r":true}`, "auditor", "=auditor,template-admin"},
	} {
		today := strings.FieldsFunc(row.today, func(r rune) bool { return r == ',' })
		if got := brief(idpsync.Decide(said(t, row.claim), set, idpsync.Today{SiteRoles: today})); got != row.want {
			t.Errorf("%s for %q: got %q, want %q", row.claim, row.today, got, row.want)
		}
	}
	if got := brief(idpsync.Decide(said(t, `{"r":["owner"]}`), idpsync.Settings{}, idpsync.Today{SiteRoles: []string{"auditor"}})); got != "" {
		t.Errorf("without a field: %q", got)
	}
}

// FuzzDecide: no claims make the server panic, enter a group that SCIM provisions, give a role that does not exist, or take away something
// that sync does not own. Claims that are applied change nothing when they come again.
func FuzzDecide(f *testing.F) {
	f.Add(`{"c":["devs","ops","owner","e"]}`)
	f.Add(`{"c":"devs"}`)
	f.Add(`{"c":[1,null,["x"],{"y":"z"},"\u0000"]}`)
	f.Add(`{"_claim_names":{"c":"s"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var c idpsync.Claims
		if json.Unmarshal([]byte(text), &c.Values) != nil {
			return
		}
		set := idpsync.Settings{
			Organizations: sdk.OrganizationSyncSettings{Field: "c", AssignDefault: true, Mapping: sdk.Map[sdk.List[uuid.UUID]]{"e": {east}}},
			Groups:        map[uuid.UUID]sdk.GroupSyncSettings{home: {Field: "c", AutoCreate: true, Mapping: sdk.Map[sdk.List[uuid.UUID]]{"d": {devs.ID}}}},
			Roles:         map[uuid.UUID]sdk.RoleSyncSettings{home: {Field: "c"}},
			Site:          idpsync.SiteRoles{Field: "c"},
		}
		now := idpsync.Today{
			Default: home, Exist: []uuid.UUID{home, east}, Members: map[uuid.UUID][]string{home: {"organization-auditor"}, west: nil},
			Groups: []idpsync.Group{devs, in(ops), provisioned(scim)}, SiteRoles: []string{"auditor"},
		}
		p := idpsync.Decide(c, set, now)
		if slices.Contains(p.Leave, west) || len(p.Take[home]) > 0 || slices.ContainsFunc(p.Exit, func(g idpsync.Group) bool { return g.ID == ops.ID }) {
			t.Errorf("takes what it does not own: %s", brief(p))
		}
		if slices.ContainsFunc(p.Enter, func(g idpsync.Group) bool { return g.Provisioned }) {
			t.Errorf("enters a provisioned group: %s", brief(p))
		}
		now.Synced = p.Synced
		for _, org := range p.Join {
			now.Members[org] = nil
		}
		now.Members[home] = append(now.Members[home], p.Give[home]...)
		for i, g := range now.Groups {
			if slices.ContainsFunc(p.Enter, func(e idpsync.Group) bool { return e.ID == g.ID }) {
				now.Groups[i].Member = true
			}
		}
		for i, g := range p.Create {
			g.ID, g.Member, g.Synced = id(byte(100+i)), true, true
			now.Groups = append(now.Groups, g)
		}
		if p.SiteRoles != nil {
			now.SiteRoles = p.SiteRoles
		}
		if len(p.Create) == 100 {
			return
		}
		if again := idpsync.Decide(c, set, now); brief(again) != "" {
			t.Errorf("the same claims again: %s, then %s", brief(p), brief(again))
		} else if diff := cmp.Diff(p.Synced.Organizations, again.Synced.Organizations); diff != "" {
			t.Error(diff)
		}
	})
}
