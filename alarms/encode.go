package alarms

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/webhook"
)

// Request is an HTTP POST of JSON. Its URL and header may have secrets.
type Request struct {
	URL    string
	Header http.Header
	Body   []byte
}

// Sizes of the services, in bytes unless noted.
const (
	mostTitle    = 150     // Slack's header, in characters; the others allow more
	mostSlack    = 3000    // a section of Slack, in characters
	mostTeams    = 28_000  // a request to Teams (28 KB)
	mostSummary  = 1024    // PagerDuty's summary, in characters
	mostDedup    = 255     // PagerDuty's dedup_key, in characters
	mostEvent    = 64_000  // a request to PagerDuty, far below its 512 KB
	mostDingTalk = 20_000  // a request to DingTalk
	mostWeCom    = 4096    // the content of a message of WeCom
	mostFeishu   = 20_000  // a request to Feishu (20 KB)
	mostHook     = 256_000 // a request to a webhook
	mostOther    = 64_000  // a request to Slack or WeCom, which limit its parts
)

// Encode returns the request that sends a message to a target of any kind but Email. It is pure: now dates signatures.
func Encode(t Target, m Message, now time.Time) (Request, error) {
	if err := t.Check(); err != nil {
		return Request{}, err
	}
	if t.Kind == Email {
		return Request{}, kernel.Invalid("e-mail is not sent over HTTP")
	}
	r := Request{URL: t.URL, Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Carillon-Event-Id": {oneLine(m.ID)}}}
	var err error
	switch t.Kind {
	case Slack:
		r.Body, err = fit(m, mostOther, slack)
	case Teams:
		r.Body, err = fit(m, mostTeams, teams)
	case PagerDuty:
		if r.URL == "" {
			r.URL = pagerDutyURL
		}
		r.Body, err = fit(m, mostEvent, func(m Message) any { return pagerDuty(t.Secret, m) })
	case DingTalk:
		r.URL = dingTalkURL(t, now)
		r.Body, err = fit(m, mostDingTalk, dingTalk)
	case WeCom:
		r.Body, err = fit(m, mostOther, weCom)
	case Feishu:
		r.Body, err = fit(m, mostFeishu, func(m Message) any { return feishu(t.Secret, m, now) })
	default:
		r.Body, err = fit(m, mostHook, func(m Message) any { return m })
		if t.Secret != "" {
			r.Header.Set(webhook.SignatureHeader, webhook.Sign([]byte(t.Secret), now, r.Body))
		}
	}
	return r, err
}

// fit encodes a message, and shortens its texts until it fits.
func fit(m Message, most int, shape func(Message) any) ([]byte, error) {
	for size := most; ; size /= 2 {
		short := m
		short.Title, short.Text = cut(oneLine(m.Title), min(size, mostSummary)), cut(m.Text, size)
		short.Facts = make([]Fact, len(m.Facts))
		for i, f := range m.Facts {
			short.Facts[i] = Fact{Name: cut(oneLine(f.Name), size/8), Value: cut(oneLine(f.Value), size/8)}
		}
		body, err := encode(shape(short))
		if err != nil || len(body) <= most {
			return body, err
		}
		if size == 0 {
			return nil, kernel.Invalid("the message has %d bytes without its texts: want at most %d", len(body), most)
		}
	}
}

// encode is JSON without HTML's escapes, which take six bytes for one.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// object is a JSON object; its names are encoded in alphabetical order.
type object = map[string]any

// slack is https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, with the sizes of
// https://docs.slack.dev/reference/block-kit/blocks. Texts are plain_text, in which Slack finds no mentions, or escaped.
func slack(m Message) any {
	title := cut(m.headline(), mostTitle)
	blocks := []object{{"type": "header", "text": object{"type": "plain_text", "text": title}}}
	if text := cut(m.lines(), mostSlack); text != "" {
		blocks = append(blocks, object{"type": "section", "text": object{"type": "plain_text", "text": text}})
	}
	if m.URL != "" {
		blocks = append(blocks, object{"type": "section", "text": object{"type": "mrkdwn", "text": "<" + slackText.Replace(m.URL) + "|Open the page>"}})
	}
	return object{"text": slackText.Replace(title), "blocks": blocks}
}

// slackText escapes https://docs.slack.dev/messaging/formatting-message-text#escaping, and what would end a link.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "%7C")

// teams is https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using. Texts
// are in a RichTextBlock, which knows no Markdown.
func teams(m Message) any {
	run := func(text string, bold bool) object {
		r := object{"type": "TextRun", "text": text}
		if bold {
			r["weight"] = "Bolder"
		}
		return r
	}
	block := func(runs ...object) object { return object{"type": "RichTextBlock", "inlines": runs} }
	body := []object{block(run(m.headline(), true))}
	for _, f := range m.Facts {
		body = append(body, block(run(f.Name+": ", true), run(f.Value, false)))
	}
	if m.Text != "" {
		body = append(body, block(run(m.Text, false)))
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.2", "body": body}
	if m.URL != "" {
		card["actions"] = []object{{"type": "Action.OpenUrl", "title": "Open the page", "url": m.URL}}
	}
	return object{"type": "message", "attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card}}}
}

// pagerDuty is https://developer.pagerduty.com/docs/send-alert-event.
func pagerDuty(key string, m Message) any {
	dedup := cut(m.Key, mostDedup)
	if m.Resolved {
		return object{"routing_key": key, "dedup_key": dedup, "event_action": "resolve"}
	}
	details := object{"id": m.ID, "text": m.Text}
	for _, f := range m.Facts {
		details[f.Name] = f.Value
	}
	e := object{"routing_key": key, "dedup_key": dedup, "event_action": "trigger", "client": "Carillon",
		"payload": object{"summary": cut(m.Title, mostSummary), "source": m.Source, "severity": m.Severity, "timestamp": m.At.UTC().Format(time.RFC3339), "custom_details": details}}
	if m.URL != "" {
		e["client_url"] = m.URL
		e["links"] = []object{{"href": m.URL, "text": "Open the page"}}
	}
	return e
}

// dingTalk is https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages. A text knows no Markdown,
// and mentions only what the field at names.
func dingTalk(m Message) any {
	return object{"msgtype": "text", "text": object{"content": paragraphs(m)}}
}

// dingTalkURL signs as https://open.dingtalk.com/document/orgapp/customize-robot-security-settings: the timestamp is in
// milliseconds, the secret is the key and part of the text.
func dingTalkURL(t Target, now time.Time) string {
	if t.Secret == "" {
		return t.URL
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return t.URL // Check has refused it
	}
	at := strconv.FormatInt(now.UnixMilli(), 10)
	q := u.Query()
	q.Set("timestamp", at)
	q.Set("sign", mac(t.Secret, at+"\n"+t.Secret))
	u.RawQuery = q.Encode()
	return u.String()
}

// weCom is https://developer.work.weixin.qq.com/document/path/91770. It is Markdown: what makes links, mentions and
// colours is replaced by similar characters.
func weCom(m Message) any {
	text := weComText.Replace(m.lines())
	if text != "" {
		text = "\n" + text
	}
	head := "**" + weComText.Replace(cut(m.headline(), mostTitle)) + "**"
	link := ""
	if m.URL != "" {
		link = "\n[Open the page](" + strings.NewReplacer("(", "%28", ")", "%29").Replace(m.URL) + ")"
	}
	if len(head)+len(link) > mostWeCom {
		link = ""
	}
	return object{"msgtype": "markdown", "markdown": object{"content": head + cut(text, mostWeCom-len(head)-len(link)) + link}}
}

var weComText = strings.NewReplacer("<", "‹", ">", "›", "[", "(", "]", ")", "*", "∗", "`", "'", "@", "＠")

// feishu is https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot. The elements of a post are plain; the
// timestamp is in seconds, and timestamp and secret are the key of an empty text.
func feishu(secret string, m Message, now time.Time) any {
	lines := [][]object{}
	if text := m.lines(); text != "" {
		lines = append(lines, []object{{"tag": "text", "text": text}})
	}
	if m.URL != "" {
		lines = append(lines, []object{{"tag": "a", "text": "Open the page", "href": m.URL}})
	}
	body := object{"msg_type": "post", "content": object{"post": object{"en_us": object{"title": m.headline(), "content": lines}}}}
	if secret != "" {
		at := strconv.FormatInt(now.Unix(), 10)
		body["timestamp"], body["sign"] = at, mac(at+"\n"+secret, "")
	}
	return body
}

// paragraphs is a message as plain text.
func paragraphs(m Message) string {
	text := m.headline()
	if lines := m.lines(); lines != "" {
		text += "\n\n" + lines
	}
	if m.URL != "" {
		text += "\n\n" + m.URL
	}
	return text
}

// mac is HMAC-SHA256 in Base64.
func mac(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
