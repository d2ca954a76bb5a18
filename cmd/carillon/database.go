package main

import (
	"net/url"
	"slices"

	"github.com/carillon-scheduler/carillon/embed"
)

// With a database as store, the data directory has only the files of this process.

// checkStore checks the settings about a database.
func (c *config) checkStore() {
	if c.Store == "" {
		if c.Triggering == string(embed.Distributed) {
			c.wrong("triggering (from %s) is distributed, but store.url is not set: distributed triggering needs a database", c.values["triggering"].origin)
		}
		if c.Password != "" {
			c.wrong("store.password-file needs store.url")
		}
		if c.Live {
			c.wrong("store.live (from %s) needs store.url", c.values["store.live"].origin)
		}
		return
	}
	u, err := url.Parse(c.Store)
	if err != nil || !slices.Contains([]string{"postgres", "postgresql", "mariadb", "mysql"}, u.Scheme) {
		c.wrong("invalid store.url (from %s): want a URL such as postgres://carillon@db/carillon or mariadb://carillon@db/carillon", c.values["store.url"].origin)
		return
	}
	known := hasPassword(u)
	switch {
	case c.Memory:
		c.wrong("both store.url (from %s) and memory (from %s) are set: remove one", c.values["store.url"].origin, c.values["memory"].origin)
	case known && c.values["store.url"].origin == "--store":
		c.wrong("--store has a password, which other users of this machine can read: put it into a file and set store.password-file")
	case known && c.Password != "":
		c.wrong("both a password in store.url and store.password-file are set: remove one")
	}
}

// hasPassword reports whether the URL of a database holds a password, before the @ or as a parameter.
func hasPassword(u *url.URL) bool {
	_, before := u.User.Password()
	return before || u.Query().Has("password")
}

// mayStandBy reports whether another process with the same database may lead, with another bus: of the built-in NATS
// servers of such processes, only the leader's is open.
func (c *config) mayStandBy() bool { return c.Store != "" && c.URL == "" }

// database returns the URL of the database with its password, or "".
func (c *config) database() (string, error) {
	if c.Store == "" || c.Password == "" {
		return c.Store, nil
	}
	password, err := secretIn(c.Password)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(c.Store)
	if err != nil {
		return "", err
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String(), nil
}
