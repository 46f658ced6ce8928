package tape

import (
	"math"

	"tensorturn/domain"
)

// lossTile is the number of softmaxes of one piece of work: below it no goroutine is worth its start.
const lossTile = 256

// CrossEntropy is the softmax cross-entropy loss: the end of a classifier's tape. Its result is read after Forward.
type CrossEntropy struct {
	logits *Tensor
	labels []int // of the present batch
	tape   *Tape
	probs  []float32 // full capacity
	logSum []float64 // log of the sum of exponentials of each place, full capacity
	places int       // of a row that have a label each
	width  int       // classes
	part   func(part, lane int)
}

// NewCrossEntropy records the mean of −log softmax(logits)[label] over the batch and the places of a row.
func NewCrossEntropy(t *Tape, logits *Tensor, classes int) *CrossEntropy {
	places := logits.Width() / classes
	domain.Assert(places*classes == logits.Width(), "every place has a logit for every class")
	c := &CrossEntropy{logits: logits, tape: t, labels: make([]int, t.capacity*places), places: places, width: classes,
		probs: aligned(t.capacity * logits.Width()), logSum: make([]float64, t.capacity*places)}
	c.part = c.softmax // made once: a step allocates nothing
	t.Record(c)
	return c
}

// Labels is where the classes of the present batch [rows, places] are to be written before Forward.
func (c *CrossEntropy) Labels() []int { return c.labels[:c.tape.Rows()*c.places] }

// Probabilities is the softmax of the present batch [rows, places, classes], valid until the next Forward.
func (c *CrossEntropy) Probabilities() []float32 { return c.probs[:c.tape.Rows()*c.logits.Width()] }

// Forward computes the probabilities. The largest logit is taken off first, so that no exponential overflows.
func (c *CrossEntropy) Forward() { split(tiles(len(c.Labels()), lossTile), c.part) }

// softmax works out one tile of places.
func (c *CrossEntropy) softmax(part, _ int) {
	width := c.width
	for i := part * lossTile; i < min((part+1)*lossTile, len(c.Labels())); i++ {
		row := c.logits.Data[i*width : (i+1)*width]
		out := c.probs[i*width : (i+1)*width]
		top := largest(row)
		sum := 0.0
		for j, v := range row {
			e := math.Exp(float64(v) - top)
			sum += e
			out[j] = float32(e)
		}
		c.logSum[i] = math.Log(sum) + top
		scale := float32(1 / sum)
		for j := range out {
			out[j] *= scale
		}
	}
}

// Loss sums the mean over a row's places of −log softmax over the rows of the batch in float64, from the logits: a probability that has vanished in
// float32 still has a finite loss.
func (c *CrossEntropy) Loss() float64 {
	width := c.width
	total := 0.0
	for i, label := range c.Labels() {
		total += c.logSum[i] - float64(c.logits.Data[i*width+label])
	}
	if c.places > 1 {
		total /= float64(c.places)
	}
	return total
}

// Backward gives the gradient of the mean: (p − onehot) / (rows × places).
func (c *CrossEntropy) Backward() {
	width := c.width
	scale := 1 / float32(len(c.Labels()))
	probs := c.Probabilities()
	for i, label := range c.Labels() {
		grad := c.logits.Grad[i*width : (i+1)*width]
		for j, p := range probs[i*width : (i+1)*width] {
			if j == label {
				p--
			}
			grad[j] += float32(p * scale)
		}
	}
}

// largest is the row's maximum; a NaN anywhere makes it NaN.
func largest(row []float32) float64 {
	top := row[0]
	for _, v := range row {
		if v > top || v != v {
			top = v
		}
	}
	return float64(top)
}
