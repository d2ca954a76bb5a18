package alarms

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Answer is what a service responded to a message.
type Answer struct {
	Delivered bool
	// Final means that a retry is useless: the target must be corrected.
	Final bool
	// After is the minimum time before a retry, at most MostAfter; 0 = the sender's own backoff.
	After time.Duration
	// Status is the HTTP or SMTP status; 0 = no response.
	Status int
	// Text is the beginning of the response, or why there is none: at most MostAnswer bytes, without secrets.
	Text string
}

// The limits of an answer.
const (
	MostAnswer = 200
	MostAfter  = time.Hour
)

// Judge reads the response to a request of Encode. It is pure: now reads dates in Retry-After.
func Judge(t Target, status int, header http.Header, body []byte, now time.Time) Answer {
	a := Answer{Status: status, Text: redact(t, string(body))}
	switch {
	case status >= 200 && status < 300:
		judgeBody(t.Kind, body, &a)
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
	default:
		a.Final = true
	}
	if !a.Delivered && !a.Final {
		a.After = max(a.After, retryAfter(header.Get("Retry-After"), now))
	}
	return a
}

// judgeBody reads a response of status 2xx, in which some services report errors.
func judgeBody(kind Kind, body []byte, a *Answer) {
	switch kind {
	case Teams:
		// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
		// #rate-limiting-for-connectors: a connector reports an error of its own service with status 200.
		found := teamsError.FindSubmatch(body)
		if found == nil {
			a.Delivered = true
			return
		}
		code, _ := strconv.Atoi(string(found[1]))
		a.Final = code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
	case DingTalk, WeCom, Feishu:
		var r struct {
			Code    *int `json:"code"`
			ErrCode *int `json:"errcode"`
			Msg     string
		}
		err := json.Unmarshal(body, &r)
		code := r.ErrCode
		if kind == Feishu {
			code = r.Code
		}
		if err != nil || code == nil {
			return // a proxy, perhaps
		}
		a.Delivered = *code == 0
		a.After, a.Final = robotCode(kind, *code, r.Msg)
		if a.Delivered {
			a.Final = false
		}
	default:
		a.Delivered = true
	}
}

var teamsError = regexp.MustCompile(`endpoint returned HTTP error (\d{3})`)

// robotCode returns what to do about an error code.
func robotCode(kind Kind, code int, text string) (after time.Duration, final bool) {
	type key struct {
		kind Kind
		code int
	}
	retry := map[key]time.Duration{
		// https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages: more than 20 messages a minute
		// are refused for 10 minutes.
		{DingTalk, 130101}: 10 * time.Minute, {DingTalk, 130102}: 10 * time.Minute, {DingTalk, 410100}: 10 * time.Minute, {DingTalk, -1}: 0,
		// https://developer.work.weixin.qq.com/document/path/90313: 20 messages a minute.
		{WeCom, 45009}: time.Minute, {WeCom, 45033}: time.Minute, {WeCom, -1}: 0,
		// https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot: 100 messages a minute, 5 a second.
		{Feishu, 11232}: time.Minute,
	}
	if wait, ok := retry[key{kind, code}]; ok {
		return wait, false
	}
	// Feishu responds 9499 both to an invalid request ("Bad Request") and to too many.
	if kind == Feishu && code == 9499 && strings.Contains(strings.ToLower(text), "too many") {
		return time.Minute, false
	}
	return 0, true
}

// retryAfter reads seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if text == "" {
		return 0
	}
	var wait time.Duration
	if n, err := strconv.Atoi(text); err == nil {
		wait = time.Duration(min(max(n, 0), int(MostAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), MostAfter)
}

// redact removes the secrets of a target from a text, and shortens it.
func redact(t Target, text string) string {
	for _, secret := range secrets(t) {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return cut(strings.TrimSpace(oneLine(text)), MostAnswer)
}

// secrets are a target's URL, the parts of it that may be a key, and its secret; the longest come first.
func secrets(t Target) (list []string) {
	add := func(s string) {
		if len(s) >= 8 { // shorter ones are words such as "send"
			list = append(list, s)
		}
	}
	add(t.URL)
	if t.Secret != "" {
		list = append(list, t.Secret)
	}
	if u, err := url.Parse(t.URL); err == nil {
		add(u.RequestURI())
		if password, ok := u.User.Password(); ok {
			add(password)
		}
		for _, values := range u.Query() {
			for _, v := range values {
				add(v)
			}
		}
		for part := range strings.SplitSeq(u.Path, "/") {
			add(part)
		}
	}
	return list
}
