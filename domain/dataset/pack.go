package dataset

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
)

const opPack = "pack data set"

// splitTag sets the stream of the split apart from the run's other streams of the same seed.
const splitTag = 0x5e71

// Pack splits a table, standardises it and writes the packed form: equal bytes for an equal table, fraction and seed.
//
// The split is stratified: of each class about holdout of the samples are held out and at least one stays in training;
// together they are the nearest whole number to holdout × rows that this allows. Training rows are written in a random
// order, since files are often sorted by class and a shuffle block takes neighbours. Held-out rows keep the file's order.
// Mean and deviation are the training part's alone.
func Pack(t *Table, holdout float64, seed uint64, w io.Writer) (Facts, error) {
	if err := checkHoldout(holdout); err != nil {
		return Facts{}, err
	}
	train, held := split(t, holdout, seed)
	t = t.filled(train)
	f := Facts{Samples: len(train), Heldout: len(held),
		Seed: seed, Holdout: holdout, Label: t.Label, Classes: t.Classes, Columns: t.Columns}
	f.Mean, f.Std = statistics(t.Values, len(t.Columns), train)
	f.Shape = t.Shape
	f.Block = f.block()
	if t.Targets != nil {
		mean, std := statistics(t.Targets, 1, train)
		f.Task, f.TargetMean, f.TargetStd, f.Classes = run.TaskRegression, mean[0], std[0], []string{}
	}
	if why := f.check(); why != "" {
		return Facts{}, domain.Invalid(opPack, why, "give a table within the limits")
	}
	row := make([]byte, f.rowBytes())
	if err := f.write(w, slices.Concat(train, held), func(i int) ([]byte, error) { return row, f.encodeRow(t, i, row) }); err != nil {
		return Facts{}, err
	}
	return f, nil
}

func checkHoldout(holdout float64) error {
	if !(holdout >= 0 && holdout < 1) {
		return domain.Invalid(opPack, fmt.Sprintf("holdout %v", holdout), "give a fraction from 0 to below 1")
	}
	return nil
}

// write writes the header, then what row gives for each of order. The bytes of a row are used before the next is asked for.
func (f Facts) write(w io.Writer, order []int, row func(i int) ([]byte, error)) error {
	head, err := f.encode()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	_, err = out.Write(head)
	for _, i := range order {
		if err != nil {
			break
		}
		raw, bad := row(i)
		if bad != nil {
			return bad
		}
		_, err = out.Write(raw)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", opPack, err)
	}
	return nil
}

// filled gives the table with the mean of a column's present values in the training rows where one is missing, or itself when
// none is. A column without any value in them is all zeros. Equal values are filled with themselves: their sum by their count
// may differ in the last bit, and standardising would make a feature of that.
func (t *Table) filled(train []int) *Table {
	if len(t.Missing) == 0 {
		return t
	}
	n := len(t.Columns)
	gap := make([]bool, len(t.Values))
	for _, at := range t.Missing {
		gap[at] = true
	}
	fill := make([]filling, n)
	for _, i := range train {
		for j := range n {
			if at := i*n + j; !gap[at] {
				fill[j].see(t.Values[at])
			}
		}
	}
	out := *t
	out.Values = slices.Clone(t.Values)
	for _, at := range t.Missing {
		if c := &fill[at%n]; c.count > 0 {
			out.Values[at] = c.value()
		}
	}
	out.Missing = nil
	return &out
}

// filling is what the gaps of one column get.
type filling struct {
	sum, first float64
	count      int
	varies     bool
}

func (c *filling) see(v float64) {
	if c.count == 0 {
		c.first = v
	}
	c.varies = c.varies || v != c.first
	c.sum += v
	c.count++
}

func (c *filling) value() float64 {
	if !c.varies {
		return c.first
	}
	return c.sum / float64(c.count)
}

// split gives the rows of both parts.
func split(t *Table, holdout float64, seed uint64) (train, held []int) {
	order := make([]int, t.Rows())
	labels, classes := t.Labels, len(t.Classes)
	if t.Targets != nil { // one stratum
		labels, classes = make([]int, t.Rows()), 1
	}
	count := make([]int, classes)
	for i, l := range labels {
		order[i] = i
		count[l]++
	}
	permute.NewSource(seed, splitTag).Shuffle(order)
	quota := quotas(count, holdout)
	for _, i := range order {
		if l := labels[i]; quota[l] > 0 {
			quota[l]--
			held = append(held, i)
		} else {
			train = append(train, i)
		}
	}
	slices.Sort(held)
	return train, held
}

// quotas shares round(holdout × rows) out over the classes by largest remainder, ties to the lower class; no class
// gives its last sample.
func quotas(count []int, holdout float64) []int {
	quota := make([]int, len(count))
	rest := make([]float64, len(count))
	order := make([]int, len(count))
	rows, given := 0, 0
	for c, n := range count {
		share := float64(holdout * float64(n))
		quota[c] = max(0, min(int(share), n-1))
		rest[c] = share - float64(quota[c])
		order[c] = c
		rows += n
		given += quota[c]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] > rest[b]:
			return -1
		case rest[a] < rest[b]:
			return 1
		}
		return 0
	})
	want := int(math.Round(holdout * float64(rows)))
	if holdout > 0 {
		want = max(want, 1)
	}
	for _, c := range order {
		if given < want && quota[c] < count[c]-1 && rest[c] > 0 {
			quota[c]++
			given++
		}
	}
	return quota
}

// statistics gives mean and population deviation of each of n columns over the rows, two passes in float64, rows in order.
// A column whose rows are all equal has deviation 1: a rounding error must not be blown up to a feature.
func statistics(values []float64, n int, rows []int) (mean, std []float64) {
	mean, std = make([]float64, n), make([]float64, n)
	constant := make([]bool, n)
	for j := range constant {
		constant[j] = true
	}
	first := values[rows[0]*n : rows[0]*n+n]
	for _, i := range rows {
		for j, v := range values[i*n : i*n+n] {
			mean[j] += v
			constant[j] = constant[j] && v == first[j]
		}
	}
	for j := range mean {
		mean[j] /= float64(len(rows))
	}
	for _, i := range rows {
		for j, v := range values[i*n : i*n+n] {
			d := v - mean[j]
			std[j] += float64(d * d)
		}
	}
	for j := range std {
		std[j] = math.Sqrt(std[j] / float64(len(rows)))
		if constant[j] || std[j] == 0 { // the square of a tiny difference may vanish
			std[j] = 1
		}
	}
	return mean, std
}

func (f Facts) encodeRow(t *Table, i int, row []byte) error {
	n := f.Features()
	for j, v := range t.Values[i*n : i*n+n] {
		x := f.standard(j, v)
		if math.IsInf(float64(x), 0) || math.IsNaN(float64(x)) {
			return domain.Invalid(opPack, fmt.Sprintf("sample %d, column %q: %v is too far from the other values to be standardised", i+1, f.Columns[j], v),
				"check the value; scale the column or remove the sample")
		}
		binary.LittleEndian.PutUint32(row[j*4:], math.Float32bits(x))
	}
	if t.Targets == nil {
		binary.LittleEndian.PutUint32(row[n*4:], uint32(t.Labels[i]))
		return nil
	}
	y := float32((t.Targets[i] - f.TargetMean) / f.TargetStd)
	if math.IsInf(float64(y), 0) || math.IsNaN(float64(y)) {
		return domain.Invalid(opPack, fmt.Sprintf("sample %d: the label %v is too far from the other labels to be standardised", i+1, t.Targets[i]), "check the value")
	}
	binary.LittleEndian.PutUint32(row[n*4:], math.Float32bits(y))
	return nil
}
