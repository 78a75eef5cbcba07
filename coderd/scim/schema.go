package scim

import (
	"net/http"
	"strings"
)

// URNs of schemas.
const (
	schemaUser       = "urn:ietf:params:scim:schemas:core:2.0:User"
	schemaGroup      = "urn:ietf:params:scim:schemas:core:2.0:Group"
	schemaEnterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
)

type object = map[string]any

func (s *Service) serviceProviderConfig(w http.ResponseWriter, _ *http.Request) error {
	no := object{"supported": false}
	return write(w, http.StatusOK, object{
		"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"},
		"patch":   object{"supported": true}, "filter": object{"supported": true, "maxResults": maxCount},
		"bulk": object{
			"supported": false, "maxOperations": 0, "maxPayloadSize": 0,
		}, "changePassword": no, "sort": no, "etag": no,
		"authenticationSchemes": []object{{"type": "oauthbearertoken", "name": "Bearer token", "description": "The token of --scim-auth-header", "primary": true}},
		"meta": object{
			"resourceType": "ServiceProviderConfig", "location": s.location("ServiceProviderConfig"),
		},
	})
}

func (s *Service) types() []object {
	one := func(name, endpoint, schema string) object {
		return object{
			"schemas": []string{
				"urn:ietf:params:scim:schemas:core:2.0:ResourceType",
			}, "id": name, "name": name, "endpoint": endpoint, "schema": schema,
			"meta": object{"resourceType": "ResourceType", "location": s.location("ResourceTypes", name)},
		}
	}
	return []object{one("User", "/Users", schemaUser), one("Group", "/Groups", schemaGroup)}
}

func attribute(name, kind string, more object) object {
	out := object{
		"name": name, "type": kind, "multiValued": false, "required": false, "caseExact": false, "mutability": "readWrite", "returned": "default", "uniqueness": "none",
	}
	for key, value := range more {
		out[key] = value
	}
	return out
}

func (s *Service) definitions() []object {
	one := func(id, name string, attributes ...object) object {
		return object{
			"schemas": []string{
				"urn:ietf:params:scim:schemas:core:2.0:Schema",
			}, "id": id, "name": name, "attributes": attributes,
			"meta": object{"resourceType": "Schema", "location": s.location("Schemas", id)},
		}
	}
	reference := func(name string) object {
		return attribute(name, "complex", object{"multiValued": true, "subAttributes": []object{
			attribute("value", "string", object{
				"caseExact": true,
			}), attribute("display", "string", object{"mutability": "readOnly"}),
		}})
	}
	groups := reference("groups")
	groups["mutability"] = "readOnly"
	return []object{
		one(schemaUser, "User",
			attribute("userName", "string", object{"required": true, "uniqueness": "server"}),
			attribute("name", "complex", object{"subAttributes": []object{
				attribute("givenName", "string", nil), attribute("familyName", "string", nil), attribute("formatted",
					"string", nil),
			}}),
			attribute("displayName", "string", nil),
			attribute("emails", "complex", object{"multiValued": true, "subAttributes": []object{
				attribute("value", "string", nil), attribute("type", "string", nil), attribute("primary", "boolean",
					nil),
			}}),
			attribute("active", "boolean", nil), groups),
		one(schemaGroup, "Group", attribute("displayName", "string", object{
			"required": true, "uniqueness": "server",
		}), reference("members")),
	}
}

func (s *Service) resourceTypes(w http.ResponseWriter, _ *http.Request) error {
	all := s.types()
	return list(w, page{start: 1}, int64(len(all)), all)
}

func (s *Service) schemas(w http.ResponseWriter, _ *http.Request) error {
	all := s.definitions()
	return list(w, page{start: 1}, int64(len(all)), all)
}

func (s *Service) resourceType(w http.ResponseWriter, r *http.Request) error {
	return one(w, r, "resource type", s.types())
}

func (s *Service) schema(w http.ResponseWriter, r *http.Request) error {
	return one(w, r, "schema", s.definitions())
}

func one(w http.ResponseWriter, r *http.Request, what string, all []object) error {
	for _, found := range all {
		if strings.EqualFold(found["id"].(string), r.PathValue("id")) {
			return write(w, http.StatusOK, found)
		}
	}
	return notFound(what, r.PathValue("id"))
}
