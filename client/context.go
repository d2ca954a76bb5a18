package client

import "context"

type contextKey struct{}

// detached is the client of a context without one.
var detached = New(nil, nil, Config{})

// From returns the client of the worker that runs the handler of ctx, for the handler's tenant. Outside a worker it
// returns one that refuses every call with jobs.ErrNotRunning.
func From(ctx context.Context) *Client {
	if c, ok := ctx.Value(contextKey{}).(*Client); ok {
		return c
	}
	return detached
}

// with returns a context in which From returns c.
func with(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Wrap is a middleware for workers: handlers find c with From.
func Wrap[H ~func(context.Context, []byte) error](c *Client) func(H) H {
	return func(next H) H {
		return func(ctx context.Context, args []byte) error { return next(with(ctx, c), args) }
	}
}
