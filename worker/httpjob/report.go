package httpjob

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
)

// notice is the body of a notification.
type notice struct {
	HTTPStatus string   `json:"httpStatus"` // of the answer that it is about; "" if there was none
	Response   response `json:"response"`
}

// response is a report with all fields of the seed, also empty ones.
type response struct {
	Status   string          `json:"status"`
	Message  string          `json:"message"`
	Error    string          `json:"error"`
	Progress string          `json:"progress"`
	Datetime string          `json:"datetime"`
	Data     json.RawMessage `json:"data"`
}

// datetime is how the seed writes times.
const datetime = "2006-01-02 15:04:05"

func newNotice(status int, r httpspec.Report, now time.Time) notice {
	n := notice{Response: response(r)}
	if n.Response.Data == nil {
		n.Response.Data = json.RawMessage("{}")
	}
	if status > 0 {
		n.HTTPStatus = strconv.Itoa(status)
	}
	if n.Response.Datetime == "" {
		n.Response.Datetime = now.UTC().Format(datetime)
	}
	return n
}

// masked returns an answer without secrets, in plain or in JSON's encoding: a text may be written in many ways.
func masked(mask *httpspec.Mask, body []byte) []byte {
	if mask.Empty() {
		return body
	}
	plain := []byte(mask.Text(string(body)))
	v := parsed(body)
	if _, isText := v.(string); isText && !bytes.HasPrefix(bytes.TrimSpace(body), []byte{'"'}) {
		return plain // no JSON
	}
	if clean := maskedIn(mask, v); !reflect.DeepEqual(clean, parsed(plain)) {
		return asJSON(clean)
	}
	return plain
}

// maskedIn returns a value without secrets in its texts and names.
func maskedIn(mask *httpspec.Mask, v any) any {
	switch v := v.(type) {
	case string:
		return mask.Text(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = maskedIn(mask, v[i])
		}
		return list
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, of := range v {
			all[mask.Text(name)] = maskedIn(mask, of)
		}
		return all
	}
	return v
}

// parsed returns JSON as templates see it, or the text if it is none.
func parsed(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := d.Decode(&v); err != nil || d.More() {
		return string(body)
	}
	return v
}
