package scim

import (
	"encoding/json"
	"slices"
	"strings"
)

// userChange is what a request changes of a user. Nil fields stay as they are.
type userChange struct {
	userName, displayName, externalID, given, family, formatted, email *string
	active                                                             *bool
}

// set applies one operation. Attributes that the server does not keep are ignored.
func (c *userChange) set(o operation) (err error) {
	if o.op == "remove" {
		empty := ""
		switch o.path.attribute {
		case "username", "active", "emails":
			return invalid("mutability", o.path.attribute+" cannot be removed.")
		case "displayname":
			c.displayName = &empty
		case "externalid":
			c.externalID = &empty
		case "name":
			c.setName(o.path.sub, &empty)
		}
		return nil
	}
	switch o.path.attribute {
	case "username":
		c.userName, err = readString("userName", o.value)
	case "displayname":
		c.displayName, err = readString("displayName", o.value)
	case "externalid":
		c.externalID, err = readString("externalId", o.value)
	case "active":
		c.active, err = readBool("active", o.value)
	case "emails":
		switch {
		case o.path.sub != "" && o.path.sub != "value": // the type, or whether it is the primary one
		case slices.ContainsFunc(o.path.where, func(t term) bool { return t.attribute == "type" && !strings.EqualFold(t.value, "work") }):
		default:
			c.email, err = readEmails(o.value)
		}
	case "name":
		if o.path.sub != "" {
			var value *string
			if value, err = readString("name."+o.path.sub, o.value); err == nil {
				c.setName(o.path.sub, value)
			}
			break
		}
		var name struct {
			GivenName, FamilyName, Formatted *string
		}
		if json.Unmarshal(o.value, &name) != nil {
			return invalid("invalidValue", "name must be an object.")
		}
		c.given, c.family, c.formatted = or(name.GivenName, c.given), or(name.FamilyName, c.family), or(name.Formatted,
			c.formatted)
	}
	return err
}

func (c *userChange) setName(sub string, value *string) {
	switch sub {
	case "givenname":
		c.given = value
	case "familyname":
		c.family = value
	case "formatted":
		c.formatted = value
	case "":
		c.given, c.family, c.formatted = value, value, value
	}
}

func or(a, b *string) *string {
	if a != nil {
		return a
	}
	return b
}

// patchUser parses a PATCH of a user.
func patchUser(data []byte) (c userChange, err error) {
	ops, err := parsePatch(data)
	if err != nil {
		return c, err
	}
	for _, o := range ops {
		if err := c.set(o); err != nil {
			return c, err
		}
	}
	return c, nil
}

// wholeUser parses a user, as POST and PUT send it.
func wholeUser(data []byte) (c userChange, err error) {
	values, err := readObject(data)
	if err != nil {
		return c, err
	}
	if values == nil {
		return c, invalid("invalidSyntax", "The body is not a user.")
	}
	for name, value := range values {
		attribute := strings.ToLower(name)
		if string(value) == "null" ||
			!slices.Contains([]string{"username", "displayname", "externalid", "active", "emails", "name"}, attribute) {
			continue
		}
		if attribute == "emails" && string(value) == "[]" {
			continue
		}
		if err := c.set(operation{op: "replace", path: path{attribute: attribute}, value: value}); err != nil {
			return c, err
		}
	}
	if c.userName == nil || strings.TrimSpace(*c.userName) == "" {
		return c, invalid("invalidValue", "userName is required.")
	}
	return c, nil
}

// memberChange is one step of changing a group's members.
type memberChange struct {
	op  string // add, remove, or replace: these are all
	ids []string
}

// groupChange is what a request changes of a group. Nil fields stay as they are.
type groupChange struct {
	displayName, externalID *string
	members                 []memberChange
}

func (c *groupChange) set(o operation) (err error) {
	switch o.path.attribute {
	case "displayname":
		if o.op == "remove" {
			return invalid("mutability", "displayName cannot be removed.")
		}
		c.displayName, err = readString("displayName", o.value)
	case "externalid":
		if o.op == "remove" {
			c.externalID = new(string)
			return nil
		}
		c.externalID, err = readString("externalId", o.value)
	case "members":
		change := memberChange{op: o.op, ids: []string{}}
		switch {
		case len(o.path.where) == 1 && o.path.where[0].attribute == "value" && o.op == "remove":
			change.ids = append(change.ids, o.path.where[0].value)
		case len(o.path.where) > 0 || o.path.sub != "":
			return invalid("invalidPath", "This path of members is not supported.")
		case o.op == "remove" && (len(o.value) == 0 || string(o.value) == "null"):
			change.op = "replace" // by none
		default:
			if change.ids, err = readMembers(o.value); err != nil {
				return err
			}
		}
		c.members = append(c.members, change)
	}
	return err
}

// patchGroup parses a PATCH of a group.
func patchGroup(data []byte) (c groupChange, err error) {
	ops, err := parsePatch(data)
	if err != nil {
		return c, err
	}
	for _, o := range ops {
		if err := c.set(o); err != nil {
			return c, err
		}
	}
	return c, nil
}

// wholeGroup parses a group, as POST and PUT send it.
func wholeGroup(data []byte) (c groupChange, err error) {
	var body struct {
		DisplayName, ExternalID *string
		Members                 json.RawMessage
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return c, invalid("invalidSyntax", "The body is not a group.")
	}
	if body.DisplayName == nil || strings.TrimSpace(*body.DisplayName) == "" {
		return c, invalid("invalidValue", "displayName is required.")
	}
	c.displayName, c.externalID = body.DisplayName, body.ExternalID
	all := memberChange{op: "replace", ids: []string{}}
	if len(body.Members) > 0 && string(body.Members) != "null" {
		if all.ids, err = readMembers(body.Members); err != nil {
			return c, err
		}
	}
	c.members = []memberChange{all}
	return c, nil
}
