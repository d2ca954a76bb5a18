package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

// This is built together with a client that a generator has made (client_test.go).

func main() {
	if err := walk(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func walk(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := NewClientWithResponses(url)
	if err != nil {
		return err
	}
	args := map[string]interface{}{"customer": "c7"}
	made, err := c.TriggerJobWithResponse(ctx, "billing.charge", nil, RunSettings{Args: &args})
	if err != nil || made.JSON201 == nil {
		return fmt.Errorf("trigger: %v %s", err, made.Body)
	}
	for run := made.JSON201; run.State != RunStateSucceeded; {
		read, err := c.GetRunWithResponse(ctx, run.Id)
		if err != nil || read.JSON200 == nil {
			return fmt.Errorf("read: %v", err)
		}
		if run = read.JSON200; run.State == RunStateSucceeded && run.Result != "charged c7" {
			return fmt.Errorf("the result is %v", run.Result)
		}
		time.Sleep(10 * time.Millisecond)
	}

	job, err := c.GetJobWithResponse(ctx, "billing.charge")
	if err != nil || job.JSON200 == nil {
		return fmt.Errorf("job: %v", err)
	}
	etag, retries := job.HTTPResponse.Header.Get("ETag"), int64(3)
	edited, err := c.EditJobWithResponse(ctx, "billing.charge", &EditJobParams{IfMatch: &etag}, EditJobJSONRequestBody{Retries: &retries})
	if err != nil || edited.JSON200 == nil || *edited.JSON200.Retries != 3 {
		return fmt.Errorf("edit: %v %s", err, edited.Body)
	}
	retries = 4
	stale, err := c.EditJobWithResponse(ctx, "billing.charge", &EditJobParams{IfMatch: &etag}, EditJobJSONRequestBody{Retries: &retries})
	if err != nil || stale.StatusCode() != http.StatusPreconditionFailed || stale.ApplicationproblemJSONDefault.Code != "stale" {
		return fmt.Errorf("an edit of an old revision: %v %s", err, stale.Body)
	}

	args["customer"] = 7
	wrong, err := c.TriggerJobWithResponse(ctx, "billing.charge", nil, RunSettings{Args: &args})
	if err != nil || wrong.StatusCode() != http.StatusUnprocessableEntity || *(*wrong.ApplicationproblemJSONDefault.Errors)[0].Location != "body.args.customer" {
		return fmt.Errorf("wrong arguments: %v %s", err, wrong.Body)
	}

	args["customer"] = "c8"
	delay := "1h"
	later, err := c.TriggerJobWithResponse(ctx, "billing.charge", nil, RunSettings{Args: &args, Delay: &delay})
	if err != nil || later.JSON201 == nil || later.JSON201.State != RunStateScheduled {
		return fmt.Errorf("trigger: %v %s", err, later.Body)
	}
	cancelled, err := c.CancelRunWithResponse(ctx, later.JSON201.Id, CancelRunJSONRequestBody{})
	if err != nil || cancelled.JSON200 == nil || cancelled.JSON200.State != RunStateCancelled {
		return fmt.Errorf("cancel: %v %s", err, cancelled.Body)
	}
	return nil
}
