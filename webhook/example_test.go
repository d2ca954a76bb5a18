package webhook_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/webhook"
)

// A receiver that believes only who knows the secret.
func ExampleVerify() {
	secret := []byte("kept in a file, and known to both")
	receive := func(header, body string) int {
		r := httptest.NewRequest(http.MethodPost, "/carillon", strings.NewReader(body))
		r.Header.Set(webhook.SignatureHeader, header)
		if err := webhook.Verify(secret, r.Header.Get(webhook.SignatureHeader), []byte(body), time.Now()); err != nil {
			return http.StatusUnauthorized
		}
		return http.StatusNoContent
	}
	message := `{"id":"default/7/raised/1","title":"Job billing.charge failed"}`
	fmt.Println(receive(webhook.Sign(secret, time.Now(), []byte(message)), message))
	fmt.Println(receive(webhook.Sign([]byte("a guess of sixteen"), time.Now(), []byte(message)), message))
	// Output:
	// 204
	// 401
}
