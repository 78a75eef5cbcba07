// Package sdk is the public HTTP contract of the server: the JSON of every route under /api/v2 with exact field names
// and closed enums, and a Client with one method per route. The server writes these types, the command line reads them,
// and IDE plugins and Terraform providers in the field depend on them: a field may be added, never renamed.
//
// Times are RFC 3339, ids are UUIDs, a field that may be absent is a pointer, and a list is never null (List). Clients
// send *Request types; the server responds with the other types.
//
// It knows no database, no mesh and no terminal.
package sdk
