package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

var (
	picture = flag.String("picture", "", "where TestPicture puts the picture for the README; a dark one of a run goes beside it, as NAME-run.png")
	long    = flag.Duration("long", 10*time.Second, "for how long the scheduler of the pictures has worked")
	gallery = flag.String("gallery", "", "a directory in which TestGallery puts every page, in both themes and at two widths")
)

// TestPicture makes the pictures of the documentation, of a scheduler that has worked for a while:
//
//	go test -run TestPicture -picture ../../docs/page.png -long 50m -timeout 60m
func TestPicture(t *testing.T) {
	if *picture == "" {
		t.Skip("no -picture")
	}
	h := open(t, busyShop()...)
	bad := h.busyDay()
	b := h.newTab(true)
	b.look(light, 1440)
	b.open("/")
	b.streams()
	b.save(*picture, 1440, 1060)
	b.look(dark, 1440)
	b.open("/runs/" + bad.ID.String())
	b.streams()
	b.save(strings.TrimSuffix(*picture, ".png")+"-run.png", 1440, 1180)
}

// save writes what the window shows.
func (b *tab) save(name string, width, height int64) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}); err != nil {
			return err
		}
		shot, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
		if err != nil {
			return err
		}
		return os.WriteFile(name, shot.Data, 0o644)
	}))
}

// busyShop is what makes a picture worth looking at.
func busyShop() []jobs.Job {
	return []jobs.Job{
		jobs.NewTriggered(jobs.TriggeredFunc[map[string]any](invoices), jobs.Options{Key: "billing.invoices", Description: "Renders the invoices of a month.", Tags: []string{"money"}, Timeout: 2 * time.Hour}),
		jobs.NewTriggered(jobs.TriggeredFunc[letter](send), jobs.Options{Key: "mail.send", Retries: 3, RetryDelay: 300 * time.Millisecond, Description: "Sends one letter."}),
		jobs.NewRecurring(jobs.RecurringFunc(fetch), jobs.Options{Key: "stock.sync", Cron: "*/10 * * * * *", Description: "Fetches what the warehouses have."}),
		jobs.NewRecurring(jobs.RecurringFunc(fetch), jobs.Options{Key: "stock.prices", Cron: "0 * * * * *", Retries: 1, Description: "Fetches what things cost."}),
		jobs.NewRecurring(jobs.RecurringFunc(count), jobs.Options{Key: "billing.close-month", Cron: "0 0 4 1 * *", TimeZone: "Europe/Berlin", Description: "Closes the books of the month."}),
	}
}

type letter struct {
	To       string `json:"to"`
	Template string `json:"template"`
}

func invoices(ctx context.Context, _ map[string]any) error {
	jobs.Log(ctx).Info("rendering")
	for i := int64(0); ; i++ {
		jobs.Progress(ctx, min(i, 2_300), 2_400, fmt.Sprintf("invoice %d of 2400", min(i, 2_300)))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// send fails for some, and for some at first: the run's id decides.
func send(ctx context.Context, _ letter) error {
	a := jobs.Attempt(ctx)
	jobs.Log(ctx).Info("connecting", "host", "mx.example.com", "attempt", a.Number)
	time.Sleep(time.Duration(1+a.Run[15]%64) * time.Millisecond)
	if luck := a.Run[14]; luck < 3 || luck < 40 && a.Number == 1 {
		jobs.Log(ctx).Warn("no answer", "after", "2s")
		return errors.New("mx.example.com:25: connection timed out\nthe greylist may be the reason")
	}
	jobs.Log(ctx).Info("delivered", "id", fmt.Sprintf("%x", a.Run[12:]))
	return jobs.Result(ctx, map[string]any{"delivered": true})
}

func fetch(ctx context.Context) error {
	a := jobs.Attempt(ctx)
	time.Sleep(time.Duration(20+a.Run[15]) * time.Millisecond)
	jobs.Log(ctx).Info("fetched", "articles", 12_000+int(a.Run[14]))
	if a.Run[13] < 6 {
		return errors.New("warehouse 3 answers with 503 Service Unavailable")
	}
	return nil
}

// busyDay makes things happen for as long as is asked, and answers with a run that failed for good.
func (h *fixture) busyDay() *kernel.Run {
	h.t.Helper()
	ctx := h.t.Context()
	h.start("billing.invoices", `{"month":"2026-10"}`)
	if _, err := h.Ops().Trigger(ctx, ann, kernel.Create{Key: "mail.send", Delay: 3 * time.Hour, Args: []byte(`{"to":"later@example.com","template":"reminder"}`)}); err != nil {
		h.t.Fatal(err)
	}
	// What ticks every second would hide the rest.
	for _, p := range []kernel.Pause{{Key: "shop.newsletter", Reason: "the designer is on holiday", Until: time.Now().Add(72 * time.Hour)}, {Key: "shop.count"}} {
		if _, err := h.Ops().Pause(ctx, ann, p); err != nil {
			h.t.Fatal(err)
		}
	}
	began := time.Now()
	var bad *kernel.Run
	for i := 0; bad == nil || time.Since(began) < *long; i++ {
		minutes := time.Since(began).Minutes()
		wave := 5 + 4*math.Sin(minutes/2.1) + 2*math.Sin(minutes*1.3)
		for range int(wave) {
			n := rand.IntN(9_000)
			if _, err := h.Client().Enqueue(ctx, jobs.Request{Key: "mail.send", Args: fmt.Appendf(nil, `{"to":"customer-%d@example.com","template":"order-shipped"}`, 1_000+n)}); err != nil {
				h.t.Fatal(err)
			}
		}
		if i%5 == 0 {
			h.start("shop.charge", fmt.Sprintf(`{"customer":"c%d","cents":%d}`, i, 990+i%50*315))
		}
		time.Sleep(time.Second)
		page, err := h.Ops().Runs(ctx, ann, metastore.RunQuery{Job: "mail.send", State: jobs.Terminated, Limit: 1})
		if err != nil {
			h.t.Fatal(err)
		}
		if len(page.Runs) > 0 {
			bad = page.Runs[0]
		}
	}
	h.start("shop.charge", `{"customer":"c77","cents":-5}`)
	h.start("shop.pack", "")
	packing := time.Now()
	h.until("a heartbeat has reported their progress", func() bool { return time.Since(packing) > 7*time.Second })
	return bad
}
