package schedule

type language struct{}

func (c *cron) say(l *language) string  { return "" }
func (e every) say(l *language) string  { return "" }
func (p period) say(l *language) string { return "" }
func (o once) say(l *language) string   { return "" }
