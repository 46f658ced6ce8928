package plan

import "strconv"

// count writes a number of chunks.
func count(n int) string {
	if n == 1 {
		return "1 chunk"
	}
	return strconv.Itoa(n) + " chunks"
}
