// Package argschema describes the arguments of jobs by JSON Schemas, and checks arguments by them. It is the door to
// the library that reads schemas: github.com/google/jsonschema-go, which the Go team and Google keep for MCP. It is not
// promised.
package argschema
