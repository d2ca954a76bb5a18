package natsbus

// Subscriptions returns how many subscriptions the connection has.
func (b *Bus) Subscriptions() int { return b.nc.NumSubscriptions() }

// Read returns how many bytes of messages have arrived.
func (b *Bus) Read() uint64 { return b.nc.Stats().InBytes }

// WithoutPings keeps the library from pinging the server.
func (c Config) WithoutPings() Config {
	c.pings = 1 << 62
	return c
}
