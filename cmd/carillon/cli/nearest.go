package cli

// slip is how many letters one mistake may cost.
const slip = 2

// Closest is the known word that is nearest, and how many letters it is away.
func Closest(word string, known map[string]string) (best string, least int) {
	least = len(word) + 1
	for name := range known {
		if d := distance(word, name); d < least || d == least && name < best {
			best, least = name, d
		}
	}
	return best, least
}

// distance is how many letters must change to make b of a (Levenshtein).
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
