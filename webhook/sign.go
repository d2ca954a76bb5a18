// Package webhook verifies that messages of alarms come from the scheduler that has the secret.
//
// It is not promised to programs outside this module.
//
// Where to start: [Verify].
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MinSecret is the shortest secret, in bytes.
const MinSecret = 16

// SignatureHeader is the header that authenticates an event: t=<seconds since 1970>,v1=<hex>, where v1 is the
// HMAC-SHA256, with the secret, of t, a dot and the body.
const SignatureHeader = "Carillon-Signature"

// Sign returns the SignatureHeader of a body that is sent at a time.
func Sign(secret []byte, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac(secret, t, body))
}

func mac(secret []byte, t string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(t + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Tolerance is how old a signature may be, so that a recorded request cannot be replayed for ever. A retried event is
// signed again.
const Tolerance = 5 * time.Minute

// Verify validates the signature of an event: header is the request's SignatureHeader, body its whole body, now the
// time.
func Verify(secret []byte, header string, body []byte, now time.Time) error {
	first, second, _ := strings.Cut(header, ",")
	t, dated := strings.CutPrefix(first, "t=")
	v1, signed := strings.CutPrefix(second, "v1=")
	at, err := strconv.ParseInt(t, 10, 64)
	if !dated || !signed || err != nil {
		return errors.New("webhook: signature missing: want one such as t=1767225600,v1=5f2c")
	}
	got, err := hex.DecodeString(v1)
	if err != nil || !hmac.Equal(got, mac(secret, t, body)) {
		return errors.New("webhook: invalid signature")
	}
	if age := now.Sub(time.Unix(at, 0)); age > Tolerance || age < -Tolerance {
		return fmt.Errorf("webhook: signature expired: it is %v old, at most %v are allowed", age, Tolerance)
	}
	return nil
}
