// Package fastjson judges and reads plain JSON faster than package encoding/json, which has the last word: what this package
// refuses, encoding/json reads or explains. Arguments of runs are checked and read on every hop. It is not promised.
package fastjson
