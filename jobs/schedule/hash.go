package schedule

// hash spreads jobs that ask for H over the values of a field. It is FNV-1a of
// the key, a zero byte and the name of the field, with its high bits folded
// in, because the remainders that are taken of it look at the low ones. It is
// stored nowhere and must never change: the same key has the same value for
// ever.
func hash(key, field string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, text := range [...]string{key, "\x00", field} {
		for i := 0; i < len(text); i++ {
			h = (h ^ uint64(text[i])) * prime
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}
