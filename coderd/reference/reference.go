// Package reference owns the description of the HTTP API: an OpenAPI document and a page that shows it. The routes and
// their permissions come from the running server, so that no route is missing; what each reads and answers was found in
// the source (tools/apigen). It must not know the services.
package reference

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

//go:embed api.gen.json
var generated []byte

//go:embed page.html
var pageText string

//go:embed page.css
var style []byte

// Service describes the API. Safe for concurrent use.
type Service struct {
	made func() (rendered, error)
}

type rendered struct{ document, page []byte }

// New returns a service that describes the routes which list returns when the first request comes.
func New(list func() []httpapi.Route) *Service {
	return &Service{made: sync.OnceValues(func() (rendered, error) { return render(list()) })}
}

// Routes registers the document and the page. Both are the same for every server of this version, so anybody may read
// them.
func (s *Service) Routes(mux *httpapi.Mux) {
	for _, path := range []string{"/api/v2/openapi.json", "/swagger/doc.json"} {
		mux.Handle("GET "+path, rbac.Public, s.document)
	}
	for _, path := range []string{"/swagger", "/swagger/index.html"} {
		mux.Handle("GET "+path, rbac.Public, s.page)
	}
	mux.Handle("GET /swagger/page.css", rbac.Public, func(w http.ResponseWriter, _ *http.Request) error {
		return send(w, "text/css; charset=utf-8", style)
	})
}

func (s *Service) document(w http.ResponseWriter, _ *http.Request) error {
	made, err := s.made()
	if err != nil {
		return err
	}
	return send(w, "application/json; charset=utf-8", made.document)
}

func (s *Service) page(w http.ResponseWriter, _ *http.Request) error {
	made, err := s.made()
	if err != nil {
		return err
	}
	return send(w, "text/html; charset=utf-8", made.page)
}

func send(w http.ResponseWriter, contentType string, data []byte) error {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache")
	_, err := w.Write(data)
	return err
}

// found is what the source says about the API.
type found struct {
	Operations map[string]struct {
		ID        string                     `json:"id"`
		Summary   string                     `json:"summary"`
		Query     []string                   `json:"query"`
		Request   json.RawMessage            `json:"request"`
		Responses map[string]json.RawMessage `json:"responses"` // by status; null: no body
	} `json:"operations"`
	Schemas map[string]json.RawMessage `json:"schemas"`
}

// Operation is a method of a path, as OpenAPI 3.1 writes it. Permission extends OpenAPI.
type Operation struct {
	OperationID string              `json:"operationId"`
	Summary     string              `json:"summary"`
	Tags        []string            `json:"tags"`
	Permission  string              `json:"x-permission"`
	Security    []map[string][]any  `json:"security"`
	Parameters  []Parameter         `json:"parameters,omitempty"`
	RequestBody *Body               `json:"requestBody,omitempty"`
	Responses   map[string]Response `json:"responses"`
}

type Parameter struct {
	Name     string         `json:"name"`
	In       string         `json:"in"` // path, query or header
	Required bool           `json:"required,omitempty"`
	Schema   map[string]any `json:"schema"`
}

type Body struct {
	Required bool               `json:"required"`
	Content  map[string]Content `json:"content"` // by media type
}

type Content struct {
	Schema json.RawMessage `json:"schema"`
}

type Response struct {
	Description string             `json:"description"`
	Content     map[string]Content `json:"content,omitempty"`
}

// Document is an OpenAPI 3.1 document.
type Document struct {
	OpenAPI    string                          `json:"openapi"`
	Info       map[string]string               `json:"info"`
	Paths      map[string]map[string]Operation `json:"paths"` // by path and method in lower case
	Components struct {
		Schemas         map[string]json.RawMessage `json:"schemas"`
		SecuritySchemes map[string]any             `json:"securitySchemes"`
	} `json:"components"`
}

var wildcard = lazyregexp.New(`\{([a-z_A-Z]+)(?:\.\.\.)?\}`)

// Describe returns the document of the API's routes. Other paths of the server (the dashboard, binaries, apps) are not
// part of the API.
func Describe(routes []httpapi.Route) (Document, error) {
	var source found
	if err := json.Unmarshal(generated, &source); err != nil {
		return Document{}, fmt.Errorf("decode the API's description: %w", err)
	}
	doc := Document{OpenAPI: "3.1.0", Paths: map[string]map[string]Operation{}, Info: map[string]string{
		"title": "codermesh", "version": strings.TrimPrefix(buildinfo.Version(), "v"), "description": "The HTTP API of a codermesh server. Send a session token in the header Coder-Session-Token.",
	}}
	doc.Components.Schemas = source.Schemas
	doc.Components.SecuritySchemes = map[string]any{
		"session": map[string]string{"type": "apiKey", "in": "header", "name": "Coder-Session-Token"},
		"bearer":  map[string]string{"type": "http", "scheme": "bearer"},
	}
	ids := map[string]int{}
	for _, route := range routes {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok || !strings.HasPrefix(path, "/api/v2") && !strings.HasPrefix(path, "/scim/") {
			continue
		}
		known := source.Operations[route.Pattern]
		path = strings.TrimSuffix(path, "{$}")
		op := Operation{
			OperationID: known.ID, Summary: known.Summary, Tags: []string{tag(path)},
			Permission: route.Permission.String(),
			Security:   []map[string][]any{{"session": {}}, {"bearer": {}}}, Responses: map[string]Response{},
		}
		if op.Summary == "" {
			op.OperationID = strings.ToLower(method) + strings.NewReplacer("/api/v2", "", "/", "-", "{", "", "}",
				"").Replace(path)
			op.Summary = method[:1] + strings.ToLower(method[1:])
		}
		if !strings.Contains(op.Summary, " ") && !strings.EqualFold(op.Summary, object(path)) { // "Remove": the path says what
			op.Summary += " " + object(path)
		}
		if ids[op.OperationID]++; ids[op.OperationID] > 1 {
			op.OperationID = fmt.Sprintf("%s%d", op.OperationID, ids[op.OperationID])
		}
		if route.Permission.IsPublic() {
			op.Security = []map[string][]any{}
		}
		for _, m := range wildcard().FindAllStringSubmatch(path, -1) {
			op.Parameters = append(op.Parameters,
				Parameter{Name: m[1], In: "path", Required: true, Schema: map[string]any{"type": "string"}})
		}
		for _, name := range known.Query {
			op.Parameters = append(op.Parameters, Parameter{Name: name, In: "query", Schema: map[string]any{
				"type": "string",
			}})
		}
		if route.Creation != (httpapi.Creation{}) {
			op.Parameters = append(op.Parameters, Parameter{Name: sdk.KeyHeader, In: "header", Schema: map[string]any{
				"type": "string", "minLength": sdk.MinKey, "maxLength": sdk.MaxKey,
			}})
		}
		if len(known.Request) > 0 {
			op.RequestBody = &Body{Required: true, Content: jsonContent(known.Request)}
		}
		for status, schema := range known.Responses {
			op.Responses[status] = Response{Description: describeStatus(status), Content: jsonContent(schema)}
		}
		if len(op.Responses) == 0 {
			op.Responses["default"] = Response{Description: "See the documentation."}
		}
		op.Responses["4XX"] = Response{Description: "The request was refused.", Content: jsonContent(json.RawMessage(`{"$ref":"#/components/schemas/Response"}`))}
		if doc.Paths[path] == nil {
			doc.Paths[path] = map[string]Operation{}
		}
		doc.Paths[path][strings.ToLower(method)] = op
	}
	return doc, nil
}

// tag returns the group of a path: its first segment.
func tag(path string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, "/api/v2"), "/")
	first, _, _ := strings.Cut(rest, "/")
	if first == "" {
		return "server"
	}
	return first
}

// object returns what a path is about: its last name.
func object(path string) string {
	last := path[strings.LastIndex(path, "/")+1:]
	return strings.NewReplacer("{", "", "}", "", "-", " ").Replace(last)
}

func jsonContent(schema json.RawMessage) map[string]Content {
	if len(schema) == 0 || string(schema) == "null" {
		return nil
	}
	if bytes.Contains(schema, []byte(`"format": "binary"`)) {
		return map[string]Content{"*/*": {schema}} // not JSON
	}
	return map[string]Content{"application/json": {schema}}
}

func describeStatus(status string) string {
	var code int
	if _, err := fmt.Sscan(status, &code); err != nil || http.StatusText(code) == "" {
		return status
	}
	return http.StatusText(code)
}

// shownOperation is a row of the page.
type shownOperation struct {
	Method, Path, Summary, Permission string
	Query                             []string
	Request, Response                 string // names of types, or JSON
}

type shownGroup struct {
	Name       string
	Operations []shownOperation
}

func render(routes []httpapi.Route) (rendered, error) {
	doc, err := Describe(routes)
	if err != nil {
		return rendered{}, err
	}
	var out rendered
	if out.document, err = json.Marshal(doc); err != nil {
		return out, fmt.Errorf("encode the API's description: %w", err)
	}
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return out, fmt.Errorf("parse page: %w", err)
	}
	var html bytes.Buffer
	if err := page.Execute(&html, map[string]any{"Version": buildinfo.Version(), "Groups": groups(doc)}); err != nil {
		return out, fmt.Errorf("render page: %w", err)
	}
	out.page = html.Bytes()
	return out, nil
}

// groups returns the document's operations by their tags.
func groups(doc Document) []shownGroup {
	byTag := map[string][]shownOperation{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			shown := shownOperation{
				Method: strings.ToUpper(method), Path: path, Summary: op.Summary, Permission: op.Permission,
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					shown.Query = append(shown.Query, p.Name)
				}
			}
			if op.RequestBody != nil {
				shown.Request = typeName(op.RequestBody.Content)
			}
			for status, answer := range op.Responses {
				if strings.HasPrefix(status, "2") {
					shown.Response = strings.TrimSpace(status + " " + typeName(answer.Content))
				}
			}
			byTag[op.Tags[0]] = append(byTag[op.Tags[0]], shown)
		}
	}
	var out []shownGroup
	for name, operations := range byTag {
		slices.SortFunc(operations, func(a, b shownOperation) int {
			if c := strings.Compare(a.Path, b.Path); c != 0 {
				return c
			}
			return strings.Compare(a.Method, b.Method)
		})
		out = append(out, shownGroup{name, operations})
	}
	slices.SortFunc(out, func(a, b shownGroup) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// typeName returns the name of a body's type, such as "Workspace" or "list of Workspace".
func typeName(content map[string]Content) string {
	var schema struct {
		Ref   string `json:"$ref"`
		Items struct {
			Ref string `json:"$ref"`
		} `json:"items"`
	}
	if err := json.Unmarshal(content["application/json"].Schema, &schema); err != nil {
		return ""
	}
	const prefix = "#/components/schemas/"
	switch {
	case schema.Ref != "":
		return strings.TrimPrefix(schema.Ref, prefix)
	case schema.Items.Ref != "":
		return "list of " + strings.TrimPrefix(schema.Items.Ref, prefix)
	}
	return ""
}
