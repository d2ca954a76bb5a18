package main

import (
	"net/url"
	"slices"

	"github.com/carillon-scheduler/carillon/embed"
)

// Rows may be kept in a database instead of the data directory, which then holds only what belongs to this process.

// checkStore checks what is said about a database.
func (c *config) checkStore() {
	if c.Store == "" {
		if c.Triggering == string(embed.Distributed) {
			c.wrong("triggering (from %s) is distributed, and store.url is not set: distributed triggering needs a database", c.values["triggering"].origin)
		}
		if c.Password != "" {
			c.wrong("store.password-file is given, and store.url is not")
		}
		return
	}
	u, err := url.Parse(c.Store)
	if err != nil || !slices.Contains([]string{"postgres", "postgresql", "mariadb", "mysql"}, u.Scheme) {
		c.wrong("store.url (from %s) is not understood: give a URL such as postgres://carillon@db/carillon or mariadb://carillon@db/carillon", c.values["store.url"].origin)
		return
	}
	known := hasPassword(u)
	switch {
	case c.Memory:
		c.wrong("both store.url (from %s) and memory (from %s) are given: one keeps everything, the other nothing", c.values["store.url"].origin, c.values["memory"].origin)
	case known && c.values["store.url"].origin == "--store":
		c.wrong("--store has a password, and everybody on this machine can read what a program was called with: put it into a file, and name that by store.password-file")
	case known && c.Password != "":
		c.wrong("store.url has a password, and store.password-file is given, too: leave one out")
	}
}

// hasPassword reports whether the URL of a database holds a password, before the @ or as a parameter.
func hasPassword(u *url.URL) bool {
	_, before := u.User.Password()
	return before || u.Query().Has("password")
}

// standsBy says that another process with the same rows may lead, and that its bus is not ours: of the NATS servers in
// such processes only the leader's is open.
func (c *config) standsBy() bool { return c.Store != "" && c.URL == "" }

// database is the URL of the database with its password, or "".
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
