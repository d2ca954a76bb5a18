package metastore

// Remembered is how many names a quota remembers.
func (q *Quota) Remembered() int { return len(q.tallies) }
