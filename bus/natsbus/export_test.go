package natsbus

// Subscriptions is how many subscriptions the connection has.
func (b *Bus) Subscriptions() int { return b.nc.NumSubscriptions() }

// Connected reports whether there is a connection.
func (b *Bus) Connected() bool { return b.link.connected() }

// WithoutPings has the library never ask whether the server is there.
func (c Config) WithoutPings() Config {
	c.pings = 1 << 62
	return c
}
