package vote

// parts are the held-out rows by what they are for, each in ascending order.
type parts struct {
	weigh []int // weights are fitted here
	check []int // and must be a gain here
	fit   []int // both: temperatures are fitted here
	test  []int // everything that is reported is measured here
}

// deal splits the rows by label: of each class the rows go in turn to test, weigh, test, check, and class c begins c
// places further on. So half of every class is test and a quarter each of the others, to within one row, whatever the
// order of the file (sorted, alternating, shuffled), and small classes do not all begin in the same part. It looks at labels and order
// alone. When a part would be too small to fit anything on, all rows are test rows.
func deal(labels []int32, classes int) parts {
	var p parts
	seen := make([]int, classes)
	for row, c := range labels {
		switch (seen[c] + int(c)) % 4 {
		case 1:
			p.weigh = append(p.weigh, row)
			p.fit = append(p.fit, row)
		case 3:
			p.check = append(p.check, row)
			p.fit = append(p.fit, row)
		default:
			p.test = append(p.test, row)
		}
		seen[c]++
	}
	if len(p.weigh) < MinFitRows || len(p.check) < MinFitRows || len(p.test) < MinFitRows {
		p = parts{test: make([]int, len(labels))}
		for row := range p.test {
			p.test[row] = row
		}
	}
	return p
}
