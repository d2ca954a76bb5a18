// Package fastjson checks and reads plain JSON faster than package encoding/json, because arguments of runs are checked
// and read on every hop. Start at [Object] and [ReaderOf]. Input that it refuses may be valid: pass it to
// encoding/json, which reads it or explains the error. The package is internal, and may change.
package fastjson
