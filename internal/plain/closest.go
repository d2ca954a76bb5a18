package plain

// Slip is the edit distance of one typing mistake.
const Slip = 2

// Closest returns the nearest known name and its edit distance.
func Closest[V any](text string, known map[string]V) (best string, least int) {
	least = len(text) + 1
	for name := range known {
		if d := distance(text, name); d < least || d == least && name < best {
			best, least = name, d
		}
	}
	return best, least
}

// distance is the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
