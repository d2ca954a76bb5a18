package natsbus

// Subscriptions returns how many subscriptions the connection has.
func (b *Bus) Subscriptions() int { return b.nc.NumSubscriptions() }

// Connected reports whether there is a connection.
func (b *Bus) Connected() bool { return b.link.connected() }

// WithoutPings keeps the library from pinging the server.
func (c Config) WithoutPings() Config {
	c.pings = 1 << 62
	return c
}
