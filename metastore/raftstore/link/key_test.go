package link

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// A key that was written and read again is the same node's; anything else is refused with the reason.
func TestKeyIsKept(t *testing.T) {
	k := newKey(t)
	text, err := k.PEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseKey(text)
	if err != nil || again.Node() != k.Node() {
		t.Errorf("node %s is read as %+v, %v", k.Node(), again, err)
	}
	if other := newKey(t); other.Node() == k.Node() {
		t.Error("two keys are one node's")
	}
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v", *k, k, *k)} {
		if strings.ReplaceAll(strings.ReplaceAll(shown, k.Node(), ""), " ", "") != "" {
			t.Errorf("printed, a key is %s", shown)
		}
	}
	for what, c := range map[string]struct {
		text  []byte
		words string
	}{
		"nothing":       {nil, "no private key"},
		"another thing": {bytes.ReplaceAll(text, []byte("PRIVATE KEY"), []byte("CERTIFICATE")), "no private key"},
		"half":          {text[:len(text)/2], "no private key"},
		"two":           {append(bytes.Clone(text), text...), "no private key"},
		"not a key":     {[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "asn1"},
	} {
		if k, err := ParseKey(c.text); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s is read as %v, %v", what, k, err)
		}
	}
}
