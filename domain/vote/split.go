package vote

import (
	"slices"

	"tensorturn/domain/permute"
)

// parts are the held-out rows by what they are for, each in ascending order.
type parts struct {
	weigh []int // weights are fitted here
	check []int // and must be a gain here
	fit   []int // both: temperatures are fitted here
	test  []int // everything that is reported is measured here
}

// dealLabel is the stream that orders the rows for the deal: "vote.dea". It is part of every recorded vote.
const dealLabel = 0x766f74652e646561

// deal splits the rows by label: in an order that depends on their number alone, the rows of each class go in turn to test,
// weigh, test, check, and class c begins c places further on. So half of every class is test and a quarter each of the
// others, to within one row, and small classes do not all begin in the same part.
//
// The order is shuffled because files have patterns: dealt as they stand, rows that repeat every four (four copies of
// each picture, four sensors in turn) would all go to one part. When a part would be too small to fit anything on, all rows
// are test rows.
func deal(labels []int32, classes int) parts {
	var p parts
	order := make([]int, len(labels))
	for i := range order {
		order[i] = i
	}
	permute.NewSource(uint64(len(labels)), dealLabel).Shuffle(order)
	seen := make([]int, classes)
	for _, row := range order {
		c := labels[row]
		switch (seen[c] + int(c)) % 4 {
		case 1:
			p.weigh = append(p.weigh, row)
		case 3:
			p.check = append(p.check, row)
		default:
			p.test = append(p.test, row)
		}
		seen[c]++
	}
	if len(p.weigh) < MinFitRows || len(p.check) < MinFitRows || len(p.test) < MinFitRows {
		p = parts{test: order}
	}
	p.fit = slices.Concat(p.weigh, p.check)
	for _, part := range [][]int{p.weigh, p.check, p.fit, p.test} {
		slices.Sort(part)
	}
	return p
}
