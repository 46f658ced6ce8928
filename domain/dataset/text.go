package dataset

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"tensorturn/domain"
	"tensorturn/domain/permute"
)

// Text is packed as segments of equal length, in the training part in a random order, so that a shuffle block is a
// mixture of the whole text. Samples lie within one segment: sample k of a segment sees the Context bytes from k ×
// Predicts on and predicts the last Predicts of the Context + Predicts bytes from there (so that with Predicts equal to
// Context, the next byte at every place, windows do not share a predicted byte).
const (
	Bytes         = 256     // classes of text: the values of a byte
	segmentBytes  = 4 << 10 // predicted bytes of a segment of a text that is long enough
	leastSegments = 20      // a shorter text is cut into shorter segments, so that about any part can be held out
	textTag       = 0x7e87  // sets the stream of the split apart
)

// TextOptions says what a sample of text is.
type TextOptions struct {
	Context  int // bytes that a sample sees
	Predicts int // 1: the byte behind them; Context: at each place the byte behind it
}

// PackText cuts a text into segments, holds out a seeded choice of holdout of them, and writes the packed form: equal
// bytes for equal arguments. A rest that fills no segment is left out. Nothing is decoded: any bytes are a text.
func PackText(text []byte, o TextOptions, holdout float64, seed uint64, w io.Writer) (Facts, error) {
	if err := checkHoldout(holdout); err != nil {
		return Facts{}, err
	}
	if o.Context < 1 || o.Context >= MaxColumns || o.Predicts != 1 && o.Predicts != o.Context {
		return Facts{}, domain.Invalid(opPack, fmt.Sprintf("a context of %d bytes that predicts %d", o.Context, o.Predicts), "predict 1 byte or as many as the context has")
	}
	if len(text) > MaxCorpusBytes {
		return Facts{}, domain.Invalid(opPack, fmt.Sprintf("the text has %d bytes, at most %d are possible", len(text), MaxCorpusBytes), "give a part of it")
	}
	f := textFacts(o, len(text))
	segments := len(text) / f.Segment
	if segments < 2 {
		return Facts{}, domain.Invalid(opPack, fmt.Sprintf("the text has %d bytes, which is too short for a context of %d", len(text), o.Context),
			fmt.Sprintf("give at least %d bytes", 2*f.Segment))
	}
	held := min(int(math.Round(holdout*float64(segments))), segments-1)
	if holdout > 0 {
		held = max(held, 1)
	}
	order := make([]int, segments)
	for i := range order {
		order[i] = i
	}
	permute.NewSource(seed, textTag).Shuffle(order)
	slices.Sort(order[:held])
	f.Samples, f.Heldout = (segments-held)*f.perSegment(), held*f.perSegment()
	f.Seed, f.Holdout = seed, holdout
	f.Block = f.block()
	if why := f.check(); why != "" {
		return Facts{}, domain.Invalid(opPack, why, "give a text within the limits")
	}
	return f, f.write(w, slices.Concat(order[held:], order[:held]), func(s int) ([]byte, error) { return text[s*f.Segment : (s+1)*f.Segment], nil })
}

// textFacts gives what does not depend on the split.
func textFacts(o TextOptions, length int) Facts {
	per := max(1, segmentBytes/o.Predicts)
	if fits := (length/leastSegments - textOverlap(o.Context, o.Predicts)) / o.Predicts; fits < per {
		per = max(1, fits)
	}
	f := Facts{Label: "next byte", Predicts: o.Predicts, Segment: per*o.Predicts + textOverlap(o.Context, o.Predicts)}
	for i := range o.Context {
		f.Columns, f.Mean, f.Std = append(f.Columns, "byte "+strconv.Itoa(i+1)), append(f.Mean, 0), append(f.Std, 1)
	}
	for b := range Bytes {
		f.Classes = append(f.Classes, strconv.Itoa(b))
	}
	return f
}

// textOverlap is what a segment has beyond its predicted bytes: the context of the first.
func textOverlap(context, predicts int) int {
	if predicts == 1 {
		return context
	}
	return 1
}

// perSegment is the number of samples of a segment.
func (f Facts) perSegment() int {
	return (f.Segment - textOverlap(f.Features(), f.Predicts)) / f.Predicts
}

// sampleBytes is the length of a sample of text, its context and what it predicts.
func (f Facts) sampleBytes() int { return f.Predicts + textOverlap(f.Features(), f.Predicts) }

// blockSamples is how many samples fit one part of a blob, in whole segments, at most all.
func blockSamples(f Facts) int {
	return min(f.Samples, max(1, domain.MaxPartBytes/f.Segment)*f.perSegment())
}

// checkText says what makes a header of text impossible, or "". Predicts and Segment divide things later.
func (f Facts) checkText() string {
	n := f.Features()
	switch {
	case f.Predicts < 1 || f.Predicts != 1 && f.Predicts != n || n < 1 || n >= MaxColumns:
		return fmt.Sprintf("%d predicted bytes behind %d", f.Predicts, n)
	case f.Segment > MaxCorpusBytes || f.Segment < f.sampleBytes() || (f.Segment-textOverlap(n, f.Predicts))%f.Predicts != 0:
		return fmt.Sprintf("segments of %d bytes", f.Segment)
	case f.Samples < 1 || f.Heldout < 0 || f.Samples > MaxRows || f.Heldout > MaxRows || f.Samples%f.perSegment() != 0 || f.Heldout%f.perSegment() != 0:
		return fmt.Sprintf("%d and %d samples of text, %d a segment", f.Samples, f.Heldout, f.perSegment())
	case f.size() > MaxCorpusBytes:
		return fmt.Sprintf("%d bytes of text", f.size())
	case len(f.Classes) != Bytes:
		return fmt.Sprintf("%d classes of bytes", len(f.Classes))
	}
	return ""
}

// decodeText spreads one sample: the bytes of the context as numbers, and the bytes that follow.
func decodeText(raw []byte, context []float32, labels []int) {
	for i := range context {
		context[i] = float32(raw[i])
	}
	for i := range labels {
		labels[i] = int(raw[len(raw)-len(labels)+i])
	}
}
